"""Discrete BCQ against a slow NumPy twin, and the constraint in what actors run. Runs on TensorFlow and JAX."""

import math

import numpy as np
import pytest

from distrl.actors.policy import Policy
from distrl.config import RunConfig
from distrl.networks.actions.joint import ActionSelector
from distrl.networks.policy.bundle import export_bundle
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec, Weights
from tests.algorithms import arm
from tests.algorithms.arm import GAMMA, SCALE, N, transitions

A, PENALTY = 4, 0.05
OBSERVATIONS = arm.OBSERVATIONS | {"allowed": ArraySpec((A,), "int8")}
SPEC = EnvSpec("Toy-v0", OBSERVATIONS, {"action": DiscreteSpec(A)})


def make(threshold=0.5, mask=None, **algorithm):
    """An algorithm and its networks, with imitations that make some choices unlikely, others in the target network."""
    network = {
        "input_embedders_parameters": {"observation": {"normalize": True}, "allowed": None},
        "heads_parameters": [{"kind": "constrained_q", "threshold": threshold, "action_mask": mask}],
    }
    algorithm, networks = arm.make("discrete_bcq", network, SPEC, logit_penalty=PENALTY, **algorithm)
    for seed, copy in enumerate((networks["main"].online, networks["main"].target)):
        rng = np.random.default_rng(seed)
        for variable in copy.model.trainable_variables:
            variable.assign(rng.normal(0.0, 0.9, variable.shape).astype("float32"))
    return algorithm, networks


def recorded(seed=0, allowed=None, **fields):
    rng = np.random.default_rng(seed)
    batch = transitions(seed, actions={"action": rng.integers(0, A, (1, N)).astype("int32")}, **fields)
    batch.observations["allowed"] = np.ones((2, N, A), "int8") if allowed is None else allowed
    return batch


def predicted(copy, batch, row):
    rows = {name: rows[row] for name, rows in batch.observations.items()}
    return copy.predict(rows, ["constrained_q/values", "constrained_q/imitation"])


def constrained(values, logits, threshold):
    """The best choice of one state among those that are likely enough."""
    weights = [math.exp(float(logit)) for logit in logits]
    likely = [weight / max(weights) > threshold for weight in weights]
    return max((a for a in range(A) if likely[a]), key=lambda a: values[a]), likely


@pytest.mark.parametrize("double", [True, False])
def test_the_loss_is_that_of_a_slow_twin(double):
    algorithm, networks = make(double=double)
    main, batch = networks["main"], recorded()
    values, logits = predicted(main.online, batch, 0)
    choosing = predicted(main.online if double else main.target, batch, 1)
    slow, _ = predicted(main.target, batch, 1)
    losses, imitation, penalties, differs = [], [], [], False
    for i in range(N):
        best, likely = constrained(choosing[0][i], choosing[1][i], 0.5)
        differs |= not all(likely) and best != np.argmax(choosing[0][i])
        y = SCALE * batch.rewards[0, i]
        if not batch.terminated[0, i]:
            y += GAMMA ** batch.bootstrap_steps[0, i] * slow[i, best]
        made, weight = batch.actions["action"][0, i], batch.importance_weights[i]
        losses.append(weight * (y - values[i, made]) ** 2)
        total = sum(math.exp(float(logit)) for logit in logits[i])
        imitation.append(weight * (math.log(total) - float(logits[i, made])))
        penalties.append(weight * PENALTY * np.mean(logits[i] ** 2))
    assert differs
    expected = {"td_loss": np.mean(losses), "imitation_loss": np.mean(imitation), "logit_loss": np.mean(penalties)}
    expected["loss"] = sum(expected.values())
    told = algorithm.update(networks, batch).metrics
    assert {name: told[name] for name in expected} == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("threshold", [0.0, 0.5, 0.99])
def test_exported_policies_take_the_best_of_the_likely_choices(threshold, tmp_path):
    """With 0 it is the best of all, near 1 the likeliest; the graph holds the constraint."""
    _, networks = make(threshold)
    online, batch = networks["main"].online, recorded()
    policy = Policy(export_bundle(online, cache_dir=tmp_path))
    policy.set_weights(Weights(1, online.policy_weights()))
    rows = {name: rows[0] for name, rows in batch.observations.items()}
    greedy = ActionSelector(online.actions).mode(policy.step(rows, {}).outputs)["action"]
    values, logits = predicted(online, batch, 0)
    assert greedy.tolist() == [constrained(values[i], logits[i], threshold)[0] for i in range(N)]
    extreme = {0.0: values, 0.99: logits}.get(threshold)
    if extreme is not None:
        assert greedy.tolist() == extreme.argmax(axis=1).tolist()


def test_a_forbidden_choice_is_neither_taken_nor_likely():
    allowed = np.ones((2, N, A), "int8")
    allowed[:, :, 2] = 0
    algorithm, networks = make(0.0, mask="allowed")
    batch = recorded(allowed=allowed)
    batch = batch._replace(actions={"action": np.minimum(batch.actions["action"], 1)})
    q, logits = (
        networks["main"].online.predict(
            {name: rows[0] for name, rows in batch.observations.items()}, [f"constrained_q/{part}"]
        )
        for part in ("q", "imitation")
    )
    assert (q[:, 2] < -1e8).all()
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    assert not shares[:, 2].any()
    told = algorithm.update(networks, batch).metrics
    assert told["finite"]
    assert told["logit_loss"] < PENALTY * 100.0  # the lowered logits are not in it


def test_the_value_of_a_choice_that_was_never_recorded_is_not_believed(tmp_path):
    """The only recorded choice has the reward 0. The value of another one begins high, and is never corrected."""
    algorithm, networks = make(0.3)
    online = networks["main"].online
    for weight in online.model.weights:
        if weight.path.endswith("constrained_q_head/bias"):
            weight.assign(np.array([0.0, 50.0, 0.0, 0.0], "float32"))
        elif "/constrained_q_head" in weight.path:
            weight.assign(np.zeros(weight.shape, "float32"))
    batch = recorded(terminated=np.ones((1, N), bool), rewards=np.zeros((1, N), "float32"))
    batch = batch._replace(actions={"action": np.zeros((1, N), "int32")})
    for _ in range(200):
        algorithm.update(networks, batch)
    policy = Policy(export_bundle(online, cache_dir=tmp_path))
    policy.set_weights(Weights(1, online.policy_weights()))
    outputs = policy.step({name: rows[0] for name, rows in batch.observations.items()}, {}).outputs
    assert (outputs["constrained_q/values"].argmax(axis=1) == 1).all()
    assert (ActionSelector(online.actions).mode(outputs)["action"] == 0).all()


def test_a_restored_training_goes_on_bit_by_bit():
    arm.assert_goes_on_bit_by_bit(*make(), recorded)


def test_a_threshold_of_1_would_forbid_every_choice():
    with pytest.raises(ValueError, match=r"threshold"):
        RunConfig.model_validate({"network": {"heads_parameters": [{"kind": "constrained_q", "threshold": 1.0}]}})
