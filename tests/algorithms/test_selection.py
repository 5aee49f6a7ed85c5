"""Algorithms of the user's own, and the one in examples/, whose loss has a twin in NumPy here."""

import sys
import types
from pathlib import Path

import keras
import numpy as np
import pytest
from pydantic import Field, SecretStr, field_validator

from distrl.algorithms import built, make_algorithm
from distrl.algorithms.a3c import ActorCritic
from distrl.algorithms.algorithm import Algorithm, GradientAlgorithm
from distrl.algorithms.impala import Impala
from distrl.algorithms.selection import effective_section, external_class, tried_out
from distrl.config import RunConfig
from distrl.config.algorithms import AlgorithmSection, Declared, ImpalaParameters
from distrl.config.exploration import EpsilonGreedyParameters, GreedyParameters, PolicySamplingParameters
from distrl.config.heads import PolicyHeadParameters
from distrl.config.load import load
from distrl.config.replay import ReplayParameters
from distrl.errors import ConfigError
from distrl.networks.actions.categorical import CategoricalSpec
from distrl.networks.actions.joint import JointDistribution
from distrl.types import Batch, EnvSpec

EXAMPLE = "examples.custom_algorithm:MaximumEntropy"


class Mine(ActorCritic):
    """A gradient-shipping algorithm by a few lines."""

    class Parameters(AlgorithmSection):
        ships = "gradients"
        batch_size = 3
        depth: int = Field(2, ge=1)


class Wrong(Mine):
    Parameters = dict


class Taken(Mine):
    class Parameters(AlgorithmSection):
        declared: int = 3


class Headless(GradientAlgorithm):
    def loss(self, outputs, batch):
        raise NotImplementedError


class OwnReplay(ReplayParameters):
    """With another default."""

    n_step: int = 3


class Replaying(Headless):
    heads = (PolicyHeadParameters(),)

    class Parameters(AlgorithmSection):
        learns_from = "anybody"
        exploration = EpsilonGreedyParameters()
        replay: OwnReplay = OwnReplay()


class Renamed(Headless):
    """A replay memory under another name."""

    heads = (PolicyHeadParameters(),)

    class Parameters(AlgorithmSection):
        past: ReplayParameters = ReplayParameters(capacity_steps=70_000)

        @property
        def replay_parameters(self):
            return self.past


def declaring(**attributes):
    """A class that declares this of itself."""
    return type("Declaring", (Mine,), {"Parameters": type("Parameters", (AlgorithmSection,), attributes)})


class Raising(Mine):
    class Parameters(AlgorithmSection):
        depth: int = Field(2, validate_default=True)

        @field_validator("depth")
        @classmethod
        def _check(cls, depth):
            raise RuntimeError("no\nidea")


class Secret(Mine):
    class Parameters(AlgorithmSection):
        token: SecretStr = SecretStr("")
        rate: float = 0.5


class Asking(Impala):
    class Parameters(ImpalaParameters):
        name: str
        learns_from = "own policy"
        unroll_extras = ("choice_probabilities",)


class Parting(Impala):
    class Parameters(ImpalaParameters):
        name: str
        minibatches: int = 5


