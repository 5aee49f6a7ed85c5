"""Work that the learner does between two updates, beside training: evaluations, requests, recovery, saving, reports.

Each kind is an `Attendant` (attendant.py) in a module of its own. `attendants` lists them in the order of their work.
`Session` calls them; the update itself belongs to `learner/learner.py`.
"""

from collections.abc import Callable, Sequence

from distrl.config import RunConfig
from distrl.learner.attendants.attendant import Attendant
from distrl.learner.attendants.diagnostics import Diagnostics, NonFiniteBatches
from distrl.learner.attendants.evaluations import Evaluations
from distrl.learner.attendants.operator_requests import CurriculumRules, OperatorRequests
from distrl.learner.attendants.recovery import Recovery
from distrl.learner.attendants.reporter import Reporter
from distrl.learner.attendants.saver import Saver
from distrl.learner.learner import Learner
from distrl.learner.preparation import Parts


def attendants(
    parts: Parts,
    learner: Learner,
    reporter: Reporter,
    own: Sequence[Attendant],
    *,
    stop: Callable[[], bool],
    attend: Callable[[], None],
    steer: Callable[[RunConfig], None],
    saved: Callable[[int], None],
) -> tuple[Attendant, ...]:
    """Make the attendants of a learner.

    Args:
        own: Those of its launch mode; they follow settings before evaluations are read.
        stop: Returns whether a stop is requested.
        attend, steer, saved: Call the method of that name on all attendants.
    """
    config, state, networks, backend = parts.config, parts.state, parts.networks, parts.backend
    saver = Saver(
        checkpointer=parts.make_checkpointer(),
        learner=learner,
        network=networks["main"],
        run_dir=parts.run_dir,
        registry=backend.registry,
        reporter=reporter,
        tell=saved,
        strict=config.deterministic,
        mirror=parts.mirror,
    )
    requests = OperatorRequests(
        config, parts.spec.adjustable, state, backend.registry, parts.algorithm, networks, parts.staleness, saver, steer
    )
    evaluations: tuple[Attendant, ...] = ()
    if config.evaluation.every_env_steps is not None:
        evaluations = (Evaluations(config, state, backend, parts.run_dir / "policy", reporter, saver, attend, stop),)
    return (
        CurriculumRules(requests, state, backend.registry),
        *own,
        *evaluations,
        Recovery(backend, learner, parts.bundle, parts.recover_ledger, failed_over=parts.failed_over),
        requests,
        NonFiniteBatches(parts.run_dir / "logs", networks["main"]),
        saver,
        Diagnostics(config, parts.algorithm, networks, state, parts.run_dir, reporter, parts.waits),
        reporter,
    )
