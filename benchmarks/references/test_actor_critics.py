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


def assert_loss(group, reference, sides, updates, note, times, allowed):
    """The critics' loss of every update; distrl's is so many `times` the reference's."""
    expected = [times * loss for loss in sides.logged["train/critic_loss"]]
    what = f"critics' loss of {updates} updates"
    agree(group, what, reference, sides.metrics["critic_loss"], expected, allowed=allowed, note=note)


def assert_weights(group, reference, sides, updates, note, critics, policy):
    """All weights; `critics` and `policy` are the allowed differences."""
    for name, twins, allowed in (("critics", sides.critic, critics), ("policy", sides.policy, policy)):
        what = f"every weight of the {name} after {updates} updates"
        agree(group, what, reference, twins.found, twins.expected, allowed=allowed, of=twins.moved, note=note)


def assert_soft(group, reference, sides, updates, note, times=1.0):
    """Losses, temperature and all weights."""
    assert_loss(group, reference, sides, updates, note, times, 5e-5)
    for what, found, expected, allowed in (  # distrl reports the policy's loss as the reference does: alpha log pi - Q
        (f"policy's loss of {updates} updates", "policy_loss", "train/actor_loss", 2e-5),
        (f"temperature after {updates} updates", "temperature", "train/ent_coef", 1e-6),
    ):
        agree(group, what, reference, sides.metrics[found], sides.logged[expected], allowed=allowed, note=note)
    assert_weights(group, reference, sides, updates, note, critics=5e-6, policy=2e-5)


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
    assert_soft("TQC", "sb3-contrib TQC.train()", sides, 30, f"{SOFT}; sum over critics", times=critics)


@pytest.mark.parametrize(("class_", "name", "critics"), [(TD3, "td3", 2), (DDPG, "ddpg", 1)], ids=["td3", "ddpg"])
def test_deterministic(monkeypatch, class_, name, critics):
    set_noise(monkeypatch, tasks.noise())
    sides = pair_up(class_, name, critics=critics, gradient_scale=0.5)
    sides.train(40)
    told = name.upper(), f"SB3 {class_.__name__}.train()", sides, 40, f"{LIKE_KERAS}; {TOGETHER}; ½ of critics' loss"
    assert_loss(*told, 0.5, 2e-6)
    assert_weights(*told, critics=1e-6, policy=1e-6)
