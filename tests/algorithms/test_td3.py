"""TD3 against a slow NumPy twin, and when policy and targets move. Runs on TensorFlow and JAX."""

import keras
import numpy as np
import pytest

from distrl.errors import ConfigError
from distrl.types import BoxSpec, DiscreteSpec, EnvSpec
from tests.algorithms import arm
from tests.traces import traces

N, RATE = arm.N, 0.25
fresh = arm.fresh_build("td3", target_update_rate=RATE)


def values(copy, observation, actions):
    return np.stack(copy.predict({"observation": observation, "action": actions.astype("float32")}))


def twin(networks, batch, noise, sigma=0.2, clip=0.5):
    """Every loss of one update, row by row, by the copies as they are."""
    main, critic = networks["main"], networks["critic"]
    before, after = batch.observations["observation"]
    greedy = arm.scaled(main.online.predict({"observation": before}))
    following = arm.scaled(main.target.predict({"observation": after}))
    rows = {"policy": [], "critic": [], "priorities": [], "y": []}
    of_greedy = values(critic.online, before, greedy)
    of_taken = values(critic.online, before, arm.scaled(batch.actions["action"][0]))
    smoothed = np.empty_like(following)
    for i, j in np.ndindex(following.shape):
        added = max(-clip, min(clip, sigma * noise[i, j]))
        smoothed[i, j] = max(-1.0, min(1.0, following[i, j] + added))
    of_next = values(critic.target, after, smoothed)
    targets = arm.targets(batch, of_next.min(axis=0))
    for i, y in enumerate(targets):
        weight = batch.importance_weights[i]
        rows["policy"].append(-weight * of_greedy[0, i])
        rows["critic"].append(weight * 0.5 * ((y - of_taken[0, i]) ** 2 + (y - of_taken[1, i]) ** 2))
        rows["y"].append(y)
        rows["priorities"].append(0.5 * (abs(y - of_taken[0, i]) + abs(y - of_taken[1, i])))
    return {name: np.array(of_rows) for name, of_rows in rows.items()}, arm.of_critics(rows["y"], of_taken)


@pytest.mark.row("D168", "P07.2")
def test_every_loss_is_that_of_a_slow_twin(fresh):
    """The noise is three times as large as usual, so that it and the actions are clipped."""
    algorithm, networks = arm.make("td3", target_noise=0.6, target_noise_clip=0.3, target_update_rate=1.0)
    batch, noise = arm.transitions(), np.asarray(keras.random.normal((N, 2), seed=keras.random.SeedGenerator(3)))
    for name in networks:  # policies that differ, and one that reaches its bounds
        networks[name].online.set_weights([4.0 * weight for weight in networks[name].online.get_weights()])
    rows, critics = None, None
    for network in networks.values():
        network.update_target_network()  # as the first update does, at this rate
    rows, critics = twin(networks, batch, noise, 0.6, 0.3)
    assert (np.abs(0.6 * noise) > 0.3).any()
    update = algorithm.update(networks, batch)
    arm.assert_metrics(
        update,
        policy_loss=rows["policy"].mean(),
        critic_loss=rows["critic"].mean(),
        **critics,
        loss=rows["policy"].mean() + rows["critic"].mean(),
    )
    np.testing.assert_allclose(update.priorities, rows["priorities"], rtol=1e-4)


@pytest.mark.row("D168")
def test_the_policy_moves_with_every_second_update_and_targets_follow_then(fresh):
    """Targets of the updates 1 and 2 are equal; the third begins with those that followed what the second left."""
    algorithm, networks = fresh
    main, critic = networks["main"], networks["critic"]
    policies, critics, targets = [arm.trained(main.online)], [arm.trained(critic.online)], []
    for seed in range(5):
        algorithm.update(networks, arm.transitions(seed))
        policies.append(arm.trained(main.online))
        critics.append(arm.trained(critic.online))
        targets.append((arm.trained(main.target), arm.trained(critic.target)))

    def moved(one, other):
        return any((a != b).any() for a, b in zip(one, other, strict=True))

    assert [moved(policies[at], policies[at + 1]) for at in range(5)] == [False, True, False, True, False]
    assert all(moved(critics[at], critics[at + 1]) for at in range(5))
    assert [int(network.optimizer.iterations) for network in (main, critic)] == [2, 5]
    expected = policies[0], critics[0]
    for at in range(5):
        if at in (2, 4):  # before the third and the fifth update
            expected = tuple(
                [RATE * new + (1 - RATE) * old for new, old in zip(online[at], slow, strict=True)]
                for online, slow in zip((policies, critics), expected, strict=True)
            )
        for slow, found in zip(expected, targets[at], strict=True):
            for one, other in zip(slow, found, strict=True):
                np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-7)
    assert traces(algorithm._step) == 1


