"""The engine under a run: a few primitives, implemented by Redis (`redis_client`) and by an imitation (`local`).

Commands are those of Redis, as tuples; replies have the types of redis-py. The nouns (stream, weights, tickets, ledger
and registry) are written once, over these primitives.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from distrl.errors import FencedError, MissingRunError
from distrl.memory_backend.keys import RunKeys, checked_number

log = logging.getLogger(__name__)

Value = str | bytes | int | float
Command = tuple[Value, ...]
Reply = Any  # the callers know their commands


class Engine(ABC):
    """One connection.

    Attributes:
        url: Of the server, without user and password.
        interruptions: Number of times the connection broke or was dropped because the server refused commands. Each
            time, another server may answer next, and it may have lost the newest writes.
        survived: Number of interruptions after which the run was still there.
        failovers: Number of times that another history of the data was found after a reconnect: a replica has taken
            over, or the server was restarted. The newest writes may be gone. It grows before the first reply for a key
            is seen; each connection counts for itself.
        history: Name of the data's history on the server that answered last; "" if it does not allow INFO.
        keeps_expiring: Whether keys with a time to live are safe while they live: False where the server removes such
            keys first when it is full.
    """

    url: str
    interruptions: int
    survived: int
    failovers: int
    history: str
    keeps_expiring: bool

    @abstractmethod
    def goes_on_from(self, history: str) -> bool:
        """Return whether the server that answered last has all that was written under `history`, an earlier one.

        True for "". Of a Cluster, where a slot may have been moved meanwhile, True unless a replica has taken over.
        """

    @abstractmethod
    def call(self, *command: Value) -> Reply:
        """Run one command that may be repeated."""

    @abstractmethod
    def transaction(self, commands: Sequence[Command]) -> list[Reply]:
        """Run commands atomically. Repeated if the reply is lost: applying them twice must be harmless."""

    @abstractmethod
    def guarded(
        self,
        guard: Command,
        check: Callable[[Reply], None],
        commands: Sequence[Command],
        *,
        applied: str,
        undo: Sequence[Command] = (),
        wait: Command | None = None,
    ) -> list[Reply]:
        """Run commands in one transaction, if `check` accepts the reply to `guard`.

        Repeated if the reply is lost: applying them twice must be harmless. Takes one round trip after another
        transaction with the same guard.

        Args:
            guard: A command that reads one key. The transaction fails if the key changes after it.
            check: Raises if nothing may be applied.
            applied: As of `exactly_once`, for `undo`.
            undo: Commands applied exactly once if only the first of `commands` has failed.
            wait: A blocking command that is sent ahead. Its reply is ignored, and it is not repeated.
        """

    @abstractmethod
    def exactly_once(
        self,
        guard: Command,
        prepare: Callable[[Reply, Sequence[Reply]], Sequence[Command]],
        what: str,
        *,
        applied: str,
        reads: Sequence[Command] = (),
    ) -> None:
        """Apply commands exactly once, in one transaction, which repeats if the guard's key has changed.

        Args:
            guard: A command that reads one key.
            prepare: Given the replies to `guard` and `reads`, returns the commands; may raise. Runs again after a
                conflict.
            what: Name of the operation, for errors.
            applied: Key of the hash with the newest such operation of each client.
            reads: Further commands that only read. Without them it takes one round trip after another operation with
                the same guard.
        """

    @abstractmethod
    def call_blocking(
        self, command: Callable[[float], Command], block_s: float, recover: Callable[[], Reply | None]
    ) -> Reply | None:
        """Run a blocking command until it replies or `block_s` has passed.

        Args:
            command: Makes the command for a piece of that many seconds; 0 means without blocking.
            block_s: Longest wait in seconds.
            recover: Called before the command is repeated after a broken connection. Returns the items that it had
                moved although its reply was lost, or None.
        """

    @abstractmethod
    def confirm(self) -> bool:
        """Wait up to a second until a replica holds what this connection has written.

        Returns:
            False if replicas are connected and none has confirmed it, or if another server has taken over meanwhile,
            which may not hold it. True also where none is connected, or where the server does not allow INFO and WAIT.
        """

    @abstractmethod
    def keys(self, pattern: str) -> list[str]:
        """Return the names of the keys that match; not atomic."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""


