"""The optimizer's parameters of one network, under Coach's names where users know them."""

import re
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from distrl.config.section import Section

OptimizerType = Literal["Adam", "AdamW", "RMSProp", "SGD", "Nadam", "Adagrad", "Adadelta", "Muon", "LBFGS"]

# As they are compared: lower case, letters only. RLgraph and TensorForce write gradient_descent, momentum, rmsprop, ...
_NAMES = {
    "adam": "Adam",
    "adamw": "AdamW",
    "rmsprop": "RMSProp",
    "sgd": "SGD",
    "gradientdescent": "SGD",
    "momentum": "SGD",
    "nadam": "Nadam",
    "adagrad": "Adagrad",
    "adadelta": "Adadelta",
    "muon": "Muon",
    "lbfgs": "LBFGS",
}
_MOMENTUM_OF_ALIAS = 0.9

_BY_GRADIENT = ("Adam", "AdamW", "RMSProp", "SGD", "Nadam", "Adagrad", "Adadelta", "Muon")
_USED_BY: dict[str, tuple[str, ...]] = {
    "learning_rate": _BY_GRADIENT,
    "learning_rate_decay_rate": _BY_GRADIENT,
    "learning_rate_schedule": _BY_GRADIENT,
    "learning_rate_warm_up_updates": _BY_GRADIENT,
    "clip_gradients": _BY_GRADIENT,
    "optimizer_epsilon": ("Adam", "AdamW", "RMSProp", "Nadam", "Adagrad", "Adadelta", "Muon"),
    "adam_optimizer_beta1": ("Adam", "AdamW", "Nadam", "Muon"),
    "adam_optimizer_beta2": ("Adam", "AdamW", "Nadam", "Muon"),
    "rms_prop_optimizer_decay": ("RMSProp",),
    "rms_prop_initial_accumulator": ("RMSProp",),
    "adadelta_rho": ("Adadelta",),
    "momentum": ("SGD", "RMSProp"),
    "nesterov": ("SGD",),
    "weight_decay": ("AdamW", "Muon"),
    "lbfgs_max_iterations": ("LBFGS",),
}
"""Option -> the optimizers that use it. Others that only make sense beside one of these are not listed."""


def users_of(option: str) -> tuple[str, ...]:
    """Return the optimizers that use an option; empty for options of all of them."""
    return _USED_BY.get(option, ())


