"""Which baselines, rescalers and lambdas go together; everything else is one line."""

import pytest

from distrl.config import RunConfig
from distrl.config.explain import explain


def vpg(**section):
    return RunConfig.model_validate({"algorithm": {"name": "vpg", **section}}).algorithm


@pytest.mark.row("D162", "G28")
@pytest.mark.parametrize(
    ("section", "rescaling"),
    [
        ({}, "a_value"),
        ({"gae_lambda": 0.95}, "gae"),
        ({"rescaler": "gae", "gae_lambda": 0.0}, "gae"),
        ({"rescaler": "td_residual"}, "td_residual"),
        ({"baseline": "none"}, "future_return_normalized_by_timestep"),
        ({"baseline": "none", "rescaler": "total_return"}, "total_return"),
    ],
)
def test_what_log_pi_is_multiplied_by(section, rescaling):
    assert vpg(**section).rescaling == rescaling


def test_vpg_is_synchronous():
    assert vpg().max_staleness_updates == 0


@pytest.mark.row("G28")
@pytest.mark.parametrize(
    ("section", "line"),
    [
        ({"baseline": "none", "gae_lambda": 0.95}, "gae_lambda: 0.95 needs a baseline, which is none"),
        ({"baseline": "none", "rescaler": "gae"}, "rescaler: gae needs a baseline, which is none"),
        ({"baseline": "none", "rescaler": "a_value"}, "rescaler: a_value needs a baseline, which is none"),
        ({"baseline": "none", "value_loss_weight": 1.0}, "value_loss_weight: 1.0 is of a baseline, which is none"),
        ({"rescaler": "future_return"}, "rescaler: future_return has no baseline; set baseline: none"),
        ({"rescaler": "gae"}, "rescaler: gae needs gae_lambda, for example 0.95"),
        ({"rescaler": "td_residual", "gae_lambda": 0.9}, "gae_lambda: 0.9 is of rescaler: gae, not of td_residual"),
        ({"max_staleness_updates": 2}, "max_staleness_updates: 2 lets actions of older policies in"),
        ({"max_staleness_updates": None}, "max_staleness_updates: null lets actions of older policies in"),
        ({"rescaler": "q_value"}, "algorithm.rescaler: 'q_value' must be 'total_return', 'future_return'"),
        ({"reward_clipping": "clamp"}, "algorithm.reward_clipping: 'clamp' must be 'clamp_one' or 'soft_asymmetric'"),
    ],
)
def test_what_does_not_go_together_is_one_line(section, line):
    with pytest.raises(ValueError, match="validation error") as caught:
        vpg(**section)
    told = explain(caught.value, {})
    assert line in told
    assert told.startswith("algorithm")
    assert "\n" not in told
