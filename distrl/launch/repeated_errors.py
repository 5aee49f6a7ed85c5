"""Roles that fail again and again in the same way, so that another start would be in vain."""

import re
from collections import defaultdict, deque

from distrl.errors import EnvironmentFailedError
from distrl.launch.outcome import ENDS, UNKNOWN
from distrl.learner.intake import DEATHS
from distrl.roles.plan import Role

SAME_ERROR = DEATHS + 1
"""Equal errors in a row that are hopeless: once more than learners may die of one unroll, which the next one drops."""


class RepeatedErrors:
    """The last errors of each role, without their numbers, such as that of a step."""

    def __init__(self) -> None:
        self._errors: dict[Role, deque[tuple[str, tuple[int, ...]]]] = defaultdict(lambda: deque(maxlen=SAME_ERROR))

    def is_hopeless(self, role: Role, code: int, error: str | None, reached: tuple[int, int], produced: int) -> bool:
        """Record a role's end; return whether its last ends had one error and there was no progress in between.

        An environment that has produced unrolls in this run may only be away for a while, such as a simulator on
        another host: the restart budget decides then.

        Args:
            reached: Progress of the learner.
            produced: Unrolls of all actors, which are progress for every role but the learner.
        """
        errors = self._errors[role]
        if error is None or not ENDS.get(code, UNKNOWN).repeats:
            errors.clear()
            return False
        produced = produced if role.kind != "learner" else 0
        errors.append((re.sub(r"\d+", "#", error), (*reached, produced)))
        may_come_back = code == EnvironmentFailedError.exit_code and produced > 0
        return len(errors) == SAME_ERROR and len(set(errors)) == 1 and not may_come_back

    def forget(self, role: Role) -> None:
        """Forget a role that was retired."""
        self._errors.pop(role, None)