@pytest.fixture(autouse=True)
def user_module(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    module = types.ModuleType("user_module")
    module.Mine, module.Wrong, module.Taken, module.Algorithm, module.number = Mine, Wrong, Taken, Algorithm, 3
    module.Asking = Asking
    monkeypatch.setitem(sys.modules, "user_module", module)


def loaded(name, *sets):
    return load(sets=sets, flags={"--algorithm": name})


def test_the_class_sees_its_own_parameters():
    algorithm = make_algorithm(loaded("user_module:Mine", "algorithm.depth=5", "algorithm.discount=0.5").config)
    assert type(algorithm) is Mine
    assert type(algorithm.parameters) is Mine.Parameters
    assert (algorithm.parameters.depth, algorithm.parameters.discount) == (5, 0.5)
    assert (algorithm.parameters.name, algorithm.parameters.ships) == ("user_module:Mine", "gradients")


def test_the_section_is_filled_in():
    section = effective_section(loaded("user_module:Mine", "algorithm.discount=0.5"), Mine)
    assert (section.depth, section.discount, section.name) == (2, 0.5, "user_module:Mine")
    assert section.declared == Declared(ships="gradients", batch_size=3, takes_bonus=False)
    again = make_algorithm(RunConfig.model_validate({"algorithm": section.model_dump(mode="json")}))
    assert again.parameters.batch_size == 3


@pytest.mark.parametrize(
    ("earlier", "instead"), [(True, "name 'priorities' in unroll_extras instead"), (False, "leave it out")]
)
def test_an_earlier_declaration_is_refused_with_what_to_write(monkeypatch, earlier, instead):
    loaded("user_module:Asking")
    monkeypatch.setattr(Asking.Parameters, "tells_priorities", earlier, raising=False)
    with pytest.raises(ConfigError) as caught:
        external_class("user_module:Asking")
    assert str(caught.value) == f"algorithm user_module:Asking: Parameters.tells_priorities: {instead}"


@pytest.mark.parametrize("asked", [("choice_probabilities",), ("nonsense",)])
def test_what_unrolls_carry_for_it_is_declared_by_name(monkeypatch, asked):
    config = loaded("user_module:Asking")
    monkeypatch.setattr(Asking.Parameters, "unroll_extras", asked)
    if asked == ("nonsense",):
        with pytest.raises(ConfigError) as caught:
            effective_section(config, Asking)
        assert str(caught.value) == (
            "algorithm user_module:Asking: unroll_extras: 'nonsense' is none of choice_probabilities, priorities"
        )
        return
    assert effective_section(config, Asking).unroll_extras == asked


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (
            "user_module:Min",
            "algorithm user_module:Min: module 'user_module' has no attribute 'Min'; did you mean Mine?",
        ),
        ("user_module:number", "algorithm user_module:number is no distrl.algorithms.algorithm:Algorithm or Gradient"),
        ("keras:Model", "algorithm keras:Model is no distrl.algorithms.algorithm:Algorithm"),
        ("user_module:Algorithm", "algorithm user_module:Algorithm lacks build, update"),
        (
            "user_module:Wrong",
            "algorithm user_module:Wrong: Parameters is no distrl.config.algorithms:AlgorithmSection",
        ),
        (
            "user_module:Taken",
            "algorithm user_module:Taken: Parameters.declared is the name of what classes declare; take another one",
        ),
    ],
)
def test_what_is_no_algorithm_is_one_line(name, line):
    with pytest.raises(ConfigError) as caught:
        external_class(name)
    assert str(caught.value).startswith(line)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("algorithm.dept=3", "unknown key algorithm.dept (from flag --set); did you mean algorithm.depth?"),
        # Another algorithm's own key is no advice.
        ("algorithm.rho_bar=2", "unknown key algorithm.rho_bar (from flag --set); valid keys in algorithm: "),
        ("algorithm.depth=0", "algorithm.depth: 0 (from flag --set) must be greater than or equal to 1"),
        ("algorithm.depth=true", "algorithm.depth: true (from flag --set) must be a number, not a boolean"),
        ("algorithm.depth=many", "algorithm.depth: 'many' (from flag --set) must be a valid integer"),
    ],
)
def test_parameters_are_checked_like_any_others(given, line):
    with pytest.raises(ConfigError) as caught:
        effective_section(loaded("user_module:Mine", given), Mine)
    assert line in str(caught.value)


def test_a_parameter_that_cannot_be_written_down_is_refused():
    """It would be masked, and the learner would see the mask."""
    assert effective_section(loaded("user_module:Secret"), Secret).rate == 0.5
    with pytest.raises(ConfigError) as caught:
        effective_section(loaded("user_module:Secret", "algorithm.token=hush"), Secret)
    line = "algorithm user_module:Secret: parameter token, SecretStr, is another one when it is read back from a run's "
    assert str(caught.value).startswith(line)
    assert "hush" not in str(caught.value)


def try_out(monkeypatch, class_, *sets):
    monkeypatch.setattr(sys.modules["user_module"], "Tried", class_, raising=False)
    return tried_out(loaded("user_module:Tried", *sets))


NOT_ITS_POLICY = (
    "is of algorithms that correct for it; user_module:Tried learns from the actions of its own policy alone"
)


@pytest.mark.parametrize(
    ("class_", "line"),
    [
        (Headless, "algorithm user_module:Tried has no heads; every GradientAlgorithm has, for example heads = ("),
        (type("Odd", (Headless,), {"heads": ("policy",)}), "algorithm user_module:Tried has no heads; every"),
        (
            declaring(ships="unrols"),
            "algorithm user_module:Tried: ships: 'unrols' (from its Parameters) must be 'unrol",
        ),
        (declaring(batch_size=0), "algorithm user_module:Tried: batch_size: 0 (from its Parameters) must be greater"),
        (declaring(learns_from="us"), "algorithm user_module:Tried: learns_from: 'us' (from its Parameters) must be"),
        (
            declaring(exploration={"kind": "epsilon"}),
            "algorithm user_module:Tried: exploration: {kind: epsilon} (from its Parameters) ",
        ),
        (Raising, "algorithm user_module:Tried: RuntimeError: no idea"),
        (
            type("Odd", (Mine,), {"__init__": lambda self: None}),
            "algorithm user_module:Tried: TypeError: ",
        ),
        (
            Parting,
            "algorithm user_module:Tried: ValueError: algorithm.minibatches: 5 equal parts cannot be made of the ",
        ),
        (
            declaring(learns_from="own policy", exploration=GreedyParameters()),
            f"algorithm.declared.exploration.kind: greedy {NOT_ITS_POLICY}: leave it out",
        ),
        (
            declaring(learns_from="own policy", exploration=PolicySamplingParameters(random_steps=5)),
            f"algorithm.declared.exploration.random_steps {NOT_ITS_POLICY}: leave it out",
        ),
        (
            declaring(exploration=GreedyParameters()),
            "algorithm.declared.exploration.kind: greedy knows no probabilities of its actions, by which user_module:T",
        ),
    ],
)
def test_what_cannot_work_is_one_line_before_anything_is_launched(monkeypatch, class_, line):
    with pytest.raises(ConfigError) as caught:
        try_out(monkeypatch, class_)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_a_class_whose_loss_may_not_add_the_bonus_has_no_curiosity(monkeypatch):
    with pytest.raises(ConfigError) as caught:
        try_out(monkeypatch, declaring(learns_from="own policy"), "algorithm.curiosity={kind: rnd}")
    assert str(caught.value) == (
        "algorithm.curiosity: the Parameters of user_module:Tried do not say that its loss adds the bonus; leave it "
        "out, or take learned_rewards and declare takes_bonus: ClassVar[bool] = True"
    )


