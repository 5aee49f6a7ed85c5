"""The examples of docs/change_one_thing.md: what they compute, that they train, and the page beside the code."""

import ast
import inspect
import re
import sys
import typing
from pathlib import Path

import numpy as np
import pytest
from keras import ops
from pydantic import Field

import distrl
from distrl import algorithms as api
from distrl.algorithms.epochs import ProximalUpdate
from distrl.algorithms.selection import (
    algorithm_class,
    built,
    context_of,
    effective_section,
    make_algorithm,
    tried_out,
)
from distrl.config.algorithms import ALGORITHMS
from distrl.config.live_settings import steerable, steered
from distrl.config.load import load
from distrl.config.presets import preset_names
from distrl.errors import ConfigError
from distrl.networks.objective import outputs_of
from distrl.terminal.console import QuietView
from distrl.types import ArraySpec, Batch, BoxSpec, DiscreteSpec, EnvSpec

ROOT = Path(__file__).parents[2]
FILE, PAGE = ROOT / "examples" / "change_one_thing.py", ROOT / "docs" / "change_one_thing.md"
MODULE = "examples.change_one_thing"
N, GAMMA = 6, 0.9
OBSERVATIONS = {"observation": ArraySpec((3,), "float32")}
CHOICE, REAL = {"action": DiscreteSpec(3)}, {"action": BoxSpec((1,), (-2.0,), (2.0,))}
SMALL = {"middleware_parameters": {"scheme": [8], "activation": "tanh"}, "learning_rate": 0.01}


