"""Permissions to start an unroll, for finite staleness: the learner issues, an actor takes one, its push releases it.

A ticket is always in exactly one list: free, or held by a producer. Moves are atomic (BLMOVE), so an actor that dies at
any moment leaves its ticket where `reclaim` finds it.
"""

from distrl.memory_backend.backend import TicketBox
from distrl.memory_backend.keys import RunKeys
from distrl.memory_backend.redis_client import RedisClient, Reply
from distrl.memory_backend.registry_interface import Producer
from distrl.memory_backend.resp import Command

_TICKET = "1"


class RedisTicketBox(TicketBox):
    """The lists `tickets` and `held:<actor>.<incarnation>`."""

    def __init__(self, client: RedisClient, keys: RunKeys) -> None:
        self._client = client
        self._keys = keys

    def issue(self, count: int, fence: int) -> None:
        """Adds `count` free tickets, exactly once.

        Raises:
            FencedError: `fence` is not the newest.
        """
        commands: list[Command] = [("RPUSH", self._keys.tickets, *[_TICKET] * count)] if count else []
        self._client.fenced(self._keys, fence, lambda _replies: commands, "issuing tickets")

    def take(self, producer: Producer, block_s: float) -> bool:
        """Moves one free ticket to `producer`; False after `block_s` seconds without one."""
        held = self._keys.held(producer)

        def command(piece_s: float) -> Command:
            if piece_s:
                return ("BLMOVE", self._keys.tickets, held, "LEFT", "RIGHT", piece_s)
            return ("LMOVE", self._keys.tickets, held, "LEFT", "RIGHT")

        def moved() -> Reply | None:
            # A producer asks only while it holds none: after a broken connection it holds the ticket just moved.
            return self._client.call("LINDEX", held, 0)

        return self._client.call_blocking(command, block_s, moved) is not None

    def reclaim(self, producer: Producer) -> int:
        """Puts back what a dead producer holds; returns how many tickets that were."""
        held = self._keys.held(producer)
        count = self._client.call("LLEN", held)
        if not count:
            return 0
        moves: list[Command] = [("LMOVE", held, self._keys.tickets, "LEFT", "RIGHT")] * count
        return sum(ticket is not None for ticket in self._client.transaction(moves))

    def counts(self) -> tuple[int, int]:
        """(free, held), of one instant for all producers that held a ticket when the call began."""
        held = self._client.keys(self._keys.all_held)
        free, *lengths = self._client.transaction([("LLEN", self._keys.tickets), *[("LLEN", key) for key in held]])
        return free, sum(lengths)
