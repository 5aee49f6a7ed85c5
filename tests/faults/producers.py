"""Simulated actors, many in one process: they join, wait, pull weights, push and beat as actors do, but act in nothing.

DISTRL_RUN_KEY_FILE=runs/first/run.key python -m tests.faults.producers URL RUN_ID FIRST COUNT
"""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from distrl.actors.admission import ActorProgress, Gate
from distrl.memory_backend.codec import decode_weights, encode_unroll
from distrl.memory_backend.records import RoleStatus
from distrl.roles.description import RunAddress
from distrl.roles.join import JoinedRole, await_bundle
from distrl.roles.plan import Role
from distrl.roles.trust import Trust, given_key
from distrl.types import STEP_FIELDS, Unroll, UnrollHeader, step_arguments
from distrl.unroll_schema import UnrollSchema

UNROLL_S = 1.0
"""Time for which a simulated actor acts."""
STARTS_PER_S = 25.0


class Producer(JoinedRole):
    """One simulated actor, of a run whose policy has no memory."""

    def __init__(self, number: int, address: RunAddress, stop: threading.Event) -> None:
        super().__init__(Role("actor", number), address, stop)
        self._incarnation = self._backend.registry.register_actor(number)
        self._progress = ActorProgress()
        self._version = 0

    def _work(self, cleanup: ExitStack) -> None:
        config, producer = self._run.config, (self._role.id, self._incarnation)
        steps, rows = config.actors.unroll_length_steps, config.actors.environments
        unroll = _unroll(UnrollSchema.of(self._run.description.spec, steps, rows, {}), UnrollHeader(*producer, 0, 0, 0))
        gate = Gate(config, self._backend, producer, self._stop.is_set, self._progress)
        if await_bundle(self._backend, self._stop) is None:
            return
        sequence = 0
        admission = gate.wait(self._backend.unrolls.admission())
        while admission is not None:
            if admission.weights_version != self._version and (fetched := self._backend.weights.fetch()) is not None:
                decode_weights(fetched.blob)
                self._version = fetched.version
            self._progress.state = "acting"
            self._stop.wait(UNROLL_S)
            self._progress.last_step_at = time.monotonic()
            header = UnrollHeader(*producer, sequence, self._version, steps * rows)
            admission = self._backend.unrolls.push(header, encode_unroll(replace(unroll, header=header)))
            gate.pushed(header)
            sequence += 1
            admission = gate.wait(admission)

    def status(self) -> RoleStatus:
        return replace(self._identity(), state=self._progress.state, weights_version=self._version)


def _unroll(schema: UnrollSchema, header: UnrollHeader) -> Unroll:
    """Return an unroll in which no episode ends."""

    def zeros(forms):
        return {name: np.zeros(shape, dtype) for name, (dtype, shape) in forms.items()}

    fields = zeros(schema.steps)
    fields["valid"][:] = True
    fields["behaviour_log_probabilities"][:] = -0.7
    assert set(fields) == {entry.name for entry in STEP_FIELDS}
    return Unroll(
        header=header,
        observations=zeros(schema.observations),
        actions=zeros(schema.actions),
        recurrent_state={},
        episode_returns=np.zeros(0, np.float32),
        episode_lengths_steps=np.zeros(0, np.int32),
        reward_moments={},
        **step_arguments(fields.__getitem__),
    )


def main(url: str, run_id: str, first: int, number: int) -> None:
    """Run the actors `first` to `first + number - 1` until the run ends."""
    stop = threading.Event()
    address = RunAddress(url, run_id, Trust(given_key()))
    with ThreadPoolExecutor(number) as pool:
        lives = []
        for actor in range(first, first + number):
            lives.append(pool.submit(Producer(actor, address, stop).run))
            stop.wait(1.0 / STARTS_PER_S)
        for life in as_completed(lives):
            stop.set()  # one that fails ends all
            life.result()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
