"""Permissions to start an unroll, for finite staleness: the learner issues, an actor takes one, its push releases it.

A ticket is always in exactly one list: free, or held by a producer. Moves are atomic (BLMOVE), so an actor that dies at
any moment leaves its ticket where `reclaim` finds it.
"""

from distrl.memory_backend.engine import Command, Reply, RunStore
from distrl.memory_backend.records import Producer

_TICKET = "1"


class TicketBox:
    """The lists `tickets` and `held:<actor>.<incarnation>`."""

    def __init__(self, run: RunStore) -> None:
        self._run, self._engine, self._keys = run, run.engine, run.keys

    def issue(self, count: int) -> None:
        """Add `count` free tickets, exactly once.

        Raises:
            FencedError: Another learner has taken over.
        """
        commands: list[Command] = [("RPUSH", self._keys.tickets, *[_TICKET] * count)] if count else []
        self._run.fenced(lambda _replies: commands, "issuing tickets")

    def recount(self, outstanding: int, *, forget_held: bool) -> None:
        """Issue or withdraw free tickets until `outstanding` are free, held, or used by an unroll in the stream.

        A ticket that Redis takes for free or lost, while an actor works under it, shows up with that actor's unroll.

        Args:
            forget_held: Remove the tickets that Redis takes for held: their actors may have pushed since, or ended.

        Raises:
            FencedError: Another learner has taken over.
        """
        keys = self._keys
        held = keys.all_held(self._engine.call("HGETALL", keys.incarnations))
        lengths: list[Command] = [("LLEN", key) for key in held]
        free, entries, *counts = self._engine.transaction([("LLEN", keys.tickets), ("XLEN", keys.unrolls), *lengths])
        commands: list[Command] = [("DEL", *held)] if forget_held and held else []
        missing = outstanding - free - entries - (0 if forget_held else sum(counts))
        if missing > 0:
            commands.append(("RPUSH", keys.tickets, *[_TICKET] * missing))
        elif missing < 0 and free:
            commands.append(("LPOP", keys.tickets, min(-missing, free)))
        if commands:
            self._run.fenced(lambda _replies: commands, "counting the tickets")

    def take(self, producer: Producer, block_s: float) -> bool:
        """Move one free ticket to `producer`; False after `block_s` seconds without one."""
        held = self._keys.held(producer)

        def command(piece_s: float) -> Command:
            if piece_s:
                return ("BLMOVE", self._keys.tickets, held, "LEFT", "RIGHT", piece_s)
            return ("LMOVE", self._keys.tickets, held, "LEFT", "RIGHT")

        def moved() -> Reply | None:
            # A producer calls this only while it holds none: after a broken connection it holds the ticket just moved.
            return self._engine.call("LINDEX", held, 0)

        return self._engine.call_blocking(command, block_s, moved) is not None

    def give_back(self, producer: Producer) -> None:
        """Free the ticket that `take` has just moved, whichever launch it is of."""
        self._engine.call("LMOVE", self._keys.held(producer), self._keys.tickets, "LEFT", "RIGHT")

    def reclaim(self, producer: Producer) -> int:
        """Free the tickets of a dead producer; return their number.

        Raises:
            FencedError: The run was launched again. A producer there may have the same number.
        """
        held = self._keys.held(producer)
        count = self._engine.call("LLEN", held)
        if not count:
            return 0
        moves: list[Command] = [("LMOVE", held, self._keys.tickets, "LEFT", "RIGHT")] * count
        return sum(ticket is not None for ticket in self._run.write(moves))

    def counts(self) -> tuple[int, int]:
        """Return (free, held) at one instant, over all producers that were registered when the call began."""
        held = self._keys.all_held(self._engine.call("HGETALL", self._keys.incarnations))
        free, *lengths = self._engine.transaction([("LLEN", self._keys.tickets), *[("LLEN", key) for key in held]])
        return free, sum(lengths)
