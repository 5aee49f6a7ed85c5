"""Discrete SAC against a slow twin in NumPy, what each of its losses moves, and masks. Runs on TensorFlow and JAX."""

import numpy as np
import pytest

from distrl.algorithms import make_algorithm
from distrl.config import RunConfig
from distrl.config.action_masks import unused_mask_note
from distrl.errors import ConfigError
from distrl.types import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec
from tests.algorithms import arm
from tests.traces import traces

N, A, GAMMA, ALPHA = arm.N, 3, arm.GAMMA, 0.3
OBSERVATIONS = arm.OBSERVATIONS | {"allowed": ArraySpec((A,), "int8")}
SPEC = EnvSpec("Toy-v0", OBSERVATIONS, {"action": DiscreteSpec(A)})
NETWORK = {"input_embedders_parameters": {"observation": {"normalize": True}, "allowed": None}}
MASKED = NETWORK | {"heads_parameters": [{"kind": "policy", "action_mask": "allowed"}]}


def make(network=NETWORK, **algorithm):
    """An algorithm and its networks, with a policy that is not nearly uniform, and other target critics."""
    algorithm, networks = arm.make("discrete_sac", network, SPEC, initial_temperature=ALPHA, **algorithm)
    rng = np.random.default_rng(5)
    for copy in (networks["main"].online, networks["critic"].target):
        for variable in copy.model.trainable_variables:
            variable.assign(np.array(variable) + rng.normal(0.0, 0.4, variable.shape).astype("float32"))
    return algorithm, networks


def transitions(seed=0, **fields):
    rng = np.random.default_rng(seed)
    given = {"actions": {"action": rng.integers(0, A, (1, N)).astype("int32")}}
    batch = arm.transitions(seed, **(given | fields))
    batch.observations["allowed"] = np.ones((2, N, A), "int8")
    return batch


def predicted(copy, batch, row, names):
    return [copy.predict({key: rows[row] for key, rows in batch.observations.items()}, [name]) for name in names]


def soft_values(networks, critics, batch, row):
    """Soft value of every state, one choice after the other, and the policy's entropies; forbidden choices count 0."""
    (logits,) = predicted(networks["main"].online, batch, row, ["policy/action"])
    first, second = predicted(critics, batch, row, ["q_0/q", "q_1/q"])
    values, entropies = [], []
    for i in range(N):
        allowed = [a for a in range(A) if batch.observations["allowed"][row, i, a]]
        weights = {a: np.exp(float(logits[i, a])) for a in allowed}
        value = entropy = 0.0
        for a in allowed:
            p = weights[a] / sum(weights.values())
            value += p * (min(first[i, a], second[i, a]) - ALPHA * np.log(p))
            entropy -= p * np.log(p)
        values.append(value)
        entropies.append(entropy)
    return np.array(values), np.array(entropies)


def twin(networks, batch, share=0.98):
    """Every loss row by row."""
    critic = networks["critic"]
    worth, entropies = soft_values(networks, critic.online, batch, 0)
    following, _ = soft_values(networks, critic.target, batch, 1)
    y = arm.targets(batch, following)
    weights, choices = batch.importance_weights, batch.actions["action"][0]
    taken = [q[np.arange(N), choices] for q in predicted(critic.online, batch, 0, ["q_0/q", "q_1/q"])]
    targets = share * np.log(batch.observations["allowed"][0].sum(axis=-1))
    rows = {
        "policy": -weights * worth,
        "critic": weights * 0.5 * ((y - taken[0]) ** 2 + (y - taken[1]) ** 2),
        "temperature": weights * ALPHA * (entropies - targets),
        "priorities": 0.5 * (np.abs(y - taken[0]) + np.abs(y - taken[1])),
    }
    return rows, entropies.mean(), arm.of_critics(y, taken)


@pytest.mark.parametrize("network", [NETWORK, MASKED], ids=["all choices", "a mask"])
def test_every_loss_is_that_of_a_slow_twin(network):
    """Bootstraps after truncation and not after termination, over one and two steps, with importance weights."""
    algorithm, networks = make(network, target_update_rate=1e-8)  # which leaves the target critics as they are
    batch = transitions()
    if network is MASKED:
        batch.observations["allowed"][:, ::2, 2] = 0
        batch = batch._replace(actions={"action": batch.actions["action"] % 2})
    rows, entropy, critics = twin(networks, batch)
    update = algorithm.update(networks, batch)
    arm.assert_soft_update(update, rows, entropy, critics, ALPHA)


