"""MinAtar with DQN, beside the published scores of Daley et al. after as many frames.

    python -m benchmarks.minatar --only dqn-breakout --seeds 1 2 3 --out runs/minatar

The settings are those of `scripts/train_dqn_minatar.py` of "reg-duel-q" (commit 55abf1f): Adam, an update for every
fourth step. 100 greedy episodes judge the final weights. The published scores are means of 1,000 episodes with epsilon
0.01 of each of 30 trainings with their standard error, as a file of rl-jax (`PINNED`) has computed them from
reg-duel-q's results.
"""

from benchmarks.converted import Sets, network, replay
from benchmarks.scores import Entry, Scores

PINNED = "4fa7eec3"
SOURCE = (
    f"https://github.com/panahiparham/rl-jax/blob/{PINNED}/experiments/minatar_deterministic/"
    "reg_duel_q_dqn_reference.json"
)
STEPS = 1_000_000
THEIRS = {
    "MinAtar/Asterix-v1": (24.66, 0.54),
    "MinAtar/Breakout-v1": (16.43, 0.56),
    "MinAtar/Freeway-v1": (55.55, 0.34),
    "MinAtar/SpaceInvaders-v1": (79.55, 2.40),
}


def dqn() -> Sets:
    """Convert their settings."""
    return {
        "algorithm.name": "dqn",
        **network((128,), "relu", "uniform", 2.5e-4, 3.125e-4),
        "network.input_embedders_parameters.observation.scheme": [
            {"kind": "conv2d", "filters": 16, "kernel_size": 3},
        ],
        **replay(100_000, 32, 1_000, 1 / 4, 4),
        "algorithm.discount": 0.99,
        "algorithm.target_update_every_updates": 250,
        "exploration.kind": "epsilon_greedy",
        "exploration.epsilon": {"kind": "linear", "start": 1.0, "end": 0.01, "steps": 250_000},
    }


ENTRIES = tuple(Entry(task, "DQN", STEPS, score, dqn()) for task, score in THEIRS.items())
SCORES = Scores("minatar", f"[Daley et al. 2025]({SOURCE}): 30 trainings", ENTRIES)


def main(arguments: list[str] | None = None) -> int:
    """Measure and report."""
    return SCORES.main((__doc__ or "").splitlines()[0], arguments)


if __name__ == "__main__":
    raise SystemExit(main())
