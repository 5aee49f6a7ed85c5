from pathlib import Path

from distrl.apps.config.configuration import load
from distrl.apps.jobs.plan_text import files, plan_json, plan_text
from distrl.apps.jobs.record import Job
from distrl.apps.jobs.target import Plan
from distrl.roles.plan import RoleNeed

PLAN = Plan(
    [RoleNeed("learner", 1, 4, 1), RoleNeed("actor", 32, 1), RoleNeed("evaluator", 1, 1)],
    available="120 idle",
    code="1.2 MB",
    unprotected=["one", "two"],
    notes=["three"],
    files={"script": "#!/bin/sh\n"},
)


def job(**changes):
    told = {"run_id": "pong-7f3a", "loaded": load(sets=["seed=7"]), "run_dir": Path("/runs/pong-7f3a")}
    return Job(**(told | changes))


def test_a_plan_is_a_few_lines():
    assert plan_text(job(address="http://head:8265"), "ray", PLAN).splitlines() == [
        "plan  run pong-7f3a on ray at http://head:8265 · learner 1 × (4 CPU, 1 GPU) · actors 32 × 1 CPU · "
        "evaluator 1 × 1 CPU",
        "      needs 37 CPU, 1 GPU · there: 120 idle",
        "      directory /runs/pong-7f3a · code 1.2 MB",
        "      not protected: one",
        "      not protected: two",
        "      note: three",
    ]
    assert plan_text(job(), "here", Plan([RoleNeed("learner", 1, 1)])).splitlines() == [
        "plan  run pong-7f3a on here · learner 1 × 1 CPU",
        "      needs 1 CPU",
        "      directory /runs/pong-7f3a",
    ]


def test_a_directory_of_the_target_is_shown_with_its_disk():
    plan = Plan([RoleNeed("learner", 1, 1)], run_dir="/runs/x", disk="the claim x-runs")
    assert plan_text(job(), "kubernetes", plan).splitlines()[2] == "      directory /runs/x on the claim x-runs"
    facts = plan_json(job(), "kubernetes", plan)
    assert (facts["run_dir"], facts["disk"]) == ("/runs/x", "the claim x-runs")


def test_a_plan_is_plain_data():
    facts = plan_json(job(), "here", PLAN)
    assert facts["roles"][0] == {"role": "learner", "count": 1, "cpus": 4, "gpus": 1}
    assert (facts["run_id"], facts["unprotected"], facts["notes"]) == ("pong-7f3a", ["one", "two"], ["three"])
    assert "files" not in facts


def test_the_configuration_is_among_the_files():
    assert files(job(), PLAN) == {"job.yaml": "seed: 7  # flag --set\n", "script": "#!/bin/sh\n"}
