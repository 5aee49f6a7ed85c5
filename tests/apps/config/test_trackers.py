"""The section trackers: how it is turned on, and what is refused in one line."""

import traceback

import pytest

from distrl.apps.config.configuration import load
from distrl.errors import ConfigError

SECRET = "open" + "sesame"


def trackers(*sets, **layers):
    return load(sets=[*sets], **layers).config.trackers


def test_there_is_none_unless_one_is_named():
    assert not trackers().used
    assert load().config.end_s == 0


def test_the_option_turns_on_what_the_file_may_describe():
    file = {"trackers": {"wandb": {"project": "robots", "tags": ["a"]}, "own": {"m:T": {"x": 1}}}}
    found = trackers(file=file, track=["wandb", "mlflow", "m:T", "package.module:Class"])
    assert (found.wandb.project, found.wandb.tags, found.mlflow.experiment) == ("robots", ("a",), "distrl")
    assert found.own == {"m:T": {"x": 1}, "package.module:Class": {}}


def test_a_value_turns_its_tracker_on_and_null_turns_it_off():
    assert trackers("trackers.wandb.mode=offline").wandb.mode == "offline"
    assert not trackers("trackers.wandb=null", track=["wandb"]).used


def test_the_origin_of_a_tracker_is_shown():
    loaded = load(sets=["trackers.wandb.group=night"], track=["wandb"])
    assert loaded.origins["trackers.wandb.group"] == "flag --set"
    assert loaded.origins["trackers.wandb.project"] == "flag --track"


def test_the_end_of_a_job_may_take_longer():
    assert load(sets=["trackers.give_up_s=9.5"], track=["wandb"]).config.end_s == 10


@pytest.mark.parametrize(
    ("sets", "reason"),
    [
        (["trackers.wandb.project=a/b"], "trackers.wandb.project: "),
        (["trackers.wandb.mode=sometimes"], "trackers.wandb.mode: "),
        (["trackers.wandb.tags=['']"], "trackers.wandb.tags"),
        (["trackers.mlflow.experiment=''"], "trackers.mlflow.experiment: "),
        (["trackers.own={my_module: {}}"], "trackers.own.my_module"),
        (["trackers.give_up_s=0", "trackers.wandb={}"], "trackers.give_up_s: "),
        (["trackers.give_up_s=5"], "trackers: give_up_s has no use without a tracker, such as wandb: {}"),
        (["trackers.tensorboard={}"], "unknown key trackers.tensorboard"),
    ],
)
def test_what_cannot_be_is_refused(sets, reason):
    with pytest.raises(ConfigError) as refused:
        load(sets=sets)
    assert str(refused.value).startswith(reason)
    assert "\n" not in str(refused.value)


def test_a_name_that_is_no_tracker_is_refused():
    with pytest.raises(ConfigError, match="--track comet: there are wandb, mlflow, and classes of your own as package"):
        load(track=["comet"])


def test_a_password_is_refused_and_not_shown():
    given = [f"trackers.mlflow.tracking_uri=postgresql://me:{SECRET}@h/db"]
    with pytest.raises(ConfigError, match=r"holds a password.* MLFLOW_TRACKING_URI") as refused:
        load(sets=given)
    assert SECRET not in "".join(traceback.format_exception(refused.value))