def test_what_can_work_is_tried_out(monkeypatch):
    section = try_out(monkeypatch, Replaying, "algorithm.replay.item.n_step=5")
    assert (section.declared.replay.item.n_step, section.declared.exploration.kind) == (5, "epsilon_greedy")
    assert try_out(monkeypatch, Renamed).declared.replay.capacity_steps == 70_000
    assert try_out(monkeypatch, declaring(learns_from="own policy")).declared.learns_from == "own policy"
    own_policy = declaring(learns_from="own policy", exploration=PolicySamplingParameters())
    assert try_out(monkeypatch, own_policy).declared.exploration.kind == "policy"


# --- the example ------------------------------------------------------------------------------------------------------


def log_softmax(logits):
    return logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))


def twin(logits, values, batch, *, discount, steps, temperature, scale, weight):
    """Row by row, as the class' docstring has it: (policy term, value term, entropy)."""
    length = len(batch.rewards)
    policy, value, entropy = [], [], []
    for t, n in np.argwhere(batch.valid):
        log_pi = log_softmax(logits[t, n])
        target, factor, at = 0.0, 1.0, t
        while at < min(length, t + steps) and batch.valid[at, n]:
            taken = log_softmax(logits[at, n])[batch.actions["action"][at, n]]
            target += factor * (scale * batch.rewards[at, n] - temperature * taken)
            factor *= 0.0 if batch.terminated[at, n] else discount
            at += 1
        target += factor * values[at, n]
        policy.append(-(target - values[t, n]) * log_pi[batch.actions["action"][t, n]])
        value.append(0.5 * (target - values[t, n]) ** 2)
        entropy.append(-np.sum(np.exp(log_pi) * log_pi))
    return np.mean(policy), weight * np.mean(value), np.mean(entropy)


@pytest.mark.row("G35")
@pytest.mark.parametrize("steps", [1, 3, 20])
def test_the_example_is_its_twin(steps):
    rng = np.random.default_rng(steps)
    shape = (9, 5)
    valid = rng.random(shape) < 0.8
    batch = Batch(
        observations={"observation": np.zeros((10, 5, 1), "float32")},
        actions={"action": rng.integers(0, 3, shape).astype("int32")},
        rewards=np.where(valid, rng.normal(size=shape), 0.0).astype("float32"),
        terminated=valid & (rng.random(shape) < 0.2),
        truncated=np.zeros(shape, bool),
        valid=valid,
        behaviour_log_probabilities=np.zeros(shape, "float32"),
        recurrent_state={},
    )
    logits, values = (rng.normal(size=size).astype("float32") for size in ((10, 5, 3), (10, 5)))
    sets = [f"algorithm.steps={steps}", "algorithm.temperature=0.3", "algorithm.reward_scale=0.5"]
    algorithm = make_algorithm(loaded(EXAMPLE, *sets, "algorithm.discount=0.9").config)
    assert algorithm.parameters.max_staleness_updates == 0
    algorithm.distribution = JointDistribution({"action": CategoricalSpec(3)})
    terms, metrics = algorithm.loss({"policy/action": logits, "value": values}, batch)
    policy, value, entropy = twin(
        logits, values, batch, discount=0.9, steps=steps, temperature=0.3, scale=0.5, weight=0.5
    )
    assert {name: float(term) for name, term in terms.items()} == pytest.approx(
        {"policy": policy, "value": value}, rel=1e-4
    )
    assert float(metrics["entropy"]) == pytest.approx(entropy, rel=1e-5)


@pytest.mark.parametrize(
    ("array", "size"),
    [
        pytest.param(  # TensorFlow tries for ten seconds
            lambda: keras.ops.zeros((2**24, 2**24)),
            r"shape\[16777216,16777216\]|1125899906842624 bytes",
            marks=pytest.mark.long,
        ),
        (lambda: np.empty((2**24, 2**24), np.float32), r"shape \(16777216, 16777216\)"),
    ],
)
def test_a_network_that_memory_has_no_room_for_is_refused_in_one_line(array, size):
    class TooLarge(Impala):
        def build(self, spec):
            array()

    wanted = f"the network does not fit into memory: no room for an array of ({size}); set narrower layers in network"
    with pytest.raises(ConfigError, match=f"^{wanted}$"):
        built(TooLarge(make_algorithm(RunConfig()).context), EnvSpec("Toy", {}, {}))


def test_the_example_is_short_enough_to_read():
    text = (Path(__file__).parents[2] / "examples" / "custom_algorithm.py").read_text()
    assert len(text.splitlines()) <= 150