def test_each_loss_moves_its_own_variables_alone():
    algorithm, _ = make()
    batch = transitions(importance_weights=np.ones(N, "float32"))
    told, of_temperature = arm.assert_each_loss_moves_its_own_variables_alone(algorithm, batch)
    # d/d log alpha of mean(alpha (H - target))
    assert of_temperature == pytest.approx(ALPHA * (float(told["entropy"]) - 0.98 * np.log(A)), rel=1e-4)


def test_a_forbidden_choice_gets_no_gradient():
    algorithm, networks = make(MASKED)
    batch = transitions(actions={"action": np.zeros((1, N), "int32")})
    batch.observations["allowed"][..., 1:] = [1, 0]
    before = networks["main"].online.named_weights()
    told = algorithm.update(networks, batch).metrics
    assert told["finite"]
    assert told["entropy"] <= np.log(2.0) + 1e-6
    after = networks["main"].online.named_weights()
    moved = after["main/policy_head_action/kernel"] != before["main/policy_head_action/kernel"]
    assert moved[:, :2].all()
    assert not moved[:, 2].any()


def test_the_temperature_grows_while_the_entropy_is_below_its_target():
    for target, grows in ((1.09, True), (0.0, False)):
        algorithm, networks = make(target_entropy=target, temperature_learning_rate=0.1)
        for seed in range(3):
            told = algorithm.update(networks, transitions(seed)).metrics
        assert (told["temperature"] > ALPHA) == grows
        assert traces(algorithm._step) == 1


def test_the_temperature_follows_adam_by_alpha_times_the_entropys_excess():
    """By the logarithm of alpha; a loss of log alpha (H - target) would be off by 4e-3 of it here."""
    algorithm, networks = make()
    told = [
        algorithm.update(networks, transitions(seed, importance_weights=np.ones(N, "float32"))).metrics
        for seed in range(20)
    ]
    log_alpha, first, second, expected = np.log(ALPHA), 0.0, 0.0, []
    for count, metrics in enumerate(told, 1):
        expected.append(np.exp(log_alpha))
        gradient = np.exp(log_alpha) * (metrics["entropy"] - 0.98 * np.log(A))
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        rate = 0.01 * np.sqrt(1.0 - 0.999**count) / (1.0 - 0.9**count)
        log_alpha -= rate * first / (np.sqrt(second) + 1e-8)
    np.testing.assert_allclose([metrics["temperature"] for metrics in told], expected, rtol=1e-5)


def test_a_restored_training_goes_on_bit_by_bit():
    arm.assert_goes_on_bit_by_bit(*make(), transitions)


def test_actors_draw_from_the_policy_and_critics_are_two_networks():
    _, networks = make(critic_layers=[5])
    assert networks["main"].online.actions["action"].kind == "categorical"
    assert all(name.startswith("main/") for name in networks["main"].online.policy_weights())
    shapes = [tuple(weight.shape) for weight in networks["critic"].online.model.trainable_variables]
    assert shapes.count((3, 5)) == shapes.count((5, A)) == 2  # and nothing of the action among the inputs


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (
            {"action": BoxSpec((1,), (-1.0,), (1.0,))},
            "box, and its policy is of one discrete action; use algorithm sac",
        ),
        (
            {"left": DiscreteSpec(2), "right": DiscreteSpec(2)},
            "discrete, discrete, and its policy is of one discrete action; use algorithm impala",
        ),
    ],
)
def test_other_actions_than_one_choice_are_refused(actions, message):
    with pytest.raises(ConfigError) as refused:
        make_algorithm(arm.config("discrete_sac", NETWORK)).build(EnvSpec("Arm-v0", OBSERVATIONS, actions))
    assert str(refused.value) == f"algorithm discrete_sac: Arm-v0 has the actions {message}"


def test_an_entropy_that_no_policy_has_is_refused():
    section = RunConfig.model_validate({"algorithm": {"name": "discrete_sac", "target_entropy": 1.2}}).algorithm
    with pytest.raises(ConfigError) as refused:
        section.check_actions(SPEC)
    assert str(refused.value) == (
        "algorithm.target_entropy: 1.2 nats cannot be reached by 3 choices, whose largest entropy is 1.099; "
        "set a lower one"
    )


def test_a_mask_that_it_does_not_use_is_reported():
    spec = EnvSpec("M", {"action_mask": ArraySpec((2,), "int8")}, {"action": DiscreteSpec(2)})
    note = unused_mask_note(RunConfig.model_validate({"algorithm": {"name": "discrete_sac"}}), spec)
    assert note is not None
    assert note.endswith("set network.heads_parameters=[{kind: policy, action_mask: action_mask}]")
