"""Weights & Biases as a tracker."""

import os
import shlex
from collections.abc import Mapping
from typing import Any

from distrl.apps.trackers.tracker import Ending, TrackedRun
from distrl.errors import ConfigError

# W&B would report its own errors to its makers.
os.environ.setdefault("WANDB_ERROR_REPORTING", "false")


class WandbTracker:
    """A W&B run of the run's id. Its rows are counted by updates, and its charts are drawn over environment steps.

    Args:
        parameters: The section `trackers.wandb`.
    """

    def __init__(self, **parameters: Any) -> None:
        self._parameters = parameters

    def begin(self, run: TrackedRun) -> str:
        import wandb

        # W&B would also store the command line, which may hold secrets, the state of git, and the output.
        settings = wandb.Settings(console="off", silent=True, disable_git=True, save_code=False, x_disable_meta=True)
        named = self._parameters | {"name": self._parameters["name"] or run.run_dir.name}
        self._run = wandb.init(
            id=run.run_id, resume="allow", dir=run.run_dir, config=dict(run.config), settings=settings, **named
        )
        self._run.define_metric("*", step_metric="env_steps")
        if self._run.offline:
            return f"offline; wandb sync {shlex.quote(self._run.settings.sync_dir)} uploads it"
        return str(self._run.url)

    def record(self, row: Mapping[str, float], step: int) -> None:
        self._run.log(dict(row), step=int(row["updates"]))

    def end(self, ending: Ending) -> None:
        self._run.finish(exit_code=ending.exit_code)


def require_login(mode: str | None) -> None:
    """Raise ConfigError if runs go to the server and this machine has no key.

    Args:
        mode: `trackers.wandb.mode`.
    """
    if (mode or os.environ.get("WANDB_MODE", "online")) != "online" or os.environ.get("WANDB_API_KEY"):
        return
    import wandb

    wandb.setup(wandb.Settings(silent=True))  # else it would ask the server for the name of the account
    if not wandb.login(prompt=False, verify=False):
        raise ConfigError(
            "W&B has no key of an account on this machine; run wandb login, set WANDB_API_KEY, or add "
            "--set trackers.wandb.mode=offline"
        )
