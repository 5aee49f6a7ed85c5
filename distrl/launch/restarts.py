"""The end of a role, as the parent of its host judges it: the run is over, or the role starts again."""

from collections.abc import Callable

from distrl.errors import EnvironmentFailedError, MemoryBackendError
from distrl.launch.fleet import SAME_ERROR, Fleet, FleetMember, how_it_ended
from distrl.launch.outcome import ENDS, UNKNOWN, Outcome
from distrl.role_kinds import KINDS


def fatal_end(member: FleetMember) -> Outcome | None:
    """Return the outcome if no other start of this role would help, by the exit code with which it ended."""
    role, code = member.role, _code(member)
    end = ENDS.get(code, UNKNOWN)
    if end.fatal_to not in ("all", role.kind):
        return None
    return Outcome(code, end.reason, f"{role.name}: {member.last_error or f'exit code {code}'}")


def restart(
    fleet: Fleet,
    member: FleetMember,
    reached: tuple[int, ...],
    report: Callable[[str], None],
    *,
    may_pass: bool = False,
) -> Outcome | None:
    """Schedule another start, or return the outcome if it would be in vain or the budget is spent.

    Args:
        reached: Progress of the run, without which equal errors in a row are in vain.
        report: Called with one line for the user.
        may_pass: Whether such an error may still pass by itself; the budget alone decides then.
    """
    role, code, error = member.role, _code(member), member.last_error
    repeats = member.repeats(error if ENDS.get(code, UNKNOWN).repeats else None, reached)
    if repeats and not may_pass:
        return Outcome(code, "keeps failing", f"{role.name} failed {SAME_ERROR} times in the same way: {error}")
    how = how_it_ended(code, error)
    delay = fleet.restart_later(member, outage=code == MemoryBackendError.exit_code)
    if delay is None:
        hung_in_environment = member.was_killed and KINDS[role.kind].steps_environments
        final = EnvironmentFailedError.exit_code if hung_in_environment else max(code, 1)
        budget = f"more often than actors.restart_budget {fleet.budget} allows"
        return Outcome(final, "restart budget spent", f"{role.name} ended {budget} ({how})")
    report(f"{role.name} ended ({how}); starting again in {delay:.1f} s")
    return None


def _code(member: FleetMember) -> int:
    assert member.last_code is not None  # it is among the dead
    return member.last_code
