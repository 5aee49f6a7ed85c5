"""CQL against slow NumPy twins, of continuous actions and of choices. Runs on TensorFlow and JAX."""

import math

import keras
import numpy as np
import pytest

from distrl.config import RunConfig
from distrl.types import DiscreteSpec, EnvSpec
from tests.algorithms import arm
from tests.algorithms.arm import GAMMA, SCALE, N, transitions
from tests.algorithms.states import restore, states

ALPHA, COUNT, WEIGHT = 0.3, 4, 0.7
CHOICES = EnvSpec("Toy-v0", arm.OBSERVATIONS, {"action": DiscreteSpec(3)})


def make(**algorithm):
    given = {"sampled_actions": COUNT, "conservative_weight": WEIGHT, "target_update_rate": 1e-8}
    algorithm, networks = arm.make("cql", initial_temperature=ALPHA, **(given | algorithm))
    rng = np.random.default_rng(5)
    for copy in (networks["main"].online, networks["critic"].target):
        for variable in copy.model.trainable_variables:
            variable.assign(np.array(variable) + rng.normal(0.0, 0.3, variable.shape).astype("float32"))
    return algorithm, networks


def values(copy, observation, scaled):
    return np.stack(copy.predict({"observation": observation, "action": np.asarray(scaled, "float32")}))


def twin(networks, batch, soft_targets):
    """Every loss row by row, and the gaps of both critics."""
    main, critic, draws = networks["main"], networks["critic"], keras.random.SeedGenerator(3)
    before, after = batch.observations["observation"]

    def normal(rows):
        return np.asarray(keras.random.normal((rows, 2), seed=draws))

    own, log_p = arm.drawn(main, before, normal(N))
    following, next_log_p = arm.drawn(main, after, normal(N))
    uniform = np.asarray(keras.random.uniform((COUNT * N, 2), -1.0, 1.0, seed=draws))
    sampled = [
        *((uniform[k * N : (k + 1) * N], np.full(N, math.log(0.25))) for k in range(COUNT)),
        *(
            arm.drawn(main, rows, noise[k * N : (k + 1) * N])
            for rows, noise in ((before, normal(COUNT * N)), (after, normal(COUNT * N)))
            for k in range(COUNT)
        ),
    ]
    of_taken = values(critic.online, before, arm.scaled(batch.actions["action"][0]))
    sums = np.zeros((2, N))
    for actions, log_densities in sampled:
        sums += np.exp(values(critic.online, before, actions) - log_densities)
    gaps = np.log(sums) - of_taken
    worth = values(critic.online, before, own).min(axis=0) - ALPHA * log_p
    ahead = values(critic.target, after, following).min(axis=0) - (ALPHA * next_log_p if soft_targets else 0.0)
    y, weights = arm.targets(batch, ahead), batch.importance_weights
    rows = {
        "policy": -weights * worth,
        "critic": weights * 0.5 * ((y - of_taken[0]) ** 2 + (y - of_taken[1]) ** 2),
        "temperature": -weights * ALPHA * (log_p - 2.0),
        "priorities": 0.5 * np.abs(y - of_taken).sum(axis=0),
    }
    return rows, gaps, log_p, arm.of_critics(y, of_taken)


@pytest.mark.parametrize("soft_targets", [False, True])
def test_every_loss_is_that_of_a_slow_twin(soft_targets):
    algorithm, networks = make(soft_targets=soft_targets)
    batch = transitions()
    rows, gaps, log_p, critics = twin(networks, batch, soft_targets)
    penalty = WEIGHT * (batch.importance_weights * gaps.sum(axis=0)).mean()
    losses = {name: rows[name].mean() for name in ("policy", "critic", "temperature")}
    update = algorithm.update(networks, batch)
    arm.assert_metrics(
        update,
        policy_loss=losses["policy"],
        critic_loss=losses["critic"] + penalty,
        conservative_gap=gaps.mean(),
        temperature=ALPHA,
        entropy=-log_p.mean(),
        **critics,
        loss=sum(losses.values()) + penalty,
    )
    np.testing.assert_allclose(update.priorities, rows["priorities"], rtol=1e-4)


