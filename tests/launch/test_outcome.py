"""Exit code, stop reason and error of a run that an exception has ended, in one process and in several."""

import pytest

from distrl.errors import (
    CheckpointError,
    ConfigError,
    DistrlError,
    EnvironmentFailedError,
    FencedError,
    MemoryBackendError,
    NonFiniteError,
    StalledError,
    UnsavedError,
)
from distrl.launch.outcome import Outcome, is_accepted


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (DistrlError, 1, "failed"),
        (UnsavedError, 1, "failed"),
        (ConfigError, 2, "configuration"),
        (CheckpointError, 2, "configuration"),
        (EnvironmentFailedError, 3, "environment failed"),
        (StalledError, 4, "stalled"),
        (NonFiniteError, 5, "non-finite training"),
        (MemoryBackendError, 6, "memory backend"),
        (FencedError, 6, "memory backend"),
    ],
)
def test_an_error_of_distrl_s_own_has_its_code_and_reason(error, code, reason):
    assert Outcome.of(error("why")) == Outcome(code, reason, "why")


def test_other_exceptions():
    interrupted = Outcome.of(KeyboardInterrupt())
    assert (interrupted.exit_code, interrupted.stop_reason, interrupted.error) == (130, "interrupted", None)
    unexpected = Outcome.of(ZeroDivisionError("by zero"))
    assert (unexpected.exit_code, unexpected.stop_reason) == (1, "unexpected error")
    assert "by zero" in str(unexpected.error)


@pytest.mark.parametrize(
    ("outcome", "error", "accepted"),
    [
        (Outcome(2, "configuration"), None, False),
        (Outcome(6, "memory backend"), None, True),  # its roles have run, and their logs say more
        (Outcome(4, "stalled"), None, True),
        (Outcome(0, "asked"), None, True),
        (Outcome(6, "memory backend"), MemoryBackendError("Redis does not start"), False),
        (Outcome(1, "unexpected error"), TypeError("odd"), True),
        (Outcome(130, "interrupted"), KeyboardInterrupt(), True),
    ],
)
def test_a_launch_is_refused_only_before_its_learner_has_taken_unrolls_in(outcome, error, accepted):
    assert is_accepted(outcome, error, has_begun=False) == accepted
    assert is_accepted(outcome, error, has_begun=True)