class Fence(NamedTuple):
    """A learner's token, by which it is the only one that writes.

    Attributes:
        number: Which learner of the run it is, from 1.
        holder: A random name. After a fail-over that forgot one learner, the next one has its number.
    """

    number: int
    holder: str


@dataclass(frozen=True)
class RunStore:
    """One run on an engine, and the guards of all writes into it.

    Attributes:
        launch: Token of the launch to which the caller belongs; None: any launch, for commands of operators.
        fence: The learner's token; None for other roles.
    """

    engine: Engine
    keys: RunKeys
    launch: str | None = None
    fence: Fence | None = None

    def write(
        self, commands: Sequence[Command], *, undo: Sequence[Command] = (), wait: Command | None = None
    ) -> list[Reply]:
        """Apply commands if the launch stands, so that a late write creates or changes no keys of another one.

        Raises:
            MissingRunError: The run is gone.
            FencedError: The run was launched again.
        """
        guard: Command = ("HGET", self.keys.run, "launch")
        return self.engine.guarded(guard, self.check_launch, commands, applied=self.keys.applied, undo=undo, wait=wait)

    def write_one(self, *command: Value) -> Reply:
        """Apply one command, as `write` does, and return its reply."""
        (reply,) = self.write([command])
        return reply

    def fenced(
        self, prepare: Callable[[Sequence[Reply]], Sequence[Command]], what: str, reads: Sequence[Command] = ()
    ) -> None:
        """Apply the commands that `prepare` makes of the replies to `reads`, exactly once, if this learner is newest.

        If Redis has forgotten the learner's token, in a fail-over, the same transaction puts it back. Of two learners
        whose tokens it has forgotten, the newer one prevails.

        Args:
            prepare: As of `Engine.exactly_once`.
            what: The operation, for errors.
            reads: Commands that only read.

        Raises:
            FencedError: Another learner has a newer token, or the run was launched again; nothing was changed.
            MissingRunError: The run is gone.
        """
        fence = self.fence
        if fence is None:
            raise TypeError(f"{what}: only what Backend.become_learner returns can do that")

        def checked(guarded: Reply, replies: Sequence[Reply]) -> Sequence[Command]:
            launch, number, holder = guarded
            self.check_launch(launch, f"{what}: ")
            newest = checked_number(number, f"the token of {self.keys.run_id}'s learner")
            ours = newest == fence.number and holder == fence.holder.encode()
            if newest >= fence.number and not ours:
                another = f"another learner runs {self.keys.run_id} (token {newest}, ours {fence.number})"
                raise FencedError(f"{what}: {another}; stop this one")
            restored: list[Command] = [("HSET", self.keys.run, "fence", fence.number, "learner", fence.holder)]
            return [*([] if ours else restored), *prepare(replies)]

        guard: Command = ("HMGET", self.keys.run, "launch", "fence", "learner")
        self.engine.exactly_once(guard, checked, what, applied=self.keys.applied, reads=reads)

    def confirm(self, what: str) -> None:
        """Wait until a replica, if there is one, holds what was just written; log a warning if none confirms it.

        Args:
            what: The subject of the warning.
        """
        if not self.engine.confirm():
            log.warning("no replica of Redis has confirmed %s: a fail-over now would forget it", what)

    def check_launch(self, found: Reply, what: str = "") -> None:
        """Raise unless the launch that Redis holds is the caller's.

        Args:
            found: Reply to HGET of the field `launch`.
            what: The operation and a colon, for errors.

        Raises:
            MissingRunError: There is none.
            FencedError: It is another one.
        """
        if found is None:
            raise self._gone(what)
        if self.launch is not None and found != self.launch.encode():
            raise FencedError(
                f"{what}run {self.keys.run_id} at {self.engine.url} was launched again, and this role belongs to an "
                "earlier launch; start it anew to join the new one"
            )
        self.engine.survived = self.engine.interruptions

    def _gone(self, what: str) -> MissingRunError:
        ended = self.engine.survived == self.engine.interruptions
        why = "it has ended" if ended else "it has ended, or Redis has lost its data"
        return MissingRunError(f"{what}run {self.keys.run_id} is gone from {self.engine.url}: {why}", ended=ended)
