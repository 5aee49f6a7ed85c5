"""SLM-Lab's benchmark beside the presets: training returns at the end of the training, and the steps that it took."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks.measurement import Result
from benchmarks.report import number, table, training_score
from benchmarks.table import Row

PINNED = "faf3d9097d9d45fd10f31e19c724842efaf741be"
SOURCE = f"https://github.com/kengz/SLM-Lab/blob/{PINNED}/docs/BENCHMARKS.md"


class Score(NamedTuple):
    """A score of SLM-Lab v5.

    Attributes:
        algorithm: Its name there.
        value: "MA", the moving average of returns at the end of the training, of four sessions.
        steps: "max_frame", environment steps of the training.
    """

    algorithm: str
    value: float
    steps: int


SCORES = {
    "cartpole-ppo": Score("PPO", 495.62, 200_000),
    "cartpole-a2c": Score("A2C", 499.73, 200_000),
    "cartpole-dqn": Score("DQN", 188.07, 200_000),
    "cartpole-discrete-sac": Score("SAC", 414.97, 200_000),
    "acrobot-ppo": Score("PPO", -81.43, 300_000),
    "acrobot-a2c": Score("A2C", -83.75, 300_000),
    "acrobot-dqn": Score("DQN", -94.81, 300_000),
    "pendulum-ppo": Score("PPO", -168.26, 300_000),
    "pendulum-sac": Score("SAC", -148.67, 300_000),
    "lunarlander-ppo": Score("PPO", 159.02, 300_000),
    "lunarlander-dqn": Score("DQN", 183.64, 300_000),
    "halfcheetah-ppo": Score("PPO", 5851.70, 10_000_000),
    "halfcheetah-sac": Score("SAC", 7255.37, 2_000_000),
}
"""Row of the presets' table -> the same task and algorithm there."""


def beside_slm_lab(rows: Sequence[Row], by_row: Mapping[str, Sequence[Result]]) -> list[str]:
    """Return the words and the table of all measured rows that SLM-Lab has, too; nothing if there is none."""
    lines = [_line(row, SCORES[row.name], by_row[row.name]) for row in rows if row.name in SCORES and by_row[row.name]]
    if not lines:
        return []
    words = (
        f"Beside [SLM-Lab v5]({SOURCE}): ours is the mean return of the last 100 training episodes, the mean over the "
        "seeds. A preset's training ends early, at its goal; the steps are those of the seed that took most. SLM-Lab's "
        "is the moving average of returns at the end of the training, of four sessions, with settings of its own."
    )
    heads = ["Task", "distrl", "Training return", "Steps", "SLM-Lab", "Training return", "Steps"]
    return [f"{words}\n\n{table(heads, lines)}"]


def _line(row: Row, theirs: Score, results: Sequence[Result]) -> list[str]:
    mean = sum(training_score(result) for result in results) / len(results)
    ours = [number(mean), f"{max(result.env_steps for result in results):,}"]
    return [row.task, row.algorithm, *ours, theirs.algorithm, number(theirs.value), f"{theirs.steps:,}"]