def test_the_lagrangian_form_weighs_the_gap_less_its_target():
    algorithm, networks = make(gap_target=1.5)
    batch = transitions()
    rows, gaps, _, _ = twin(networks, batch, False)
    excess = WEIGHT * (batch.importance_weights * (gaps - 1.5).sum(axis=0)).mean()
    told = algorithm.update(networks, batch).metrics
    assert told["multiplier"] == pytest.approx(1.0)
    assert told["critic_loss"] == pytest.approx(rows["critic"].mean() + excess, rel=1e-4)
    # The term of the multiplier, -lambda (gap - tau), cancels the critics' in the sum.
    sum_of_losses = sum(rows[name].mean() for name in ("policy", "critic", "temperature"))
    assert told["loss"] == pytest.approx(sum_of_losses, rel=1e-4)


@pytest.mark.parametrize(("target", "grows"), [(0.01, True), (100.0, False)])
def test_the_multiplier_grows_while_the_gap_is_above_its_target(target, grows):
    algorithm, networks = make(gap_target=target, critic_learning_rate=0.05)
    told = [algorithm.update(networks, transitions(seed)).metrics["multiplier"] for seed in range(4)]
    assert (told[-1] > 1.1) if grows else (told[-1] < 0.9)
    assert "multiplier" in networks["main"].state_arrays()


def test_each_loss_moves_its_own_variables_alone():
    arm.assert_each_loss_moves_its_own_variables_alone(make()[0], transitions())


@pytest.mark.parametrize("gap_target", [None, 1.0])
def test_a_restored_training_goes_on_bit_by_bit(gap_target):
    arm.assert_goes_on_bit_by_bit(*make(gap_target=gap_target))


def test_values_of_recorded_actions_rise_above_others():
    """All actions recorded are the lowest, and nothing pays: without the penalty all values would become 0."""
    algorithm, networks = make(conservative_weight=1.0, target_update_rate=0.01)
    batch = transitions(
        actions={"action": np.broadcast_to(arm.LOW, (1, N, 2)).copy()}, rewards=np.zeros((1, N), "float32")
    )
    for _ in range(150):
        algorithm.update(networks, batch)
    before, critic = batch.observations["observation"][0], networks["critic"].online
    recorded, other = (values(critic, before, np.full((N, 2), side)).mean() for side in (-1.0, 1.0))
    assert recorded > other + 1.0


def test_sequences_are_refused():
    with pytest.raises(ValueError, match="sequence; cql learns from single transitions"):
        RunConfig.model_validate({"algorithm": {"name": "cql", "replay": {"item": {"kind": "sequence"}}}})


# --- choices ----------------------------------------------------------------------------------------------------------


def recorded(seed=0):
    rng = np.random.default_rng(seed)
    return transitions(seed, actions={"action": rng.integers(0, 3, (1, N)).astype("int32")})


def test_of_choices_the_loss_is_that_of_a_slow_twin():
    """By the update's metrics, and with a target network that differs."""
    algorithm, networks = arm.make("discrete_cql", spec=CHOICES, conservative_weight=WEIGHT)
    main, batch = networks["main"], recorded()
    main.target.set_weights([weight + 0.1 for weight in main.target.get_weights()])
    q, ahead = (main.online.predict({"observation": rows}, ["q/q"]) for rows in batch.observations["observation"])
    slow = main.target.predict({"observation": batch.observations["observation"][1]}, ["q/q"])
    losses, gaps = [], []
    for i in range(N):
        y = SCALE * batch.rewards[0, i]
        if not batch.terminated[0, i]:
            y += GAMMA ** batch.bootstrap_steps[0, i] * slow[i, np.argmax(ahead[i])]
        made = q[i, batch.actions["action"][0, i]]
        losses.append(batch.importance_weights[i] * (y - made) ** 2)
        gap = math.log(sum(math.exp(float(each)) for each in q[i])) - float(made)
        gaps.append(batch.importance_weights[i] * WEIGHT * gap)
    told = algorithm.update(networks, batch).metrics
    expected = {"td_loss": np.mean(losses), "conservative_loss": np.mean(gaps), "loss": np.mean(losses) + np.mean(gaps)}
    assert {name: told[name] for name in expected} == pytest.approx(expected, rel=1e-4)


def test_of_choices_weight_0_is_double_dqn():
    told = []
    for name, settings in (("discrete_cql", {"conservative_weight": 0.0}), ("dqn", {"double": True})):
        algorithm, networks = arm.make(name, spec=CHOICES, **settings)
        if told:
            restore(networks, told[0][0])
        before = states(networks)
        told.append((before, algorithm.update(networks, recorded()).metrics["td_loss"]))
    assert told[0][1] == pytest.approx(told[1][1], rel=1e-6)
