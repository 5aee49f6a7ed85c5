"""MuJoCo with Tianshou's settings, beside Tianshou's own scores after 100,000 updates.

    python -m benchmarks.tianshou --only 'sac-*' --seeds 1 2 3 --out runs/tianshou

The settings are those of its `examples/mujoco/mujoco_sac.py`, `mujoco_td3.py` and `mujoco_ddpg.py` (commit 68a17f7),
under its names. The first steps are random and without updates; then there is an update for every step. 100 greedy
episodes judge the final weights. Tianshou's score is the mean of ten trainings and its standard deviation, each by
greedy episodes of ten environments, at `env_step` 100,000 of its `test_rew_10seeds.csv`, which does not count the
random steps. Its environments are of v3, as of 2021.
"""

from benchmarks.converted import Sets, network, replay
from benchmarks.scores import Entry, Scores

PINNED = "39acf2094d96268d92ebb54dcbfc3de76d702567"
SOURCE = f"https://github.com/thu-ml/tianshou/tree/{PINNED}/examples/mujoco/benchmark"
UPDATES = 100_000


def _shared(start_timesteps: int, lr: float) -> Sets:
    return {
        **network((256, 256), "relu", "uniform", lr, 1e-8),
        **replay(1_000_000, 256, start_timesteps, 1.0, 1),
    }


def sac() -> Sets:
    """Convert `mujoco_sac.py`: the temperature stays at 0.2."""
    return {
        "algorithm.name": "sac",
        **_shared(start_timesteps=10_000, lr=1e-3),
        "algorithm.initial_temperature": 0.2,
        "algorithm.temperature_learning_rate": 0.0,
        "exploration.kind": "policy",
    }


def deterministic(name: str, lr: float) -> Sets:
    """Convert `mujoco_td3.py` and `mujoco_ddpg.py`."""
    return {
        "algorithm.name": name,
        **_shared(start_timesteps=25_000, lr=lr),
        "algorithm.target_update_rate": 0.005,
        "exploration.kind": "gaussian_noise",
        "exploration.stddev": {"kind": "constant", "value": 0.05},  # of the range, 2: their 0.1
    }


SETTINGS = {"SAC": sac(), "TD3": deterministic("td3", 3e-4), "DDPG": deterministic("ddpg", 1e-3)}
# v5 observes 78 contact forces, too, which were zeros in v3.
TASKS: dict[str, Sets] = {
    **{task: {} for task in ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Swimmer-v5")},
    "Ant-v5": {"environment.kwargs.include_cfrc_ext_in_observation": False},
}
THEIRS = {
    "HalfCheetah-v5": {"SAC": (6514.62, 514.23), "TD3": (5335.78, 376.49), "DDPG": (6308.28, 1011.47)},
    "Hopper-v5": {"SAC": (2613.46, 990.78), "TD3": (596.53, 287.83), "DDPG": (904.48, 396.26)},
    "Walker2d-v5": {"SAC": (1305.25, 795.09), "TD3": (483.18, 173.87), "DDPG": (112.94, 77.84)},
    "Swimmer-v5": {"SAC": (39.87, 1.49), "TD3": (44.83, 6.82), "DDPG": (54.99, 14.77)},
    "Ant-v5": {"SAC": (1019.80, 449.90), "TD3": (827.74, 224.28), "DDPG": (-286.08, 141.43)},
}


def _entry(task: str, algorithm: str) -> Entry:
    settings = SETTINGS[algorithm] | TASKS[task]
    steps = UPDATES + settings["exploration.random_steps"]
    return Entry(task, algorithm, steps, THEIRS[task][algorithm], settings)


ENTRIES = tuple(_entry(task, algorithm) for task in TASKS for algorithm in SETTINGS)
SCORES = Scores("tianshou", f"[Tianshou]({SOURCE}): ten trainings", ENTRIES)


def main(arguments: list[str] | None = None) -> int:
    """Measure and report."""
    return SCORES.main((__doc__ or "").splitlines()[0], arguments)


if __name__ == "__main__":
    raise SystemExit(main())