@pytest.fixture(autouse=True)
def examples_can_be_imported(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def make(name, actions, network=None, **algorithm):
    tree = {"seed": 3, "algorithm": {"name": name, "discount": GAMMA, **algorithm}, "network": SMALL | (network or {})}
    tree["learner"] = {"batch_size": 1 if "Ppo" in name or name == "ppo" else N}
    tree["actors"] = {"environments": N, "unroll_length_steps": 4}
    made = make_algorithm(distrl.load(tree).config)
    return made, built(made, EnvSpec("E", OBSERVATIONS, actions))


def make_batch(actions, steps=1, seed=0):
    rng = np.random.default_rng(seed)
    shape = (steps, N)
    taken = rng.integers(0, 3, shape).astype("int32")
    if actions is REAL:
        taken = rng.uniform(-2.0, 2.0, (*shape, 1)).astype("float32")
    valid = np.ones(shape, bool)
    valid[-1, 0] = steps == 1
    return Batch(
        observations={"observation": rng.standard_normal((steps + 1, N, 3)).astype("float32")},
        actions={"action": taken},
        rewards=np.where(valid, rng.standard_normal(shape), 0.0).astype("float32"),
        terminated=rng.random(shape) < 0.3,
        truncated=np.zeros(shape, bool),
        valid=valid,
        behaviour_log_probabilities=np.full(shape, np.log(1 / 3), "float32"),
        recurrent_state={},
        bootstrap_steps=np.ones(shape, "int32") if steps == 1 else None,
        importance_weights=np.ones(N, "float32") if steps == 1 else None,
    )


def weights_of(networks):
    return [array for network in networks.values() for array in network.online.get_weights()]


def differ(one, other):
    return any((a != b).any() for a, b in zip(one, other, strict=True))


def test_munchausen_dqn_learns_the_papers_target():
    """Equation 2, row by row: r + a max(tau log pi(a|o), l) + gamma sum pi' (Q' - tau log pi')."""
    share, tau, least = 0.8, 0.5, -0.4
    settings = {"munchausen_share": share, "policy_temperature": tau, "least_log_policy": least}
    algorithm, networks = make(f"{MODULE}:MunchausenDqn", CHOICE, **settings)
    main, batch = networks["main"], make_batch(CHOICE)
    main.target.set_weights([weight + 0.1 for weight in main.target.get_weights()])
    slow = [main.target.predict({"observation": rows}, ["q/q"]) for rows in batch.observations["observation"]]
    online = main.online.predict({"observation": batch.observations["observation"][0]}, ["q/q"])
    errors, clipped = [], 0
    for i in range(N):
        choice = batch.actions["action"][0, i]
        log_pi, log_next = (q[i] / tau - np.log(np.exp(q[i] / tau).sum()) for q in slow)
        clipped += tau * log_pi[choice] < least
        y = batch.rewards[0, i] + share * max(tau * log_pi[choice], least)
        if not batch.terminated[0, i]:
            y += GAMMA * (np.exp(log_next) * (slow[1][i] - tau * log_next)).sum()
        errors.append(y - online[i, choice])
    assert 0 < clipped < N
    update = algorithm.update(networks, batch)
    assert update.metrics["td_loss"] == pytest.approx(np.square(errors).mean(), rel=1e-4)
    assert update.metrics["mean_td_error"] == pytest.approx(np.abs(errors).mean(), rel=1e-4)


def test_without_its_share_and_at_a_low_temperature_it_is_dqn():
    """The soft value is then that of the best choice."""
    base, others = make("dqn", CHOICE)
    own, networks = make(f"{MODULE}:MunchausenDqn", CHOICE, munchausen_share=0.0, policy_temperature=1e-4)
    batch = make_batch(CHOICE)
    found, expected = own.update(networks, batch).metrics, base.update(others, batch).metrics
    assert found["td_loss"] == pytest.approx(expected["td_loss"], rel=1e-3)


def test_ppo_learns_to_predict_rewards_beside_its_own_loss():
    base, others = make("ppo", CHOICE, epochs=1, minibatches=1)
    own, networks = make(f"{MODULE}:RewardPredictingPpo", CHOICE, epochs=1, minibatches=1, reward_scale=2.0)
    plain, _ = make("ppo", CHOICE, epochs=1, minibatches=1, reward_scale=2.0)
    batch = make_batch(CHOICE, steps=4)
    online = networks["main"].online
    predicted = [
        online.predict({"observation": rows}, ["embedding"]) for rows in batch.observations["observation"][:-1]
    ]
    errors = np.stack(predicted)[..., 0] - 2.0 * batch.rewards
    outputs, _ = outputs_of(online, batch, None, training=False)
    before = float(plain.build(EnvSpec("E", OBSERVATIONS, CHOICE)) and plain.loss(outputs, batch).terms["policy"])
    told = own.update(networks, batch).metrics
    assert told["prediction_loss"] == pytest.approx(np.square(errors[batch.valid]).mean(), rel=1e-4)
    assert told["policy_loss"] == pytest.approx(before, rel=1e-4, abs=1e-6)
    assert told["loss"] == pytest.approx(
        told["policy_loss"] + 0.5 * told["value_loss"] + 0.5 * told["prediction_loss"], rel=1e-4
    )
    assert "prediction_loss" not in base.update(others, batch).metrics


def test_a_further_loss_of_ppo_moves_shared_layers_in_several_epochs():
    moved = []
    for weight in (0.0, 1.0):
        own, networks = make(f"{MODULE}:RewardPredictingPpo", CHOICE, epochs=2, minibatches=2, prediction_weight=weight)
        metrics = own.update(networks, make_batch(CHOICE, steps=4)).metrics
        assert (metrics["optimizer_steps"], metrics["finite"]) == (4, True)
        moved.append(networks["main"].online.named_weights()["main/middleware_dense_0/kernel"])
    assert (moved[0] != moved[1]).any()


class TowardsItself(api.Ppo):
    """Its value learns V + 1, V as of the estimates."""

    def estimates(self, outputs, batch):
        return super().estimates(outputs, batch) | {"mine": outputs["value"][:-1]}

    def value_losses(self, outputs, experience):
        return 0.5 * (outputs["value"] - experience.estimates["mine"] - 1.0) ** 2


def test_estimates_of_a_subclass_get_no_gradient_with_one_step_or_several():
    def after(train_step):
        algorithm = TowardsItself(context)
        networks = built(algorithm, EnvSpec("E", OBSERVATIONS, CHOICE))
        told = train_step(algorithm, networks["main"])(make_batch(CHOICE, steps=4))
        return told["gradient_norm"], weights_of(networks)

    def several(algorithm, network):
        algorithm.train_step(network)
        return ProximalUpdate(context, algorithm.parameters, network, algorithm.estimates, algorithm.surrogate_loss)

    context = make("ppo", CHOICE, epochs=1, minibatches=1)[0].context
    norm, weights = after(lambda algorithm, network: algorithm.train_step(network))
    expected_norm, expected = after(several)
    assert norm == pytest.approx(expected_norm, rel=1e-4)
    for found, wanted in zip(weights, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


def test_an_expectile_of_a_half_is_sac_and_another_weighs_errors_by_their_sign():
    batch = make_batch(REAL)
    base, others = make("sac", REAL)
    half, halves = make(f"{MODULE}:ExpectileSac", REAL, expectile=0.5)
    low, networks = make(f"{MODULE}:ExpectileSac", REAL, expectile=0.25)
    expected = base.update(others, batch).metrics
    assert half.update(halves, batch).metrics == expected
    assert not differ(weights_of(halves), weights_of(others))
    told = low.update(networks, batch).metrics
    assert differ(weights_of(networks), weights_of(others))
    assert told["policy_loss"] == expected["policy_loss"]
    values, targets = np.float32([1.0, 1.0, -2.0]), np.float32([3.0, 0.0, -2.0])
    np.testing.assert_allclose(low.critic_loss(values, targets), [2.0 * 0.25 * 2.0, 2.0 * 0.75 * 0.5, 0.0])


@pytest.mark.parametrize(
    ("name", "environment", "preset"),
    [
        ("MunchausenDqn", "CartPole-v1", {"replay": {"min_size_steps": 32, "capacity_steps": 256}}),
        pytest.param("RewardPredictingPpo", "CartPole-v1", {"minibatches": 2}, marks=pytest.mark.long),
        pytest.param(
            "ExpectileSac",
            "Pendulum-v1",
            {"replay": {"min_size_steps": 32, "capacity_steps": 256}},
            marks=pytest.mark.long,
        ),
    ],
)
def test_they_train(name, environment, preset, tmp_path):
    tree = {
        "environment": {"id": environment},
        "algorithm": {"name": f"{MODULE}:{name}", **preset},
        "network": SMALL,
        "actors": {"count": 0, "environments": 2, "unroll_length_steps": 8},
        "learner": {"batch_size": 2 if name == "RewardPredictingPpo" else 16},
        "stop": {"updates": 3},
    }
    summary = distrl.train(
        distrl.load(tree), run_dir=tmp_path / "run", view=QuietView(tmp_path / "run", lambda text: None)
    )
    assert (summary.exit_code, summary.imbalance) == (0, 0)
    assert summary.updates >= 3


def test_settings_of_the_base_class_and_own_ones_are_checked():
    def tried(*sets):
        return tried_out(load(sets=[*sets], flags={"--algorithm": f"{MODULE}:MunchausenDqn"}))

    section = tried("algorithm.policy_temperature=0.1", "algorithm.dueling=true")
    assert (section.policy_temperature, section.dueling, section.munchausen_share) == (0.1, True, 0.9)
    assert section.declared.replay is not None
    with pytest.raises(ConfigError, match=r"algorithm\.policy_temperature: .* greater than 0"):
        tried("algorithm.policy_temperature=0")
    with pytest.raises(ConfigError, match=r"algorithm\.munchausen_shar"):
        tried("algorithm.munchausen_shar=0.5")
    for wrong in ("double=true", "value_rescaling=true", "replay.item={kind: transition, n_step: 3}"):
        with pytest.raises(ConfigError, match="set double and value_rescaling to false"):
            tried(f"algorithm.{wrong}")


def test_the_pages_command_of_munchausen_dqn_is_accepted():
    command = re.search(r"distrl train --preset (\S+) --algorithm (\S+MunchausenDqn) \\\n(.*)", PAGE.read_text("utf-8"))
    sets = re.findall(r"--set (\S+)", command[3])
    section = tried_out(load(preset=command[1], sets=sets, flags={"--algorithm": command[2]}))
    assert (section.double, section.replay["item"]["n_step"], section.reward_scale) == (False, 1, 0.05)


@pytest.mark.parametrize("preset", preset_names())
def test_a_preset_of_a_built_in_algorithm_fits_a_subclass_with_its_section(preset):
    """All that the name sets, and all that other roles know of it, stays."""
    loaded = load(preset=preset)
    plain = loaded.config.algorithm
    base = algorithm_class(plain)
    Own = type("Own", (base,), {"Parameters": type("Parameters", (type(plain),), {"__module__": __name__})})
    renamed = load(preset=preset, flags={"--algorithm": "module:Own"})
    section = effective_section(renamed, Own)
    kept = section.model_dump(mode="json", exclude={"name", "declared"})
    assert kept == plain.model_dump(mode="json", exclude={"name"})
    for name in set(type(section.declared).model_fields) - {"replay"}:
        assert getattr(section, name) == getattr(plain, name), name
    assert section.declared.replay == plain.replay_parameters


@pytest.mark.parametrize("section", [api.ApexParameters, api.R2d2Parameters, api.RainbowParameters, api.A2cParameters])
def test_sections_of_names_that_share_a_class_are_exported(section):
    name = section.model_fields["name"].default
    assert ALGORITHMS[name] is section
    page = PAGE.read_text("utf-8").split("## Which class")[1]
    assert f"`api.{section.__name__}`" in page


# --- the page ---------------------------------------------------------------------------------------------------------


def test_each_example_is_short_and_the_page_shows_it():
    page, lines = PAGE.read_text("utf-8"), FILE.read_text("utf-8").splitlines()
    classes = [node for node in ast.parse(FILE.read_text("utf-8")).body if isinstance(node, ast.ClassDef)]
    assert len(classes) == 3
    for node in classes:
        source = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        assert source.count("\n") < 30
        assert source in page


HOOK = re.compile(r"^\| `(?P<method>\w+)\((?P<arguments>.*?)\)` \|", re.MULTILINE)


def hooks():
    """(class, method, names of arguments) of every row of the page's tables, by the classes in the heading above it."""
    for section in PAGE.read_text("utf-8").split("\n### ")[1:]:
        names = re.findall(r"`(\w+)`", section.splitlines()[0])
        for found in HOOK.finditer(section):
            for name in names:
                yield name, found["method"], re.findall(r"\w+", found["arguments"])


@pytest.mark.parametrize(("name", "method", "arguments"), [*hooks()])
def test_a_hook_of_the_page_has_its_arguments_types_and_a_docstring(name, method, arguments):
    function = inspect.getattr_static(getattr(api, name), method)
    function = function.fget if isinstance(function, property) else function
    assert [*inspect.signature(function).parameters] == ["self", *arguments]
    assert {*function.__annotations__} == {*arguments, "return"}
    assert typing.get_type_hints(function)
    assert inspect.getdoc(getattr(getattr(api, name), method))


def test_every_built_in_class_is_on_the_page():
    classes = {name for name in api.__all__ if inspect.isclass(getattr(api, name))}
    known = {name for name in classes if issubclass(getattr(api, name), api.Algorithm)} - {
        "Algorithm",
        "GradientAlgorithm",
    }
    assert {name for name, _, _ in hooks()} == known


def test_every_field_of_a_batch_is_on_the_page():
    page = PAGE.read_text("utf-8")
    for fields in (Batch._fields, api.Experience._fields):
        for field in fields:
            assert f"| `{field}` |" in page, field


class LivePpo(api.Ppo):
    class Parameters(api.Ppo.Parameters):
        live: typing.ClassVar = {**api.Ppo.Parameters.live, "extra": "weight of the extra loss"}
        extra: float = Field(0.5, ge=0.0, lt=2.0)

    def policy_losses(self, outputs, experience):
        return super().policy_losses(outputs, experience) + self.coefficient("extra")


class LiveTd3(api.Td3):
    class Parameters(api.Td3.Parameters):
        live: typing.ClassVar = {"extra": "weight of the extra loss"}
        extra: float = Field(0.5, ge=0.0, lt=2.0)

    def policy_terms(self, view, taken):
        return super().policy_terms(view, taken)._replace(metrics={"extra": self.coefficient("extra")})


class NotLive(api.Td3):
    class Parameters(api.Td3.Parameters):
        live: typing.ClassVar = {"policy_every_updates": "a whole number"}


def config_of(class_, **tree):
    """The configuration as the launch settles it."""
    loaded = load(flags={"--algorithm": f"{__name__}:{class_.__name__}"}, sets=[f"{k}={v}" for k, v in tree.items()])
    return loaded.with_algorithm(tried_out(loaded).model_dump(mode="json"), {}).config


@pytest.mark.parametrize(
    ("class_", "actions", "told", "live"),
    [
        (
            LivePpo,
            CHOICE,
            "policy_loss",
            ["algorithm.entropy_weight", "algorithm.extra", "algorithm.max_staleness_updates"],
        ),
        (LiveTd3, REAL, "extra", ["algorithm.extra"]),
    ],
)
def test_live_settings_of_a_subclass_can_be_steered_inherited_ones_and_its_own(class_, actions, told, live):
    """By the configuration alone, as in processes that do not import the class, and within the fields' bounds."""
    sets = {"actors.environments": N, "actors.unroll_length_steps": 4, "learner.batch_size": 1}
    if class_ is LivePpo:
        sets |= {"algorithm.epochs": 1, "algorithm.minibatches": 1}
    config = config_of(class_, **sets)
    assert [one.path for one in steerable(config) if one.path.startswith("algorithm.")] == live
    with pytest.raises(ConfigError, match=r"algorithm\.extra: 2\.5 must be less than 2$"):
        steered(config, {"algorithm.extra": 2.5})
    with pytest.raises(ConfigError, match=r"algorithm\.extra: 'much' must be a number$"):
        steered(config, {"algorithm.extra": "much"})
    spec = EnvSpec("E", OBSERVATIONS, actions)
    batch, found = make_batch(actions, steps=4 if class_ is LivePpo else 1), []
    for now in (config, steered(config, {"algorithm.extra": 1.25})):
        algorithm = make_algorithm(config)
        networks = built(algorithm, spec)
        algorithm.steer(networks, context_of(now))
        found.append(algorithm.update(networks, batch).metrics[told])
    assert found[1] - found[0] == pytest.approx(0.75, abs=1e-5)


def test_what_is_no_number_cannot_be_live():
    with pytest.raises(ConfigError, match=r"Parameters\.live names policy_every_updates, which is no field of type"):
        config_of(NotLive)


def test_subclasses_of_built_in_classes_have_curiosity():
    config = config_of(LiveTd3, **{"algorithm.curiosity": "{kind: rnd, weight: 0.5}"})
    algorithm = make_algorithm(config)
    networks = built(algorithm, EnvSpec("E", OBSERVATIONS, REAL))
    metrics = algorithm.update(networks, make_batch(REAL)).metrics
    assert metrics["finite"]
    assert metrics["intrinsic_reward"] > 0.0
    assert metrics["extra"] == pytest.approx(0.5)
    assert "algorithm.curiosity.weight" in [one.path for one in steerable(config)]


class Misspelt(api.Td3):
    def next_value(self, view):
        return super().next_values(view)


class MisspeltCheck(api.Td3):
    class Parameters(api.Td3.Parameters):
        def checks(self, context):
            raise ValueError


class WithHelpers(api.Ppo):
    """Its own methods are called nearly as those of the base, and begin with _."""

    def _policy_loss(self):
        raise NotImplementedError

    @staticmethod
    def _value_losses():
        raise NotImplementedError


class WithoutSuper(api.Dqn):
    class Parameters(api.Dqn.Parameters):
        def check(self, context):
            del context


@pytest.mark.parametrize(
    ("class_", "line"),
    [
        (Misspelt, "Misspelt: Td3 has no method next_value that could be replaced; did you mean next_values?"),
        (
            MisspeltCheck,
            "MisspeltCheck: Td3Parameters has no method checks that could be replaced; did you mean check?",
        ),
    ],
)
def test_a_misspelt_method_is_one_line(class_, line):
    with pytest.raises(ConfigError) as caught:
        config_of(class_)
    assert line in str(caught.value)


def test_own_methods_that_begin_with_an_underscore_may_have_any_name():
    assert config_of(WithHelpers).algorithm.name.endswith(":WithHelpers")


def test_the_base_class_checks_its_settings_whether_or_not_the_subclass_calls_it():
    with pytest.raises(ConfigError, match=r"monte_carlo_share"):
        config_of(WithoutSuper, **{"algorithm.monte_carlo_share": 0.5})


def returning(base, method, change):
    """A subclass whose method returns something else than that of its base."""
    return type("Odd", (base,), {method: lambda self, *given: change(getattr(base, method)(self, *given))})


@pytest.mark.parametrize(
    ("base", "method", "change", "line"),
    [
        ("dqn", "next_values", ops.mean, "float32 []; return float32 [2, 6]"),
        ("dqn", "rewards", lambda rows: rows[..., None], "float32 [1, 6, 1]; return float32 [1, 6]"),
        ("dqn", "error_loss", ops.mean, "float32 []; return float32 [1, 6]"),
        ("dqn", "error_loss", lambda rows: None, "NoneType; return float32 [1, 6]"),
        ("qrdqn", "temporal_differences", lambda found: found._asdict(), "dict; return TemporalDifferences"),
        (
            "qrdqn",
            "temporal_differences",
            lambda found: found._replace(losses=ops.mean(found.losses)),
            "float32 []; return float32 [1, 6]",
        ),
        ("ppo", "policy_losses", ops.sum, "float32 []; return float32 [4, 6]"),
        ("ppo", "value_losses", lambda rows: ops.cast(rows, "int32"), "int32 [4, 6]; return float32 [4, 6]"),
        ("ppo", "returns", tuple, "tuple; return Returns"),
        ("td3", "critic_loss", ops.mean, "float32 []; return float32 [6]"),
        ("td3", "next_values", ops.mean, "float32 []; return float32 [6]"),
        ("td3", "policy_terms", lambda terms: terms.worth, "; return PolicyTerms"),
        ("sac", "policy_terms", lambda terms: terms._replace(worth=0.0), "float; return float32 [6]"),
        ("tqc", "next_values", lambda rows: rows[:, 0], "float32 [6]; return float32 [6, None]"),
    ],
)
def test_what_a_method_returns_in_another_shape_or_kind_is_one_line(monkeypatch, base, method, change, line):
    """Most of these would be broadcast, and train something else without a word."""
    section = ALGORITHMS[base](name=base)
    monkeypatch.setattr(
        sys.modules[__name__], "Odd", returning(algorithm_class(section), method, change), raising=False
    )
    actions = REAL if base in ("td3", "sac", "tqc") else CHOICE
    algorithm, networks = make(f"{__name__}:Odd", actions, **({"epochs": 1, "minibatches": 1} if base == "ppo" else {}))
    with pytest.raises(ConfigError) as caught:
        algorithm.update(networks, make_batch(actions, steps=4 if base == "ppo" else 1))
    assert f".{method} has returned " in str(caught.value)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
