"""Compilation ahead of the first batch: for the form of all batches, changing nothing, and as part of the update."""

from types import SimpleNamespace

import pytest

from distrl.algorithms.algorithm import Algorithm
from distrl.learner.attendants.compilation import Compilation
from distrl.memory_backend.gradient_codec import GradientSchema
from distrl.metrics.counters import Waits
from tests.algorithms.states import assert_same, states
from tests.learner.conftest import SmallRun
from tests.traces import traces

REPLAY = {"min_size_steps": 4, "samples_per_insert": 8.0}
AGAIN = "the first update will compile itself: {}"
RUNS = {
    "minibatches": {"name": "impala", "minibatches": 2, "reward_normalization": {}},
    "epochs": {"name": "ppo", "epochs": 2, "minibatches": 2, "curiosity": {"kind": "rnd"}},
    "choice probabilities": {"name": "acer", "replay": {**REPLAY, "item": {"kind": "sequence", "length_steps": 2}}},
    "priorities": {"name": "dqn", "replay": {**REPLAY, "sampler": {"kind": "prioritized"}}},
    "masks": {"name": "bootstrapped_dqn", "replay": REPLAY},
}


@pytest.mark.parametrize("name", RUNS)
def test_the_first_batch_has_the_form_that_was_compiled(name, prepared, acting, toy_config):
    config = toy_config(**{f"algorithm__{key}": value for key, value in RUNS[name].items()})
    made = prepared(config)
    trainer = made.make_learner(acting(made))
    before = states(made.networks)
    Compilation(made).started()
    assert traces(made.algorithm) == 1
    assert_same(states(made.networks), before)
    trainer.start()
    assert trainer.step().update.metrics["finite"]
    assert traces(made.algorithm) == 1


class Recording:
    """An algorithm that records what it is to compile."""

    bootstrap = None

    def __init__(self, waits, error):
        self.waits, self.error, self.compiled = waits, error, []

    def compile(self, networks, batch):
        self.compiled.append((networks, batch.valid.shape, self.waits.under_way_s("update") > 0))
        if self.error is not None:
            raise self.error


class Lazy(Recording):
    """As one of the user's, which compiles with its first update."""

    compile = Algorithm.compile


class Parts(SimpleNamespace):
    """Parts of a learner with such an algorithm."""

    def __init__(self, config, schema, error=None, kind=Recording, reached=None):
        waits = Waits()
        self.conditions = SimpleNamespace(reached=lambda: reached)
        super().__init__(config=config, algorithm=kind(waits, error), networks="networks", waits=waits)
        self.schema = lambda: schema


@pytest.mark.parametrize("error", [None, ValueError("no gradient"), SystemExit(3)])
def test_it_counts_as_the_update_and_leaves_errors_to_it(error, toy_config, caplog):
    caplog.set_level("INFO")
    parts = Parts(toy_config(), SmallRun().schema, error)
    Compilation(parts).started()
    assert parts.algorithm.compiled == [("networks", (2, 6), True)]  # two unrolls at once
    assert parts.waits.total_s("update") > 0
    assert parts.waits.under_way_s("update") == 0
    # TensorFlow compiles nothing ahead.
    assert caplog.messages == ["the update has been traced in 0.0 s" if error is None else AGAIN.format(error)]


def test_an_algorithm_without_compile_is_not_said_to_be_compiled(toy_config, caplog):
    caplog.set_level("INFO")
    parts = Parts(toy_config(), SmallRun().schema, kind=Lazy)
    Compilation(parts).started()
    assert (caplog.messages, parts.waits.total_s("update")) == ([], 0)


def test_a_run_that_is_resumed_at_its_end_compiles_nothing(toy_config):
    parts = Parts(toy_config(), SmallRun().schema, reached="env_steps")
    Compilation(parts).started()
    assert parts.algorithm.compiled == []


def test_shipped_gradients_have_nothing_to_compile(toy_config):
    parts = Parts(toy_config(), GradientSchema.of(6, {}, {}, {}))
    Compilation(parts).started()
    assert parts.algorithm.compiled == []
