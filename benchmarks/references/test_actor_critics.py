"""SAC, TD3 and DDPG beside Stable-Baselines3's, TQC beside sb3-contrib's: whole updates."""

import pytest
from sb3_contrib import TQC
from stable_baselines3 import DDPG, SAC, TD3

from benchmarks.references import tasks
from benchmarks.references.actor_critics import as_the_paper, pair_up
from benchmarks.references.figures import agree, differ
from benchmarks.references.stable_baselines import LIKE_KERAS, TOGETHER, set_noise

SOFT = f"{LIKE_KERAS}; {TOGETHER}; temperature's loss; log π without 1e-6"


def soft_sides(monkeypatch, **options):
    """SAC with equal noise; `options` are those of `pair_up`."""
    set_noise(monkeypatch, tasks.noise())
    return pair_up(SAC, "sac", critics=2, settings={"ent_coef": "auto"}, **options)


def assert_soft(group, reference, sides, updates, note, losses=1.0):
    """Losses, temperature and all weights.

    Args:
        losses: distrl's critic loss is so many times the reference's.
    """
    critic_losses = [losses * loss for loss in sides.logged["train/critic_loss"]]
    after = f"after {updates} updates"
    agree(
        group,
        f"critics' loss of {updates} updates",
        reference,
        sides.metrics["critic_loss"],
        critic_losses,
        allowed=5e-5,
        note=note,
    )
    policy_losses = [  # distrl reports the policy's loss as the reference does: alpha log pi - Q
        sides.metrics["policy_loss"],
        sides.logged["train/actor_loss"],
    ]
    agree(group, f"policy's loss of {updates} updates", reference, *policy_losses, allowed=2e-5, note=note)
    agree(
        group,
        f"temperature {after}",
        reference,
        sides.metrics["temperature"],
        sides.logged["train/ent_coef"],
        allowed=1e-6,
        note=note,
    )
    agree(
        group,
        f"every weight of the critics {after}",
        reference,
        sides.critic.found,
        sides.critic.expected,
        allowed=5e-6,
        of=sides.critic.moved,
        note=note,
    )
    agree(
        group,
        f"every weight of the policy {after}",
        reference,
        sides.policy.found,
        sides.policy.expected,
        allowed=2e-5,
        of=sides.policy.moved,
        note=note,
    )


def test_sac(monkeypatch):
    sides = soft_sides(monkeypatch)
    as_the_paper(sides.theirs)
    sides.train(30)
    assert_soft("SAC", "SB3 SAC.train()", sides, 30, SOFT)


def test_sac_moves_policy_and_critics_at_once(monkeypatch):
    sides = soft_sides(monkeypatch, together=False)
    sides.train(30)
    reference, note = (
        "SB3 SAC.train()",
        "SB3's policy sees the critics after their step; its temperature's loss is by log alpha",
    )
    differ(
        "SAC",
        "every weight of the policy after 30 updates",
        reference,
        sides.policy.found,
        sides.policy.expected,
        least=2e-5,
        of=sides.policy.moved,
        note=note,
    )
    differ(
        "SAC",
        "temperature after 30 updates",
        reference,
        sides.metrics["temperature"],
        sides.logged["train/ent_coef"],
        least=1e-6,
        note=note,
    )


def test_tqc(monkeypatch):
    set_noise(monkeypatch, tasks.noise())
    critics = 3
    sides = pair_up(
        TQC,
        "tqc",
        critics=critics,
        gradient_scale=critics,
        settings={"ent_coef": "auto", "top_quantiles_to_drop_per_net": 2},
        policy_kwargs={"n_quantiles": 7},
        quantiles=7,
        dropped_quantiles=2,
    )
    as_the_paper(sides.theirs)
    sides.train(30)
    assert_soft("TQC", "sb3-contrib TQC.train()", sides, 30, f"{SOFT}; sum over critics", losses=critics)


@pytest.mark.parametrize(
    ("class_", "name", "critics", "sections"),
    [(TD3, "td3", 2, {}), (DDPG, "ddpg", 1, {})],
    ids=["td3", "ddpg"],
)
def test_deterministic(monkeypatch, class_, name, critics, sections):
    set_noise(monkeypatch, tasks.noise())
    sides = pair_up(class_, name, critics=critics, gradient_scale=0.5, **sections)
    sides.train(40)
    group, reference, after = name.upper(), f"SB3 {class_.__name__}.train()", "after 40 updates"
    note = f"{LIKE_KERAS}; {TOGETHER}; ½ of critics' loss"
    halves = [0.5 * loss for loss in sides.logged["train/critic_loss"]]
    agree(
        group, "critics' loss of 40 updates", reference, sides.metrics["critic_loss"], halves, allowed=2e-6, note=note
    )
    agree(
        group,
        f"every weight of the critics {after}",
        reference,
        sides.critic.found,
        sides.critic.expected,
        allowed=1e-6,
        of=sides.critic.moved,
        note=note,
    )
    agree(
        group,
        f"every weight of the policy {after}",
        reference,
        sides.policy.found,
        sides.policy.expected,
        allowed=1e-6,
        of=sides.policy.moved,
        note=note,
    )
