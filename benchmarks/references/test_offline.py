"""Imitation and offline learning beside d3rlpy's: whole updates, from equal weights, batches and noise."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import d3rlpy
import keras
import numpy as np
import pytest
import torch
from d3rlpy.models.torch import ActionOutput, build_gaussian_distribution
from d3rlpy.torch_utility import TorchMiniBatch

from benchmarks.references import tasks
from benchmarks.references.figures import agree
from benchmarks.references.stable_baselines import LIKE_KERAS, TOGETHER, Adam, move_together
from benchmarks.references.weights import Pair, Twins, dense
from distrl.algorithms.algorithm import Algorithm, Networks
from distrl.types import Batch

UPDATES, TAU, SAMPLES = 30, 0.05, 4
ENCODER = d3rlpy.models.VectorEncoderFactory(hidden_units=[tasks.HIDDEN])
HALF = "½ of critics' loss"


@dataclass
class Sides:
    """An algorithm of both libraries; `implementation` is d3rlpy's, `twins` are the weights by what they are of."""

    algorithm: Algorithm
    networks: Networks
    implementation: Any
    twins: dict[str, Twins]
    metrics: dict[str, list[float]] = field(default_factory=dict)
    logged: dict[str, list[float]] = field(default_factory=dict)

    def train(self, spec: Any) -> None:
        """Let both make `UPDATES` updates on the same batches."""
        for count, seed in enumerate(range(UPDATES), 1):
            batch = tasks.transitions(seed, spec)
            for name, value in self.algorithm.update(self.networks, batch).metrics.items():
                self.metrics.setdefault(name, []).append(float(value))
            for name, value in self.implementation.inner_update(mini_batch(batch), count).items():
                self.logged.setdefault(name, []).append(float(value))

    def agree(self, group: str, losses: dict[str, tuple[Any, Any]], *, allowed: float, note: str) -> None:
        """Compare losses, each (distrl's, d3rlpy's), and all weights."""
        reference = f"d3rlpy {type(self.implementation).__name__}.inner_update()"
        for name, (found, expected) in losses.items():
            what = f"{name} of {UPDATES} updates"
            agree(group, what, reference, found, expected, allowed=allowed * np.abs(expected).max(), note=note)
        for name, twins in self.twins.items():
            twins.agree(
                group, f"every weight of the {name} after {UPDATES} updates", reference, allowed=5e-6, note=note
            )