@pytest.mark.parametrize("valid", [np.ones((1, N), bool), np.arange(N)[None] != 2], ids=["all valid", "not all"])
def test_with_bc_the_policys_loss_is_that_of_a_slow_twin(valid):
    """lambda is of the valid rows' values; all else is TD3's."""
    algorithm, networks = arm.make("td3_bc", value_weight=1.5)
    batch = arm.transitions(valid=valid)
    for network in networks.values():
        network.online.set_weights([3.0 * weight for weight in network.online.get_weights()])
        network.update_target_network()
    noise = np.asarray(keras.random.normal((N, 2), seed=keras.random.SeedGenerator(3)))
    before = batch.observations["observation"][0]
    greedy = arm.scaled(networks["main"].online.predict({"observation": before}))
    of_greedy = values(networks["critic"].online, before, greedy)[0]
    rows, _ = twin(networks, batch, noise)
    counted = np.flatnonzero(valid[0])
    scale = 1.5 / np.mean([abs(float(of_greedy[i])) for i in counted])
    differences = greedy - arm.scaled(batch.actions["action"][0])
    distances = [(differences[i, 0] ** 2 + differences[i, 1] ** 2) / 2 for i in range(N)]
    weights = batch.importance_weights
    expected = np.mean([weights[i] * (distances[i] - scale * of_greedy[i]) for i in counted])
    told = algorithm.update(networks, batch).metrics
    found = {name: told[name] for name in ("policy_loss", "critic_loss", "value_scale", "imitation_loss")}
    assert found == pytest.approx(
        {
            "policy_loss": expected,
            "critic_loss": rows["critic"][counted].mean(),
            "value_scale": scale,
            "imitation_loss": np.mean([distances[i] for i in counted]),
        },
        rel=1e-4,
    )


def test_bc_alone_imitates():
    """With the weight 0 the policy goes to what was recorded: a function of the observation."""
    algorithm, networks = arm.make("td3_bc", value_weight=0.0, policy_every_updates=1)

    def batch(seed):
        given = arm.transitions(seed)
        right = np.tanh(given.observations["observation"][0, :, :2])
        return given._replace(actions={"action": (arm.LOW + (right + 1) / 2 * (arm.HIGH - arm.LOW))[None]})

    told = [algorithm.update(networks, batch(seed)).metrics["imitation_loss"] for seed in range(300)]
    assert np.mean(told[-20:]) < 0.1 * np.mean(told[:20])


def test_each_loss_moves_its_own_variables_alone(fresh):
    arm.assert_each_loss_moves_its_own_variables_alone(fresh[0], arm.transitions())


def test_a_restored_training_goes_on_bit_by_bit(fresh):
    """Saved between two updates of the policy: the place in the period is the critics' count."""
    algorithm, networks = fresh
    arm.assert_goes_on_bit_by_bit(algorithm, networks)
    assert list(networks["main"].state_arrays()) == ["online", "target", "noise", "optimizer", "statistics"]


def test_actors_get_the_policy_alone_and_add_noise(fresh):
    _, networks = fresh
    assert all(name.startswith("main/") for name in networks["main"].online.policy_weights())
    assert networks["main"].online.actions["action"].kind == "deterministic"
    exploring = arm.config("td3").exploring  # a tenth of [-1, 1]'s half, as in the paper
    assert (exploring.kind, exploring.stddev.value, exploring.unit) == ("gaussian_noise", 0.05, "range")


def test_choices_and_several_actions_are_refused():
    with pytest.raises(ConfigError, match="algorithm td3: action 'action' of C is discrete"):
        arm.make("td3", spec=EnvSpec("C", arm.OBSERVATIONS, {"action": DiscreteSpec(2)}))
    box = BoxSpec((1,), (-1.0,), (1.0,))
    with pytest.raises(
        ConfigError, match="algorithm td3: R has the actions arm, hand, and it takes a single one; use algorithm sac"
    ):
        arm.make("td3", spec=EnvSpec("R", arm.OBSERVATIONS, {"arm": box, "hand": box}))
