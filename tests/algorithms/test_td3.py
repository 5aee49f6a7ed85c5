"""TD3 against a slow NumPy twin, and when policy and targets move. Runs on TensorFlow and JAX."""

import keras
import numpy as np
import pytest

from distrl.algorithms import make_algorithm
from distrl.config import RunConfig
from distrl.errors import ConfigError
from distrl.networks.framework.backend import Gradients
from distrl.types import ArraySpec, Batch, BoxSpec, DiscreteSpec, EnvSpec
from tests.algorithms.arm import of_critics
from tests.traces import traces

N, GAMMA, SCALE, RATE = 6, 0.9, 0.5, 0.25
LOW, HIGH = np.float32([-2.0, 0.0]), np.float32([2.0, 1.0])
OBSERVATIONS = {"observation": ArraySpec((3,), "float32")}
SPEC = EnvSpec("Arm-v0", OBSERVATIONS, {"action": BoxSpec((2,), (-2.0, 0.0), (2.0, 1.0))})


def config(network=None, **algorithm):
    given = {"name": "td3", "discount": GAMMA, "reward_scale": SCALE, "target_update_rate": RATE}
    layers = {
        "input_embedders_parameters": {"observation": {"normalize": True}},
        "middleware_parameters": {"scheme": [8], "activation": "tanh"},
        "learning_rate": 0.01,
    }
    return RunConfig.model_validate({"seed": 3, "algorithm": given | algorithm, "network": layers | (network or {})})


def make(network=None, spec=SPEC, **algorithm):
    algorithm = make_algorithm(config(network, **algorithm))
    return algorithm, algorithm.build(spec)


@pytest.fixture(scope="module")
def compiled():
    return *(built := make()), {name: network.state_arrays() for name, network in built[1].items()}


@pytest.fixture
def fresh(compiled):
    """A build of the default settings as it began; compiling one takes longer than most tests."""
    algorithm, networks, initial = compiled
    for name, network in networks.items():
        network.restore(initial[name])
    return algorithm, networks


def transitions(seed=0, **fields):
    rng = np.random.default_rng(seed)
    given = {
        "observations": {"observation": rng.standard_normal((2, N, 3)).astype("float32")},
        "actions": {"action": (LOW + rng.random((1, N, 2)) * (HIGH - LOW)).astype("float32")},
        "rewards": rng.standard_normal((1, N)).astype("float32"),
        "terminated": np.arange(N)[None] % 3 == 0,
        "truncated": np.arange(N)[None] % 3 == 1,
        "valid": np.ones((1, N), bool),
        "behaviour_log_probabilities": np.zeros((1, N), "float32"),
        "recurrent_state": {},
        "bootstrap_steps": (1 + np.arange(N, dtype="int32") % 2)[None],
        "importance_weights": np.linspace(0.2, 1.0, N, dtype="float32"),
    }
    return Batch(**(given | fields))


def trained(copy):
    return [np.array(variable) for variable in copy.model.trainable_variables]


def scaled(actions):
    return (actions - (HIGH + LOW) / 2) / ((HIGH - LOW) / 2)


def values(copy, observation, actions):
    return np.stack(copy.predict({"observation": observation, "action": actions.astype("float32")}))


def twin(networks, batch, noise, sigma=0.2, clip=0.5):
    """Every loss of one update, row by row, by the copies as they are."""
    main, critic = networks["main"], networks["critic"]
    before, after = batch.observations["observation"]
    greedy = scaled(main.online.predict({"observation": before}))
    following = scaled(main.target.predict({"observation": after}))
    rows = {"policy": [], "critic": [], "priorities": [], "y": []}
    of_greedy = values(critic.online, before, greedy)
    of_taken = values(critic.online, before, scaled(batch.actions["action"][0]))
    smoothed = np.empty_like(following)
    for i, j in np.ndindex(following.shape):
        added = max(-clip, min(clip, sigma * noise[i, j]))
        smoothed[i, j] = max(-1.0, min(1.0, following[i, j] + added))
    of_next = values(critic.target, after, smoothed)
    for i in range(N):
        y = SCALE * batch.rewards[0, i]
        if not batch.terminated[0, i]:
            y += GAMMA ** batch.bootstrap_steps[0, i] * min(of_next[0, i], of_next[1, i])
        weight = batch.importance_weights[i]
        rows["policy"].append(-weight * of_greedy[0, i])
        rows["critic"].append(weight * 0.5 * ((y - of_taken[0, i]) ** 2 + (y - of_taken[1, i]) ** 2))
        rows["y"].append(y)
        rows["priorities"].append(0.5 * (abs(y - of_taken[0, i]) + abs(y - of_taken[1, i])))
    return {name: np.array(of_rows) for name, of_rows in rows.items()}, of_critics(rows["y"], of_taken)


