"""TQC against a slow NumPy twin. Runs on TensorFlow and JAX."""

import keras
import numpy as np
import pytest

from distrl.errors import ConfigError
from distrl.types import DiscreteSpec, EnvSpec
from tests.algorithms import arm
from tests.traces import traces

N, CRITICS, QUANTILES, DROPPED, ALPHA = arm.N, 3, 4, 1, 0.3
SMALL = {"critics": CRITICS, "quantiles": QUANTILES, "dropped_quantiles": DROPPED, "initial_temperature": ALPHA}


fresh = arm.fresh_build("tqc", **SMALL)


def quantiles(copy, observation, actions):
    """Return those of every critic: [critics, N, quantiles]."""
    return np.stack(copy.predict({"observation": observation, "action": actions.astype("float32")}))


def quantile_loss(thetas, samples):
    """The paper's loss of one critic and one row: a mean over its quantiles and all samples."""
    total = 0.0
    for m, theta in enumerate(thetas):
        tau = (2 * m + 1) / (2 * len(thetas))
        for sample in samples:
            u = sample - theta
            huber = 0.5 * u * u if abs(u) <= 1.0 else abs(u) - 0.5
            total += abs(tau - (1.0 if u < 0.0 else 0.0)) * huber
    return total / (len(thetas) * len(samples))


def twin(networks, batch, noises):
    main, critic = networks["main"], networks["critic"]
    before, after = batch.observations["observation"]
    actions, log_p = arm.drawn(main, before, noises[0])
    next_actions, next_log_p = arm.drawn(main, after, noises[1])
    at_drawn = quantiles(critic.online, before, actions)
    at_taken = quantiles(critic.online, before, arm.scaled(batch.actions["action"][0]))
    at_next = quantiles(critic.target, after, next_actions)
    kept = (QUANTILES - DROPPED) * CRITICS
    following = [np.sort(at_next[:, i].ravel())[:kept] - ALPHA * next_log_p[i] for i in range(N)]
    y = arm.targets(batch, following)
    rows = {"policy": [], "critic": [], "temperature": [], "priorities": []}
    for i, weight in enumerate(batch.importance_weights):
        rows["critic"].append(weight * sum(quantile_loss(of_critic[i], y[i]) for of_critic in at_taken))
        rows["policy"].append(weight * (ALPHA * log_p[i] - at_drawn[:, i].mean()))
        rows["temperature"].append(-weight * ALPHA * (log_p[i] - 2.0))
        rows["priorities"].append(np.mean([abs(y[i].mean() - of_critic[i].mean()) for of_critic in at_taken]))
    return {name: np.array(of_rows) for name, of_rows in rows.items()}, -log_p.mean(), arm.of_critics(y, at_taken)


def test_every_loss_is_that_of_a_slow_twin(fresh):
    algorithm, networks = fresh
    critic, batch, seeds = networks["critic"], arm.transitions(), keras.random.SeedGenerator(3)
    for copy in (critic.online, critic.target):  # errors on both sides of Huber's 1
        copy.set_weights([3.0 * weight for weight in copy.get_weights()])
    critic.target.set_weights([weight + 0.1 for weight in critic.target.get_weights()])
    noises = [np.asarray(keras.random.normal((N, 2), seed=seeds)) for _ in range(2)]
    slow = critic.target.get_weights()
    critic.update_target_network(0.005)
    rows, entropy, critics = twin(networks, batch, noises)
    critic.target.set_weights(slow)
    update = algorithm.update(networks, batch)
    arm.assert_soft_update(update, rows, entropy, critics, ALPHA)
    assert traces(algorithm._step) == 1


def test_a_restored_training_goes_on_bit_by_bit(fresh):
    arm.assert_goes_on_bit_by_bit(*fresh)


def test_critics_start_apart_and_each_has_its_quantiles(fresh):
    critic = fresh[1]["critic"]
    assert critic.online.outputs == {f"quantile_q_value_{index}": (QUANTILES,) for index in range(CRITICS)}
    kernels = [weight for weight in arm.trained(critic.online) if weight.shape == (8, QUANTILES)]
    assert len(kernels) == CRITICS
    assert all((kernels[0] != other).any() for other in kernels[1:])


def test_actors_get_the_policy_alone(fresh):
    main = fresh[1]["main"].online
    assert all(name.startswith("main/") for name in main.policy_weights())
    assert main.actions["action"].kind == "squashed_gaussian"


def test_defaults_are_the_papers():
    parameters = arm.config("tqc").algorithm
    assert (parameters.critics, parameters.quantiles, parameters.dropped_quantiles) == (5, 25, 2)
    assert (parameters.target_update_rate, parameters.batch_size, parameters.target_entropy) == (0.005, 256, None)


def test_what_cannot_work_is_refused():
    with pytest.raises(ValueError, match="dropped_quantiles: 4 of 4 quantiles leaves none; use fewer"):
        arm.config("tqc", quantiles=4, dropped_quantiles=4)
    with pytest.raises(ValueError, match=r"replace_mse_with_huber_loss: the quantile loss of tqc is Huber's in any"):
        arm.config("tqc", {"replace_mse_with_huber_loss": True})
    with pytest.raises(ConfigError, match="algorithm tqc: action 'action' of C is discrete, which it does not take"):
        arm.make("tqc", spec=EnvSpec("C", arm.OBSERVATIONS, {"action": DiscreteSpec(2)}))
    beta = {"heads_parameters": [{"kind": "policy", "distribution": "beta"}]}
    with pytest.raises(ConfigError, match="algorithm tqc needs squashed_gaussian, not beta; leave it out"):
        arm.make("tqc", beta)
