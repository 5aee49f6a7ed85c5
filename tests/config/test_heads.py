import pytest
from pydantic import TypeAdapter, ValidationError

from distrl.config import heads

READ = TypeAdapter(heads.HeadParameters).validate_python


def test_defaults_are_those_of_the_papers():
    clipped, acer, rainbow, quantiles = (
        READ({"kind": kind}) for kind in ("ppo", "acer_policy", "rainbow_q", "quantile_q")
    )
    assert (clipped.clip_range, clipped.initial_kl_coefficient) == (0.2, None)
    assert (acer.importance_weight_truncation, acer.trust_region_delta) == (10.0, 1.0)
    assert (rainbow.atoms, rainbow.v_min, rainbow.v_max) == (51, -10.0, 10.0)
    assert (quantiles.quantiles, quantiles.huber_kappa) == (200, 1.0)


def test_unknown_kinds_and_keys_are_refused():
    with pytest.raises(ValidationError, match="dueling"):
        READ({"kind": "dueling"})
    with pytest.raises(ValidationError, match="clip_range"):
        READ({"kind": "policy", "clip_range": 0.2})
    with pytest.raises(ValidationError, match=r"v_min must be below v_max, not 1.0 and 1.0"):
        READ({"kind": "rainbow_q", "v_min": 1.0, "v_max": 1.0})


def test_numbers_are_checked():
    for section, options in (
        (heads.PPOHeadParameters, {"clip_range": 0.0}),
        (heads.ACERPolicyHeadParameters, {"trust_region_delta": 0.0}),
        (heads.CategoricalQHeadParameters, {"atoms": 1}),
        (heads.QuantileQHeadParameters, {"quantiles": 0}),
        (heads.ValueHeadParameters, {"units": (0,)}),
        (heads.ValueHeadParameters, {"num_output_head_copies": 0}),
    ):
        with pytest.raises(ValidationError, match=next(iter(options))):
            section(**options)


@pytest.mark.parametrize("options", [{"log_sigma": "state_dependent"}, {"initial_log_sigma": 1.0}])
@pytest.mark.parametrize("kind", ["policy", "ppo"])
def test_a_beta_distribution_has_no_sigma(kind, options):
    with pytest.raises(ValidationError, match="a beta distribution has neither"):
        READ({"kind": kind, "distribution": "beta", **options})
