"""The plan that `distrl submit` prints, as text and as JSON."""

from dataclasses import asdict
from typing import Any

from distrl.apps.jobs.record import CONFIG_FILE, Job
from distrl.apps.jobs.target import Plan
from distrl.roles.plan import RoleNeed


def plan_text(job: Job, target: str, plan: Plan) -> str:
    """Return the plan in lines: roles, resources, directory, code, what is not protected, and notes."""
    place = f"{target} at {job.address}" if job.address else target
    needs = _amounts(sum(need.count * need.cpus for need in plan.roles), sum(n.count * n.gpus for n in plan.roles))
    lines = [
        " · ".join([f"run {job.run_id} on {place}", *map(_role, plan.roles)]),
        " · ".join([f"needs {needs}", *([f"there: {plan.available}"] if plan.available else [])]),
        " · ".join([_directory(job, plan), *_store(job), *_code(plan)]),
        *(f"not protected: {text}" for text in plan.unprotected),
        *(f"note: {text}" for text in plan.notes),
    ]
    return "\n".join([f"plan  {lines[0]}", *(f"      {line}" for line in lines[1:])])


def plan_json(job: Job, target: str, plan: Plan) -> dict[str, Any]:
    """Return the plan as plain data, without the files."""
    return {
        "run_id": job.run_id,
        "target": target,
        "address": job.address,
        "run_dir": plan.run_dir or str(job.run_dir),
        "disk": plan.disk,
        "store": job.config.checkpoint.store,
        "roles": [asdict(need) for need in plan.roles],
        "available": plan.available,
        "code": plan.code,
        "unprotected": [*plan.unprotected],
        "notes": [*plan.notes],
    }


def files(job: Job, plan: Plan) -> dict[str, str]:
    """Return what is submitted: name -> text without secrets, the same at every call."""
    return {CONFIG_FILE: job.config_text(secrets=False), **plan.files}


def _directory(job: Job, plan: Plan) -> str:
    return f"directory {plan.run_dir or job.run_dir}{f' on {plan.disk}' if plan.disk else ''}"


def _store(job: Job) -> list[str]:
    store = job.config.checkpoint.store
    return [] if store is None else [f"store {store}/{job.run_id}"]


def _code(plan: Plan) -> list[str]:
    return [f"code {plan.code}"] if plan.code else []


def _role(need: RoleNeed) -> str:
    name = need.role if need.count == 1 else f"{need.role}s"
    each = _amounts(need.cpus, need.gpus)
    return f"{name} {need.count} × {f'({each})' if need.gpus else each}"


def _amounts(cpus: float, gpus: int) -> str:
    return f"{cpus:g} CPU" + (f", {gpus} GPU" if gpus else "")
