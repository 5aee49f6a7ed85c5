"""TRPO's section: its defaults, and what is refused in one line."""

import pytest

from distrl.config import RunConfig
from distrl.config.explain import explain
from distrl.config.live_settings import steerable

SEPARATE = {"use_separate_networks_per_head": True}
LSTM = {"middleware_parameters": {"kind": "lstm"}}


def trpo(network=SEPARATE, actors=None, learner=None, **section):
    tree = {"algorithm": {"name": "trpo", **section}, "network": network}
    return RunConfig.model_validate(tree | {"actors": actors or {}, "learner": learner or {}})


def test_trpo_is_synchronous_and_its_region_can_be_steered():
    config = trpo(max_kl=0.02)
    assert config.algorithm.max_staleness_updates == 0
    found = {each.path: each.value for each in steerable(config)}
    assert (found["algorithm.max_kl"], found["algorithm.entropy_weight"]) == (0.02, 0.0)


@pytest.mark.parametrize(
    ("tree", "line"),
    [
        (
            {"network": {}},
            "network.use_separate_networks_per_head: false lets the value function's optimizer move the policy",
        ),
        (
            {"value_minibatches": 7, "actors": {"environments": 2, "unroll_length_steps": 5}},
            "algorithm.value_minibatches: 7 equal parts cannot be made of the 20 rows of a batch",
        ),
        (
            {"value_minibatches": 8, "actors": {"environments": 2}, "network": SEPARATE | LSTM},
            "algorithm.value_minibatches: 8 equal parts cannot be made of the 4 sequences of a batch",
        ),
        (
            {"network": SEPARATE | {"optimizer_type": "LBFGS"}},
            "network.optimizer_type: LBFGS needs whole batches; algorithm trpo takes minibatches",
        ),
        (
            {
                "value_minibatches": 1,
                "actors": {"environments": 1, "unroll_length_steps": 1},
                "learner": {"batch_size": 1},
            },
            "algorithm.normalize_advantages: batch; a batch has 1 row (learner.batch_size x actors.environments x ",
        ),
        ({"max_kl": 0.0}, "algorithm.max_kl"),
        ({"line_search_factor": 1.0}, "algorithm.line_search_factor"),
        ({"value_loss_weight": 0.5}, "algorithm.value_loss_weight"),
        ({"clip_range": 0.2}, "algorithm.clip_range"),
    ],
)
def test_what_it_cannot_train_is_one_line(tree, line):
    with pytest.raises(ValueError, match="validation error") as caught:
        trpo(**tree)
    told = explain(caught.value, {})
    assert line in told
    assert "\n" not in told