@pytest.mark.row("D168", "P07.2")
def test_every_loss_is_that_of_a_slow_twin(fresh):
    """The noise is three times as large as usual, so that it and the actions are clipped."""
    algorithm, networks = make(target_noise=0.6, target_noise_clip=0.3, target_update_rate=1.0)
    batch, noise = transitions(), np.asarray(keras.random.normal((N, 2), seed=keras.random.SeedGenerator(3)))
    for name in networks:  # policies that differ, and one that reaches its bounds
        networks[name].online.set_weights([4.0 * weight for weight in networks[name].online.get_weights()])
    rows, critics = None, None
    for network in networks.values():
        network.update_target_network()  # as the first update does, at this rate
    rows, critics = twin(networks, batch, noise, 0.6, 0.3)
    assert (np.abs(0.6 * noise) > 0.3).any()
    update = algorithm.update(networks, batch)
    assert update.metrics == pytest.approx(
        {
            "policy_loss": rows["policy"].mean(),
            "critic_loss": rows["critic"].mean(),
            **critics,
            "loss": rows["policy"].mean() + rows["critic"].mean(),
            "gradient_norm": update.metrics["gradient_norm"],
            "learning_rate": 0.01,
            "finite": True,
        },
        rel=1e-4,
    )
    np.testing.assert_allclose(update.priorities, rows["priorities"], rtol=1e-4)


@pytest.mark.row("D168")
def test_the_policy_moves_with_every_second_update_and_targets_follow_then(fresh):
    """Targets of the updates 1 and 2 are equal; the third begins with those that followed what the second left."""
    algorithm, networks = fresh
    main, critic = networks["main"], networks["critic"]
    policies, critics, targets = [trained(main.online)], [trained(critic.online)], []
    for seed in range(5):
        algorithm.update(networks, transitions(seed))
        policies.append(trained(main.online))
        critics.append(trained(critic.online))
        targets.append((trained(main.target), trained(critic.target)))

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


def test_each_loss_moves_its_own_variables_alone(fresh):
    algorithm, networks = fresh
    parts = [networks[name].online.model.trainable_variables for name in ("main", "critic")]
    trainable = [variable for part in parts for variable in part]
    others, batch = [*networks["main"].step_states, *networks["critic"].step_states], transitions()
    together = Gradients(algorithm.loss, trainable, others)(batch)[2]
    for name in ("policy", "critic"):
        alone = Gradients(lambda given, name=name: (algorithm.loss(given)[1][f"{name}_loss"], {}), trainable, others)(
            batch
        )[2]
        for index, (whole, apart) in enumerate(zip(together, alone, strict=True)):
            mine = (index < len(parts[0])) == (name == "policy")
            np.testing.assert_allclose(apart, whole if mine else 0.0 * whole, rtol=1e-5, atol=1e-7)
            assert apart.any() == mine


def test_a_restored_training_goes_on_bit_by_bit(fresh):
    """Saved between two updates of the policy: the place in the period is the critics' count."""
    algorithm, networks = fresh
    for seed in range(3):
        algorithm.update(networks, transitions(seed))
    saved = {name: network.state_arrays() for name, network in networks.items()}
    assert list(saved["main"]) == ["online", "target", "noise", "optimizer", "statistics"]
    expected = [algorithm.update(networks, transitions(seed)).metrics for seed in (3, 4)]
    after = {name: network.state_arrays() for name, network in networks.items()}
    for name, network in networks.items():
        network.restore(saved[name])
    assert [algorithm.update(networks, transitions(seed)).metrics for seed in (3, 4)] == expected
    for name, network in networks.items():
        for group, arrays in network.state_arrays().items():
            for path, array in arrays.items():
                np.testing.assert_array_equal(array, after[name][group][path], err_msg=f"{group}: {path}")


def test_actors_get_the_policy_alone_and_add_noise(fresh):
    _, networks = fresh
    assert all(name.startswith("main/") for name in networks["main"].online.policy_weights())
    assert networks["main"].online.actions["action"].kind == "deterministic"
    exploring = config().exploring  # a tenth of [-1, 1]'s half, as in the paper
    assert (exploring.kind, exploring.stddev.value, exploring.unit) == ("gaussian_noise", 0.05, "range")


def test_choices_and_several_actions_are_refused():
    with pytest.raises(ConfigError, match="algorithm td3: action 'action' of C is discrete"):
        make(spec=EnvSpec("C", OBSERVATIONS, {"action": DiscreteSpec(2)}))
    box = BoxSpec((1,), (-1.0,), (1.0,))
    with pytest.raises(ConfigError, match="deterministic_policy"):
        make(spec=EnvSpec("R", OBSERVATIONS, {"arm": box, "hand": box}))
