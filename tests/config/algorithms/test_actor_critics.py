import pytest

from distrl.config import RunConfig


def make(minibatches, **given):
    """A configuration of 3 unrolls x 4 environments = 12 sequences."""
    tree = {"actors": {"environments": 4}, "algorithm": {"name": "impala", "minibatches": minibatches}, **given}
    return RunConfig.model_validate(tree | {"learner": {"batch_size": 3, **given.get("learner", {})}})


@pytest.mark.parametrize("minibatches", [1, 2, 12])
def test_a_batch_is_divided_by_sequences(minibatches):
    assert make(minibatches).algorithm.minibatches == minibatches


@pytest.mark.parametrize(
    ("minibatches", "given", "message"),
    [
        (5, {}, r"minibatches: 5 equal parts cannot be made of the 12 sequences of a batch .*; choose a divisor"),
        (2, {"network": {"optimizer_type": "LBFGS"}}, "LBFGS needs whole batches; algorithm impala takes minibatches"),
        (
            4,
            {"learner": {"backend": "jax", "replicas": 2}},
            "2 devices cannot share 3 sequences evenly, a min",
        ),
        (0, {}, "greater than or equal to 1"),
    ],
)
def test_minibatches_that_cannot_be_made_are_refused(minibatches, given, message):
    with pytest.raises(ValueError, match=message):
        make(minibatches, **given)
