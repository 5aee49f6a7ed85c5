"""A training in this process, without a command."""

from distrl.data_store.checkpoints import load_newest
from distrl.data_store.start_plan import StartPlan
from distrl.environments.vector import VectorEnvironment
from distrl.launch.deterministic import run_deterministic
from distrl.memory_backend.backend import connect
from distrl.memory_backend.stream import QueueCaps
from distrl.roles.description import RunDescription


def train(config, run_dir, updates, told=print):
    """Train in this process, from the newest checkpoint on, and return the last snapshot and the backend.

    Args:
        told: Takes lines about problems.
    """
    config = config.model_copy(update={"stop": config.stop.model_copy(update={"updates": updates})})
    environment = VectorEnvironment(config.environment, 1)
    environment.close()
    newest = load_newest(run_dir / "checkpoints") if run_dir.exists() else None
    update = 0 if newest is None else newest.step
    backend = connect("local:", "r", QueueCaps.of(config), name="test", give_up_s=1.0)
    start = StartPlan(update=update)
    description = RunDescription(
        run_id=f"r{update}", run_dir=str(run_dir), start=start, config=config, spec=environment.spec
    )
    backend.create(description.model_dump_json())
    snapshots = []
    assert run_deterministic(description, backend, snapshots.append, lambda: False, told) == "updates"
    return snapshots[-1], backend
