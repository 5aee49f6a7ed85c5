"""Titles of metrics on the dashboard, and the meaning of the algorithms' own ones."""

from collections.abc import Mapping

from distrl.config.off_policy import ESTIMATORS

ALGORITHMS: Mapping[str, tuple[str, str]] = {
    "mean_td_error": ("Mean TD error", "mean size of the temporal-difference error, which sets priorities"),
    "mean_q": ("Mean Q value", "mean estimated value of the actions taken"),
    "mean_target": ("Mean target", "mean value that the estimates are trained towards"),
    "td_loss": ("TD loss", "loss of the value estimates"),
    "critic_loss": ("Critic loss", "loss of the critic"),
    "clip_fraction": ("Clipped share", "share of the steps whose probability ratio was clipped"),
    "mean_ratio": (
        "Mean probability ratio",
        "mean probability of the actions, divided by that under the acting policy",
    ),
    "imitation_loss": ("Imitation loss", "loss of the imitation of recorded actions"),
    "conservative_loss": ("Conservative loss", "loss that lowers the values of choices that were not recorded"),
    "conservative_gap": ("Conservative gap", "soft maximum of all values above the value of the recorded action"),
    "margin_loss": ("Margin loss", "how far demonstrated choices miss the margin above others"),
    "mean_weight": ("Mean weight", "mean weight of recorded actions in the imitation"),
    "temperature": ("Temperature", "weight of the entropy"),
    "surrogate_gain": ("Gain of the surrogate", "increase of the surrogate objective by the accepted step"),
    "expected_gain": ("Expected gain", "increase of the surrogate objective by its linear model"),
    "step_fraction": ("Accepted part of the step", "part of the natural gradient's step that the line search accepted"),
}
"""Metrics of single algorithms -> title and meaning."""
TITLES: Mapping[str, str] = {
    **{name: title for name, (title, _) in ALGORITHMS.items()},
    "env_steps": "Steps",
    "sampled_steps": "Sampled steps",
    "replay_steps": "Steps in the replay memory",
    "replay_episodes": "Episodes in the replay memory",
    "mean_return_100": "Return",
    "min_return_100": "Least return",
    "max_return_100": "Greatest return",
    "std_return_100": "Deviation of the return",
    "mean_discounted_return_100": "Discounted return",
    "success_rate_100": "Success rate",
    "best_mean_return_100": "Best return",
    "evaluation_mean_return": "Evaluation",
    "evaluation_env_steps": "Steps at the evaluation",
    "evaluation_mean_discounted_return": "Discounted return of the evaluation",
    **{f"evaluation_off_policy_{name}": f"Estimate by {name}" for name in ESTIMATORS},
    "evaluation_success_rate": "Success rate of the evaluation",
    "best_evaluation_return": "Best evaluation",
    "mean_length_100_steps": "Length of episodes",
    "mean_rho": "Mean importance weight ρ",
    "kl": "KL divergence",
    "std_advantage": "Deviation of the advantage",
    "relu_zeros_max": "Zeros of a ReLU layer, at most",
    "policy_lag_mean": "Policy lag, mean",
    "policy_lag_p95": "Policy lag, 95th percentile",
    "policy_lag_max": "Policy lag, at most",
    "weights_version": "Version of the weights",
    "queue_entries": "Queued unrolls",
    "queue_bytes": "Size of the queue",
    "queue_fill": "Fill of the queue",
    "dropped": "Dropped unrolls",
    "dropped_stale": "Dropped: old weights",
    "dropped_duplicate": "Dropped: duplicates",
    "dropped_decode": "Dropped: not decoded",
    "dropped_schema": "Dropped: another shape",
    "dropped_nonfinite": "Dropped: NaN or infinity",
    "dropped_poison": "Dropped: crashed the learner",
    "env_steps_per_s": "Steps/s",
    "updates_per_s": "Updates/s",
    "episodes_per_s": "Episodes/s",
    "wire_bytes_per_s": "Payload of the actors",
    "learner_wait_share": "Waiting of the learner",
    "actors_blocked_share": "Waiting of the actors",
    "actors_up": "Actors",
    "rss_mb": "Memory",
    "cpu_cores": "CPU cores in use",
    "checkpoint_age_s": "Age of the checkpoint",
    "training_s": "Training",
    "wall_s": "Wall time",
}
"""Titles that the name does not give."""


def title_of(name: str) -> str:
    """Return the title of a number of a run; of one without its own, the name in words."""
    if name in TITLES:
        return TITLES[name]
    text = name.replace("_", " ")
    return text[:1].upper() + text[1:]