def mini_batch(batch: Batch) -> TorchMiniBatch:
    """Return transitions, T = 1, as d3rlpy has them."""
    before, after = (torch.from_numpy(rows) for rows in batch.observations["observation"])
    actions = torch.from_numpy(batch.actions["action"][0].reshape(len(before), -1))

    def column(rows: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(rows[0].astype(np.float32)[:, None])

    rewards, ends = column(batch.rewards), column(batch.terminated)
    ones = torch.ones_like(rewards)
    return TorchMiniBatch(before, actions, rewards, after, actions, ones, ends, ones, "cpu")


def made(configuration: Any, action_size: int) -> Any:
    """Return the implementation of a configuration of d3rlpy."""
    learnable = configuration.create()
    learnable.create_impl((tasks.INPUTS,), action_size)
    return learnable.impl


def encoded(path: str, module: Any, rows: Sequence[int] | None = None) -> Iterator[Pair]:
    """Return the pairs of the one hidden layer."""
    yield from dense(
        path, module.encoder._layers[0] if hasattr(module, "encoder") else module._encoder._layers[0], rows=rows
    )


def critic_pairs(q_funcs: Any) -> Iterator[Pair]:
    """Return the pairs of both critics."""
    for index, critic in enumerate(q_funcs):
        yield from encoded(f"q_value_{index}_middleware_dense_0", critic, tasks.CRITIC_ROWS)
        yield from dense(f"q_value_{index}_head", critic._fc)


def set_optimizer(wrapper: Any, parameters: Any) -> Any:
    """Give a wrapper distrl's Adam, and return that."""
    wrapper._optim = Adam(list(parameters), tasks.RATE, epsilon=tasks.EPSILON)
    return wrapper._optim


def settle(implementation: Any, beside: Sequence[Any] = (), due: Callable[[], bool] = lambda: True) -> None:
    """Set an actor-critic to distrl's conventions: Adam, the order of steps, and the ½ of the critics' loss.

    Args:
        beside: Modules that learn by the critics' optimizer, without the ½.
        due: Whether the policy moves in this update.
    """
    modules = implementation._modules
    for parameter in modules.q_funcs.parameters():
        parameter.register_hook(lambda gradient: 0.5 * gradient)
    learned = torch.nn.ModuleList([modules.q_funcs, *beside])
    critic = set_optimizer(modules.critic_optim, learned.parameters())
    move_together(learned, critic, set_optimizer(modules.actor_optim, modules.policy.parameters()), due)


def set_gaussian(policy: Any, *, bounded: bool = False) -> None:
    """Let the log deviation have no bounds, and the mean no tanh unless it is `bounded`: distrl's Gaussians."""

    def forward(rows: torch.Tensor, *_: Any) -> ActionOutput:
        mean = policy._mu(policy._encoder(rows))
        return ActionOutput(mean, torch.tanh(mean) if bounded else mean, policy._logstd.expand_as(mean))

    policy.forward = forward


def gaussian_pairs(policy: Any) -> Iterator[Pair]:
    """Return the pairs of a Gaussian whose deviation is of no state."""
    yield from encoded("middleware_dense_0", policy)
    yield from dense("policy_head_action", policy._mu)
    yield Pair("policy_head_action_log_sigma/numbers", policy._logstd.data[0])


def synced(sides: Sides) -> Sides:
    """Let d3rlpy's target networks begin as distrl's."""
    modules = sides.implementation._modules
    modules.targ_q_funcs.load_state_dict(modules.q_funcs.state_dict())
    if hasattr(modules, "targ_policy"):
        modules.targ_policy.load_state_dict(modules.policy.state_dict())
    return sides


def continuous(name: str, configuration: Any, policy_pairs: Any, **sections: Any) -> Sides:
    """Make both sides of an actor-critic with equal weights."""
    algorithm, networks = tasks.make(name, tasks.BOX, activation="relu", target_update_rate=TAU, **sections)
    implementation = made(configuration, tasks.NUMBERS)
    modules = implementation._modules
    twins = {
        "policy": Twins(networks["main"].online, list(policy_pairs(modules.policy))),
        "critics": Twins(networks["critic"].online, list(critic_pairs(modules.q_funcs))),
    }
    return synced(Sides(algorithm, networks, implementation, twins))


def common(**settings: Any) -> dict[str, Any]:
    """Return settings of an actor-critic's configuration."""
    given = {"gamma": tasks.GAMMA, "tau": TAU, "actor_encoder_factory": ENCODER, "critic_encoder_factory": ENCODER}
    return given | settings


def set_noise(monkeypatch: Any, normal: Iterator[np.ndarray], uniform: Iterator[np.ndarray] | None = None) -> None:
    """Let the normal and uniform variables that d3rlpy draws be these."""

    def standard_normal(shape: Any, dtype: Any = None, device: Any = None) -> torch.Tensor:
        return torch.from_numpy(next(normal).reshape(tuple(shape)))

    monkeypatch.setattr("torch.distributions.normal._standard_normal", standard_normal)
    monkeypatch.setattr(torch, "randn", lambda shape, **_: standard_normal(shape))
    if uniform is not None:
        monkeypatch.setattr(torch.Tensor, "uniform_", lambda self, *_: self.copy_(torch.from_numpy(next(uniform))))


def deterministic_pairs(policy: Any) -> Iterator[Pair]:
    """Return the pairs of a deterministic policy."""
    yield from encoded("middleware_dense_0", policy)
    yield from dense("deterministic_policy_head", policy._fc)


def test_td3_bc(monkeypatch):
    """The policy and the targets move with every second update."""
    configuration = d3rlpy.algos.TD3PlusBCConfig(**common(alpha=1.5))
    sides = continuous("td3_bc", configuration, deterministic_pairs, value_weight=1.5)
    counted = iter(range(1, UPDATES + 1))
    settle(sides.implementation, due=lambda: next(counted) % 2 == 0)
    set_noise(monkeypatch, tasks.noise())
    sides.train(tasks.BOX)
    ours, theirs = sides.metrics, sides.logged
    losses = {
        "critics' loss": (ours["critic_loss"], 0.5 * np.array(theirs["critic_loss"])),
        "policy's loss where it moves": (ours["policy_loss"][1::2], np.array(theirs["actor_loss"])),
    }
    sides.agree("TD3+BC", losses, allowed=1e-5, note=f"{LIKE_KERAS}; {TOGETHER}; {HALF}")


def test_iql():
    configuration = d3rlpy.algos.IQLConfig(
        **common(value_encoder_factory=ENCODER, expectile=0.8, weight_temp=4.0, max_weight=5.0)
    )
    sides = continuous("iql", configuration, gaussian_pairs, expectile=0.8, beta=4.0, max_weight=5.0)
    modules = sides.implementation._modules
    pairs = [*encoded("middleware_dense_0", modules.value_func), *dense("value_head", modules.value_func._fc)]
    sides.twins["value"] = Twins(sides.networks["value"].online, pairs)
    set_gaussian(modules.policy, bounded=True)
    settle(sides.implementation, beside=[modules.value_func])
    sides.train(tasks.BOX)
    ours, theirs = sides.metrics, sides.logged
    losses = {
        "critics' loss": (ours["critic_loss"], 0.5 * np.array(theirs["q_loss"])),
        "value's loss": (ours["value_loss"], np.array(theirs["v_loss"])),
        "policy's loss": (ours["policy_loss"], np.array(theirs["actor_loss"])),
    }
    sides.agree("IQL", losses, allowed=1e-5, note=f"{LIKE_KERAS}; {TOGETHER}; {HALF}; log deviation itself a weight")


def noises_of_awac() -> Iterator[np.ndarray]:
    """Return distrl's normal variables in d3rlpy's order: next actions first."""
    drawn = tasks.noise()
    while True:
        of_policy, following = next(drawn), next(drawn)
        yield following
        yield of_policy


def test_awac(monkeypatch):
    sides = continuous("awac", d3rlpy.algos.AWACConfig(**common(lam=0.5)), gaussian_pairs, beta=2.0)
    implementation = sides.implementation
    modules = implementation._modules
    set_gaussian(modules.policy)

    def compute_target(batch: TorchMiniBatch) -> torch.Tensor:
        with torch.no_grad():
            actions = build_gaussian_distribution(modules.policy(batch.next_observations)).sample()
            return implementation._targ_q_func_forwarder.compute_target(batch.next_observations, actions, "min")

    implementation.compute_target = compute_target
    settle(implementation)
    for parameter in modules.policy.parameters():
        parameter.register_hook(lambda gradient: gradient / tasks.ROWS)
    set_noise(monkeypatch, noises_of_awac())
    sides.train(tasks.BOX)
    ours, theirs = sides.metrics, sides.logged
    losses = {
        "critics' loss": (ours["critic_loss"], 0.5 * np.array(theirs["critic_loss"])),
        "policy's loss": (ours["policy_loss"], np.array(theirs["actor_loss"]) / tasks.ROWS),
    }
    note = f"{LIKE_KERAS}; {TOGETHER}; {HALF}; plain Gaussian; target of the policy that acts; mean over the batch"
    sides.agree("AWAC", losses, allowed=1e-5, note=note)


def noises_of_cql() -> tuple[Iterator[np.ndarray], Iterator[np.ndarray]]:
    """Return distrl's variables in d3rlpy's order: normal and uniform ones."""
    seeds, normal, uniform = keras.random.SeedGenerator(tasks.SEED), [], []
    for _ in range(UPDATES):
        rows = (tasks.ROWS, tasks.NUMBERS)
        many = (SAMPLES * tasks.ROWS, tasks.NUMBERS)
        of_policy, following = (np.array(keras.random.normal(rows, seed=seeds)) for _ in range(2))
        even = np.array(keras.random.uniform(many, -1.0, 1.0, seed=seeds))
        before, after = (np.array(keras.random.normal(many, seed=seeds)) for _ in range(2))
        normal += [following, before, after, of_policy]
        # [samples, rows, n] -> [rows, samples, n]
        uniform.append(even.reshape(SAMPLES, *rows).swapaxes(0, 1).reshape(many).copy())
    return iter(normal), iter(uniform)


def squashed_pairs(policy: Any) -> Iterator[Pair]:
    """Return the pairs of a squashed Gaussian."""
    yield from encoded("middleware_dense_0", policy)
    yield from dense("policy_head_action", policy._mu)
    yield from dense("policy_head_action_log_sigma", policy._logstd)


def test_cql(monkeypatch):
    """The temperature stays, as d3rlpy moves it before the policy's loss; the weight of d3rlpy is twice distrl's."""
    configuration = d3rlpy.algos.CQLConfig(
        **common(
            conservative_weight=3.0,
            n_action_samples=SAMPLES,
            soft_q_backup=True,
            initial_alpha=1.0,
            alpha_learning_rate=0.0,
            initial_temperature=0.3,
            temp_learning_rate=0.0,
            alpha_threshold=0.0,
        )
    )
    settings = {"sampled_actions": SAMPLES, "soft_targets": True, "conservative_weight": 1.5}
    fixed = {"initial_temperature": 0.3, "temperature_learning_rate": 0.0}
    sides = continuous("cql", configuration, squashed_pairs, **settings, **fixed)
    settle(sides.implementation)
    set_noise(monkeypatch, *noises_of_cql())
    sides.train(tasks.BOX)
    ours, theirs = sides.metrics, sides.logged
    losses = {
        "critics' loss": (ours["critic_loss"], 0.5 * np.array(theirs["critic_loss"])),
        "conservative loss": (
            1.5 * 2.0 * np.array(ours["conservative_gap"]),
            0.5 * np.array(theirs["conservative_loss"]),
        ),
        "policy's loss": (ours["policy_loss"], np.array(theirs["actor_loss"])),
    }
    sides.agree("CQL", losses, allowed=2e-5, note=f"{LIKE_KERAS}; {TOGETHER}; {HALF}")


def discrete(
    name: str, configuration: Any, pairs: Any, network: dict[str, Any] | None = None, **sections: Any
) -> Sides:
    """Make both sides of an algorithm of choices with equal weights, and Huber's loss."""
    algorithm, networks = tasks.make(
        name, tasks.DISCRETE, {"replace_mse_with_huber_loss": True} | (network or {}), activation="relu", **sections
    )
    implementation = made(configuration, tasks.CHOICES)
    modules = implementation._modules
    twins = {"network": Twins(networks["main"].online, list(pairs(modules)))}
    learned = {id(pair.theirs): pair.theirs for pair in twins["network"].pairs}
    set_optimizer(modules.optim, learned.values())
    sides = Sides(algorithm, networks, implementation, twins)
    return synced(sides) if hasattr(modules, "targ_q_funcs") else sides


@pytest.mark.parametrize("name", ["discrete_cql", "discrete_bcq"])
def test_values_of_choices(name):
    """The target is copied after every tenth update."""
    every = {"gamma": tasks.GAMMA, "target_update_interval": 10, "encoder_factory": ENCODER}
    ours = {"target_update_every_updates": 10}
    if name == "discrete_cql":

        def pairs(modules: Any) -> Iterator[Pair]:
            yield from encoded("middleware_dense_0", modules.q_funcs[0])
            yield from dense("q_head", modules.q_funcs[0]._fc)

        configuration = d3rlpy.algos.DiscreteCQLConfig(**every, alpha=0.7)
        sides = discrete(name, configuration, pairs, conservative_weight=0.7, **ours)
        further, weight, group = ("conservative_loss", "conservative_loss"), 0.7, "Discrete CQL"
        note = LIKE_KERAS
    else:

        def pairs(modules: Any) -> Iterator[Pair]:
            yield from encoded("middleware_dense_0", modules.q_funcs[0])
            yield from dense("constrained_q_head", modules.q_funcs[0]._fc)
            yield from dense("constrained_q_head_imitation", modules.imitator._fc)

        configuration = d3rlpy.algos.DiscreteBCQConfig(**every, action_flexibility=0.99, beta=0.0)
        head = {"heads_parameters": [{"kind": "constrained_q", "threshold": 0.99}]}
        sides = discrete(name, configuration, pairs, head, logit_penalty=0.0, **ours)
        further, weight, group = ("imitation_loss", "imitator_loss"), 1.0, "Discrete BCQ"
        note = f"{LIKE_KERAS}; penalty of logits"
    sides.train(tasks.DISCRETE)
    if name == "discrete_bcq":  # the constraint is in force
        rows = tasks.transitions(0, tasks.DISCRETE).observations["observation"][1]
        online = sides.networks["main"].online
        q, values = online.predict({"observation": rows}, ["constrained_q/q", "constrained_q/values"])
        assert (q.argmax(axis=1) != values.argmax(axis=1)).any()
    losses = {
        "loss (Huber)": (sides.metrics["td_loss"], np.array(sides.logged["td_loss"])),
        further[0].replace("_", " "): (sides.metrics[further[0]], weight * np.array(sides.logged[further[1]])),
    }
    sides.agree(group, losses, allowed=1e-5, note=note)


def test_cloning_of_choices():
    def pairs(modules: Any) -> Iterator[Pair]:
        yield from encoded("middleware_dense_0", modules.imitator)
        yield from dense("policy_head_action", modules.imitator._fc)

    sides = discrete("bc", d3rlpy.algos.DiscreteBCConfig(encoder_factory=ENCODER, beta=0.0), pairs)
    sides.train(tasks.DISCRETE)
    losses = {"loss": (sides.metrics["policy_loss"], np.array(sides.logged["loss"]))}
    sides.agree("BC", losses, allowed=1e-5, note=f"{LIKE_KERAS}; penalty of logits")
