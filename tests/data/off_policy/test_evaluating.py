"""The whole evaluation of policies that an earlier version saved, from what they themselves have acted."""

import json

import numpy as np
import pytest

from distrl.apps.commands.main import main
from distrl.config.data import DataConfig
from distrl.config.off_policy import ESTIMATORS
from distrl.data.episodes import DataError
from distrl.data.minari_sets import MinariEpisodes, path_of
from distrl.data.off_policy.evaluating import Wanted, of_run
from distrl.data.off_policy.target import Target
from distrl.serving.evaluation import run_config


@pytest.fixture
def evaluation(runs):
    """Makes an evaluation, and shows the data to the policy."""

    def make(name, **wanted):
        run, data = runs[name]
        made, _ = of_run(run, "newest", run_config(run), DataConfig(sets=str(data)), Wanted(**wanted))
        assert len([*made.play()]) == made.episodes
        return made

    return make


@pytest.mark.parametrize("fits_behaviour", [False, True])
def test_estimates_from_the_policys_own_choices_are_its_return(evaluation, fits_behaviour):
    made = evaluation("cartpole", interval=True, fits_behaviour=fits_behaviour, discount=0.9)
    true = made.mean_return(0.9)
    estimates = {each.estimator: each for each in made.estimates()}
    assert [*estimates] == [*ESTIMATORS]
    if not fits_behaviour:
        assert estimates["wis"].value == estimates["ips"].value == pytest.approx(true, rel=1e-3)
        assert estimates["wis"].effective_episodes == pytest.approx(150, rel=1e-3)
    for each in estimates.values():
        assert each.low < each.value < each.high
        assert each.value == pytest.approx(true, rel=0.05)


def test_estimates_from_the_policys_own_real_numbers_are_its_return(evaluation):
    made = evaluation("pendulum", discount=0.9)
    true = made.mean_return(0.9)
    for each in made.estimates():
        assert each.value == pytest.approx(true, rel=0.1)


@pytest.mark.row("D139")
def test_a_table_of_another_library_is_estimated_as_the_same_episodes_of_minari(runs, tmp_path, monkeypatch, capsys):
    """The columns are those of Intel RL Coach's data set of Acrobot-v1, of which CartPole-v1 has four features."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    assert main(["record", "random", "--env", "CartPole-v1", "--episodes", "40", "--output", "cartpole/random"]) == 0
    features = ",".join(f"state_feature_{place}" for place in range(4))
    lines = [f"action,all_action_probabilities,episode_id,episode_name,reward,transition_number,{features}"]
    read = MinariEpisodes("cartpole/random", path_of("cartpole/random")).read(range(40))
    for number, episode in enumerate(read):
        for step, action in enumerate(episode.actions):
            shown = ",".join(map(str, episode.observations[step].tolist()))
            lines.append(f'{action},"[0.5,0.5]",{number},cartpole,{episode.rewards[step]},{step},{shown}')
    (tmp_path / "coach.csv").write_text("\n".join(lines))
    estimates = []
    for data in (["cartpole/random"], [str(tmp_path / "coach.csv"), "--columns", "coach"]):
        capsys.readouterr()
        assert main(["evaluate", str(runs["cartpole"][0]), "--discount", "0.5", "--json", "--data", *data]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["behaviour"], told["episodes"]) == ("recorded", 40)
        estimates.append({each["estimator"]: each for each in told["estimates"]})
    minari, coach = estimates
    for name in ("ips", "wis"):
        for figure in ("value", "effective_episodes"):
            assert coach[name][figure] == pytest.approx(minari[name][figure], rel=1e-6)
    for name in ("dm", "dr", "sdr", "fqe"):  # the table lacks the last observations, to which features are scaled
        assert coach[name]["value"] == pytest.approx(minari[name]["value"], rel=0.05)


def test_estimates_are_the_seeds(evaluation):
    def found(seed):
        return [*evaluation("cartpole", estimators=("sdr", "fqe"), interval=True, seed=seed).estimates()]

    assert found(0) == found(0)
    assert found(0) != found(1)


def test_a_policy_that_takes_none_of_the_actions_is_refused(evaluation, monkeypatch):
    made = evaluation("cartpole", estimators=("wis",))

    def never(target, outputs, actions, allowed):
        return np.full(len(actions["action"]), -np.inf)

    monkeypatch.setattr(Target, "log_probabilities", never)
    with pytest.raises(DataError, match="wis: the policy would have acted in none of the episodes as it was recorded"):
        next(made.estimates())
    wis, fqe = evaluation("cartpole", estimators=("wis", "fqe"), needs_all=False).estimates()
    assert wis.problem == "the policy would have acted in none of the episodes as it was recorded"
    assert (wis.value, fqe.problem) == (None, None)
    assert fqe.value is not None


def test_a_deterministic_policy_of_real_numbers_has_no_weights(runs, monkeypatch):
    monkeypatch.setattr("distrl.data.off_policy.target.UndrawnFamily", object)  # takes its mean
    run, data = runs["pendulum"]
    with pytest.raises(DataError, match="ips, wis: the policy has one action for each observation; choose dm, fqe"):
        of_run(run, "newest", run_config(run), DataConfig(sets=str(data)), Wanted(("ips", "wis", "fqe")))