class OptimizerParameters(Section):
    """Parameters of the optimizer. `NetworkParameters` inherits all of them.

    An option that the chosen optimizer does not use is an error, unless it is at its default.
    """

    optimizer_type: OptimizerType = "Adam"
    """In any case; gradient_descent is SGD, and momentum is SGD with momentum 0.9 unless that is given."""
    learning_rate: float = Field(0.00025, gt=0.0)
    """Step size of the optimizer; schedules start from it."""
    learning_rate_decay_rate: float = Field(0.0, ge=0.0, lt=1.0)
    """Exponential staircase: learning_rate * rate ** floor(update / learning_rate_decay_steps). 0: constant."""
    learning_rate_decay_steps: int = Field(0, ge=0)
    """Updates between two steps of the staircase."""
    learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """From learning_rate to learning_rate_final within learning_rate_schedule_updates; instead of the staircase."""
    learning_rate_schedule_updates: int = Field(0, ge=0)
    """Length of the schedule linear or cosine."""
    learning_rate_final: float = Field(0.0, ge=0.0)
    """Final rate of linear and cosine."""
    learning_rate_warm_up_updates: int = Field(0, ge=0)
    """Updates in which the rate first grows from 0 to learning_rate; a schedule begins after them."""
    optimizer_epsilon: float | None = Field(None, gt=0.0)
    """null: 1e-4 for Adam, AdamW and RMSProp, as in Coach; 1e-7 for all others, as in Keras."""
    adam_optimizer_beta1: float = Field(0.9, ge=0.0, lt=1.0)
    """Decay of the mean of gradients, also in what Muon does with vectors."""
    adam_optimizer_beta2: float = Field(0.99, ge=0.0, lt=1.0)
    """As beta1. Coach's; Keras and the paper have 0.999."""
    rms_prop_optimizer_decay: float = Field(0.9, ge=0.0, lt=1.0)
    rms_prop_initial_accumulator: float = Field(0.0, ge=0.0)
    """Where RMSProp's mean of squares starts: 0 as in Keras, 1 as in TensorFlow 1."""
    adadelta_rho: float = Field(0.95, ge=0.0, lt=1.0)
    momentum: float = Field(0.0, ge=0.0, lt=1.0)
    """Momentum of SGD and RMSProp. Muon has its own, 0.95."""
    nesterov: bool = False
    """SGD's momentum looks ahead."""
    weight_decay: float = Field(0.004, ge=0.0)
    """AdamW and Muon alone: every update first shrinks all weights by learning_rate * weight_decay of themselves."""
    lbfgs_max_iterations: int = Field(20, ge=1)
    """LBFGS alone: iterations on one batch, which is one update. Every batch starts without curvature."""
    clip_gradients: float | None = Field(None, gt=0.0)
    """Bound of gradients, as gradients_clipping_method measures it; null: no clipping."""
    gradients_clipping_method: Literal["ClipByGlobalNorm", "ClipByNorm", "ClipByValue"] = "ClipByGlobalNorm"
    """By the norm of all gradients together, by the norm of each, or element by element."""

    @property
    def unused(self) -> list[str]:
        """Options that the chosen optimizer does not use; they are at their defaults."""
        return [option for option, users in _USED_BY.items() if self.optimizer_type not in users]

    @property
    def epsilon(self) -> float:
        """`optimizer_epsilon`, or this optimizer's default."""
        if self.optimizer_epsilon is not None:
            return self.optimizer_epsilon
        return 1e-4 if self.optimizer_type in ("Adam", "AdamW", "RMSProp") else 1e-7

    @model_validator(mode="before")
    @classmethod
    def _spell_name(cls, given: Any) -> Any:
        """Return optimizer_type in its canonical form; the field refuses unknown names."""
        if not isinstance(given, dict) or not isinstance(given.get("optimizer_type"), str):
            return given
        plain = re.sub(r"[\s_-]", "", given["optimizer_type"]).lower()
        if plain not in _NAMES:
            return given
        implied = {"momentum": _MOMENTUM_OF_ALIAS} if plain == "momentum" else {}
        return {**implied, **given, "optimizer_type": _NAMES[plain]}

    @model_validator(mode="after")
    def _all_options_are_used(self) -> Self:
        for option, users in _USED_BY.items():
            if self.optimizer_type not in users and self.is_changed(option):
                names = " and ".join([", ".join(users[:-1]), users[-1]] if len(users) > 1 else users)
                raise ValueError(f"{option} is used by {names} alone, optimizer_type is {self.optimizer_type}")
        if self.nesterov and self.momentum == 0.0:
            raise ValueError("nesterov needs momentum > 0")
        if self.clip_gradients is None and self.gradients_clipping_method != "ClipByGlobalNorm":
            raise ValueError(f"gradients_clipping_method {self.gradients_clipping_method} needs clip_gradients")
        return self

    @model_validator(mode="after")
    def _schedule_is_whole(self) -> Self:
        if (self.learning_rate_decay_rate > 0) != (self.learning_rate_decay_steps > 0):
            raise ValueError("learning_rate_decay_rate and learning_rate_decay_steps must be set together")
        schedule = self.learning_rate_schedule
        if schedule == "constant":
            for option in ("learning_rate_schedule_updates", "learning_rate_final"):
                if getattr(self, option) != 0:
                    raise ValueError(f"{option} needs learning_rate_schedule linear or cosine")
        elif self.learning_rate_schedule_updates == 0:
            raise ValueError(f"learning_rate_schedule {schedule} needs learning_rate_schedule_updates > 0")
        elif self.learning_rate_decay_rate > 0:
            raise ValueError(f"learning_rate_schedule {schedule} and learning_rate_decay_rate exclude each other")
        return self
