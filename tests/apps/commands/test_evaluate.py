"""`distrl evaluate` on a tiny run, on baselines, and on everything that can be wrong with them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import distrl
from distrl.actors.evaluator import Episode
from distrl.apps.commands import collecting, main
from distrl.config import RunConfig
from distrl.config.secrets import MASK
from distrl.errors import MissingExtraError, how_to_install
from distrl.terminal.console import QuietView

ENVIRONMENT = "distrl.environments.worlds.toy:Identity"


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """Identity with 2 symbols and 3 steps, learned for 4 updates."""
    tree = {
        "environment": {"id": ENVIRONMENT, "kwargs": {"n": 2, "length_steps": 3}},
        "network": {"middleware_parameters": {"scheme": [4]}},
        "actors": {"count": 0, "environments": 2, "unroll_length_steps": 3},
        "stop": {"updates": 4},
    }
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        config = RunConfig.model_validate(tree)
        summary = distrl.train(config, run_dir=folder, view=QuietView(write=lambda text: None))
    assert summary.exit_code == 0
    return folder


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    """An empty folder to work in, and no settings from outside."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DISTRL_DEBUG", raising=False)
    return tmp_path


def run(capfd, *arguments):
    """(exit code, stdout, stderr) of one `distrl evaluate`."""
    code = main.main(["evaluate", *map(str, arguments)])
    captured = capfd.readouterr()
    return code, captured.out, captured.err


def refused(capfd, *arguments):
    """The one line that an error is, without its beginning."""
    code, out, err = run(capfd, *arguments)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    return line.removeprefix("distrl: error: ")


@pytest.mark.row("D44")
def test_a_run_is_evaluated_as_text_and_as_json(run_dir, capfd):
    code, out, err = run(capfd, run_dir, "--episodes", 10, "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    returns = told.pop("returns")
    assert len(returns) == 10
    assert set(returns) <= {0.0, 1.0, 2.0, 3.0}
    assert told.pop("wall_s") > 0.0
    mean = sum(returns) / 10
    deviation = (sum((value - mean) ** 2 for value in returns) / 10) ** 0.5
    assert told == {
        "run": str(run_dir),
        "environment": ENVIRONMENT,
        "policy": "newest",
        "weights_version": 5,
        "env_steps_trained": 72,  # 16 unrolls of 2 x 3 rows, of which every fourth is padding after an episode
        "epsilon": 0.0,
        "seed": 0,
        "episodes": 10,
        "complete": True,
        "mean_return": pytest.approx(mean),
        "std_return": pytest.approx(deviation),
        "min_return": min(returns),
        "max_return": max(returns),
        "mean_length_steps": 3.0,
        "success_rate": None,
        "metrics": {},
        "cut_episodes": 0,
        "in": None,
        "lengths_steps": [3] * 10,
    }
    code, out, err = run(capfd, run_dir, "--episodes", 10)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"{ENVIRONMENT} · policy of {run_dir}, newest, 72 environment steps",
        f"  return   {mean:.2f} ± {deviation:.2f} over 10 episodes · min {min(returns):.2f} · max {max(returns):.2f}",
        "  length   3.0 steps mean · min 3 · max 3",
    ]


@pytest.fixture
def with_others(run_dir, tmp_path):
    """The run, as if it had evaluated in other environments, too."""
    folder = tmp_path / "others"
    shutil.copytree(run_dir, folder)
    tree = yaml.safe_load((folder / "config.yaml").read_text())
    others = {"long": {"kwargs": {"length_steps": 7}}, "wide": {"kwargs": {"n": 3}}, "key": {"kwargs": {"token": MASK}}}
    tree["evaluation"] |= {"every_env_steps": 9, "other_environments": others}
    (folder / "config.yaml").write_text(yaml.safe_dump(tree))
    return folder


def test_a_run_is_evaluated_in_one_of_its_other_environments(with_others, capfd):
    code, out, err = run(capfd, with_others, "--episodes", 4, "--in", "long")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"{ENVIRONMENT} (long) · policy of {with_others}, newest, 72 environment steps"
    assert lines[2] == "  length   7.0 steps mean · min 7 · max 7"
    told = json.loads(run(capfd, with_others, "--episodes", 4, "--in", "long", "--json")[1])
    assert (told["in"], told["lengths_steps"]) == ("long", [7] * 4)
    more = ("--in", "long", "--baseline", "random", "--json")
    assert json.loads(run(capfd, with_others, "--episodes", 4, *more)[1])["lengths_steps"] == [7] * 4


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("hard", "--in hard: the run's evaluation.other_environments are key, long, wide"),
        ("wide", "evaluation.other_environments.wide: "),
        ("key", "evaluation.other_environments.key.kwargs.token is a secret, which a data store does not keep"),
    ],
)
def test_another_environment_that_cannot_be_played_is_one_line(with_others, capfd, name, told):
    assert told in refused(capfd, with_others, "--in", name)


@pytest.mark.row("D85")
def test_an_epsilon_is_the_runs_unless_it_is_given(run_dir, capfd, tmp_path):
    def evaluated(folder, *more):
        told = json.loads(run(capfd, folder, "--episodes", 200, "--environments", 20, "--json", *more)[1])
        return told["epsilon"], told["mean_return"]

    greedy = evaluated(run_dir)
    assert greedy[0] == 0.0
    epsilon, mean = evaluated(run_dir, "--epsilon", 1)
    assert epsilon == 1.0
    assert mean == pytest.approx(1.5, abs=0.25)  # one of two symbols, three times
    other = tmp_path / "other"
    shutil.copytree(run_dir, other)
    config = (other / "config.yaml").read_text()
    assert "epsilon: 0.0" in config
    config = config.replace("epsilon: 0.0", "epsilon: 1.0").replace("every_env_steps: null", "every_env_steps: 9")
    (other / "config.yaml").write_text(config)
    assert evaluated(other) == (epsilon, mean)
    assert evaluated(other, "--epsilon", 0) == greedy
    assert ", epsilon 0.5\n" in run(capfd, run_dir, "--epsilon", 0.5, "--episodes", 1)[1]


def test_a_checkpoint_by_its_path_is_the_newest_policy_here(run_dir, capfd):
    def returns(*more):
        return json.loads(run(capfd, run_dir, "--episodes", 5, "--seed", 3, "--json", *more)[1])["returns"]

    (checkpoint,) = (run_dir / "checkpoints").glob("ckpt-*")
    assert returns("--checkpoint", checkpoint) == returns()
    told = json.loads(run(capfd, f"{run_dir}@4", "--episodes", 5, "--seed", 3, "--json")[1])
    assert (told["returns"], told["run"], told["policy"]) == (returns(), str(run_dir), str(checkpoint))


@pytest.mark.row("P07.4")
def test_an_environment_that_says_so_has_its_share_of_successes(capfd):
    """One bit of one is flipped: every episode succeeds."""
    flip = ["--env", "distrl.environments.worlds.bit_flip:BitFlip", "--set", "environment.kwargs={n: 1}"]
    arguments = [*flip, "--baseline", "random", "--episodes", 4]
    assert json.loads(run(capfd, *arguments, "--json")[1])["success_rate"] == 1.0
    assert "  success  100.0% of episodes\n" in run(capfd, *arguments)[1]


def test_metrics_of_the_environment_have_their_means(capfd):
    """Two bits, at most two steps, of which the last tells whether it arrived."""
    flip = ["--env", "distrl.environments.worlds.bit_flip:BitFlip", "--set", "environment.kwargs={n: 1}"]
    metrics = ["--set", "environment.metrics={is_success: sum, speed: mean}"]
    arguments = [*flip, *metrics, "--baseline", "random", "--episodes", 4]
    assert json.loads(run(capfd, *arguments, "--json")[1])["metrics"] == {"is_success": 1.0, "speed": None}
    text = run(capfd, *arguments)[1]
    assert "  is_success  1.00 mean\n" in text
    assert "  speed       not in info\n" in text


@pytest.mark.row("G33")
def test_baselines_need_no_run(capfd, run_dir):
    arguments = ["--episodes", 40, "--json", "--set", "environment.kwargs={n: 2, length_steps: 3}"]
    random = json.loads(run(capfd, "--env", ENVIRONMENT, "--baseline", "random", *arguments)[1])
    constant = ["--baseline", "constant", "--action", "1"]
    one = json.loads(run(capfd, "--env", ENVIRONMENT, *constant, *arguments)[1])
    other = json.loads(run(capfd, run_dir, *constant, *arguments[:3])[1])
    assert one["returns"] == other["returns"]  # the run's environment is the same
    assert (one["run"], one["policy"], one["weights_version"], one["env_steps_trained"]) == (
        None,
        "constant",
        None,
        None,
    )
    assert random["mean_return"] == pytest.approx(1.5, abs=0.5)
    assert one["mean_return"] == pytest.approx(1.5, abs=0.5)


def test_an_exported_file_plays_as_its_run_does(run_dir, capfd, workplace):
    assert main.main(["export", str(run_dir), "--output", "policy.onnx"]) == 0
    capfd.readouterr()
    options = ["--episodes", 6, "--json"]
    own = json.loads(run(capfd, run_dir, *options)[1])
    kwargs = ["--set", "environment.kwargs={n: 2, length_steps: 3}"]
    of_file = json.loads(run(capfd, "policy.onnx", *kwargs, *options)[1])
    assert of_file["returns"] == own["returns"]
    assert of_file["env_steps_trained"] == own["env_steps_trained"]
    assert (of_file["run"], of_file["environment"]) == ("policy.onnx", ENVIRONMENT)
    assert refused(capfd, "policy.onnx", "--env", "CartPole-v1").startswith("policy.onnx does not fit CartPole-v1: its")


def test_episodes_that_do_not_end_are_cut_short(capfd, workplace):
    """A function of the user's that balances the pole beyond any limit of steps, as gymnasium's own limit is off."""
    (workplace / "balancing.py").write_text(
        "def policy(seen):\n    return (seen @ [0.1, 0.2, 1.0, 1.0] > 0).astype(int)\n"
    )
    balanced = ["--env", "gymnasium.envs.classic_control.cartpole:CartPoleEnv", "--baseline", "balancing:policy"]
    options = ["--episodes", 3, "--environments", 2, "--max-episode-steps", 600]
    found = json.loads(run(capfd, *balanced, *options, "--json")[1])
    assert (found["lengths_steps"], found["cut_episodes"], found["complete"]) == ([600] * 3, 3, True)
    assert "\n  cut      3 of them after 600 steps\n" in run(capfd, *balanced, *options)[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "what to evaluate? A run or a file, distrl evaluate RUN, or a baseline: --env ID --baseline random"),
        (["here", "--env", "CartPole-v1"], "what to evaluate? A run or a file, distrl evaluate RUN, or a baseline"),
        (["nowhere"], "nowhere is not a run's directory: it holds no config.yaml"),
        (["--env", "CartPole-v1"], "--env needs --baseline random or constant; a policy is evaluated by its run"),
        (["--env", "CartPole-v9", "--baseline", "random"], "unknown environment 'CartPole-v9'; the nearest ids are"),
        (["--env", "CartPole-v1", "--baseline", "best"], "--baseline best is none of random, constant"),
        (["--env", "CartPole-v1", "--baseline", "constant"], "constant policy: action action has no value"),
        (["--env", "CartPole-v1", "--baseline", "random", "--checkpoint", "best"], "--checkpoint best goes with a run"),
        (
            ["--env", "CartPole-v1", "--baseline", "random", "--epsilon", "0.05"],
            "--epsilon 0.05 goes with a run's own policy, not with --baseline",
        ),
        (["here", "--action", "1"], "--action goes with --baseline constant"),
        (["here", "--set", "seed=1"], "--set goes with --env; the environment of a run is settled"),
        (
            ["--env", "CartPole-v1", "--baseline", "random", "--video", "film.avi"],
            "--video film.avi: films are .webm or .mp4 files",
        ),
        (["--env", "CartPole-v1", "--baseline", "constant", "--action", "[1"], "--action [1 is not valid YAML"),
        (
            ["--env", "CartPole-v1", "--baseline", "constant", "--action", "1", "--action", "0"],
            "--action 0: that action has a value already",
        ),
        (
            ["--env", "CartPole-v1", "--baseline", "constant", "--action", "a=1", "--action", "a=0"],
            "--action a=0: that action has a value already",
        ),
        (
            ["--env", "CartPole-v1", "--set", "environment.id=Acrobot-v1", "--baseline", "random"],
            "--set environment.id: --env CartPole-v1 names the environment",
        ),
        (
            ["--env", "CartPole-v1", "--set", "environment={id: Acrobot-v1}", "--baseline", "random"],
            "--set environment: only the environment is settled here; set environment.<what>",
        ),
        (
            ["--env", "CartPole-v1", "--set", "learner.batch_size=7", "--baseline", "random"],
            "--set learner.batch_size: only the environment is settled here; set environment.<what>",
        ),
        (["here.onnx"], "policy here.onnx cannot be read: No such file or directory"),
        (["here.onnx", "--in", "hard"], "--in hard goes with a run; here.onnx is one policy, which acts greedily"),
        (["here.onnx", "--baseline", "random"], "--baseline random goes with a run; here.onnx is one policy"),
        (["--env", "CartPole-v1", "--baseline", "random", "--force"], "--force goes with --video FILE.webm"),
    ],
)
def test_what_is_wrong_is_one_line(capfd, arguments, message):
    assert refused(capfd, *arguments).startswith(message)


def test_an_environment_that_is_not_installed_is_one_line(capfd, monkeypatch):
    def missing(config, count):
        raise MissingExtraError("what environment LunarLander-v3 needs", "box2d")

    monkeypatch.setattr("distrl.environments.vectors.vectorizations.make_vector", missing)
    told = refused(capfd, "--env", "LunarLander-v3", "--baseline", "random")
    assert told == f"what environment LunarLander-v3 needs is not installed: {how_to_install('box2d')}"


def test_a_run_that_has_saved_nothing_yet_is_one_line(capfd, workplace):
    (workplace / "young").mkdir()
    (workplace / "young" / "config.yaml").write_text("seed: 1\n")
    assert refused(capfd, "young") == "young holds no policy yet: the first one is saved with the first checkpoint"


@pytest.mark.row("D44")
def test_a_secret_that_a_store_does_not_keep_is_one_line(run_dir, capfd, workplace):
    copy = workplace / "copy"
    shutil.copytree(run_dir, copy)
    config = yaml.safe_load((copy / "config.yaml").read_text())
    config["environment"]["kwargs"]["api_key"] = MASK
    (copy / "config.yaml").write_text(yaml.safe_dump(config))
    assert refused(capfd, copy) == (
        "environment.kwargs.api_key is a secret, which a data store does not keep: evaluate the run's own directory"
    )


@pytest.mark.parametrize(("episodes", "code"), [(0, 0), (50, 130)])
def test_ctrl_c_tells_what_has_ended(capfd, monkeypatch, episodes, code):
    asked = []

    def three_and_ctrl_c(subject, **arguments):
        asked.append(arguments["episodes"])
        for total in (1.0, 2.0, 6.0):
            yield Episode(0, total, 4)
        raise KeyboardInterrupt

    monkeypatch.setattr("distrl.serving.evaluation.play", three_and_ctrl_c)
    arguments = ["--env", "CartPole-v1", "--baseline", "random", "--episodes", episodes]
    got, out, _ = run(capfd, *arguments)
    assert (got, asked) == (code, [episodes or None])  # endless ends in no other way
    assert "  return   3.00 ± 2.16 over 3 episodes · min 1.00 · max 6.00\n" in out
    assert "stopped before all had ended" in out
    told = json.loads(run(capfd, *arguments, "--json")[1])
    assert (told["complete"], told["returns"]) == (False, [1.0, 2.0, 6.0])


def test_ctrl_c_before_the_first_episode(capfd, monkeypatch):
    def ctrl_c(subject, **arguments):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr("distrl.serving.evaluation.play", ctrl_c)
    arguments = ["--env", "CartPole-v1", "--baseline", "random"]
    assert run(capfd, *arguments)[:2] == (130, "CartPole-v1 · random policy\n  no episode finished\n")
    assert json.loads(run(capfd, *arguments, "--json")[1])["mean_return"] is None


def test_a_terminal_sees_how_far_it_is_once_it_takes_long(capfd, monkeypatch):
    monkeypatch.setattr(collecting, "PATIENCE_S", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    _, out, err = run(capfd, "--env", ENVIRONMENT, "--baseline", "random", "--episodes", 300)
    assert "300/300" in err
    assert len(out.splitlines()) == 3  # standard output has the result alone


def test_a_film_from_the_command_line(capfd, workplace):
    cv2 = pytest.importorskip("cv2")
    world = [
        "--env",
        "distrl.environments.worlds.grid_world:GridWorld",
        "--set",
        "environment.kwargs={max_episode_steps: 6}",
    ]
    film = ["--video", "films/walk.mp4", "--video-episodes", 2]
    code, out, err = run(capfd, *world, "--baseline", "constant", "--action", "0", "--episodes", 2, *film, "--json")
    assert (code, err) == (
        2,
        "distrl: error: --video-episodes 2: the environment that is filmed plays 1 of 2 episodes; "
        "film fewer, or play in fewer --environments\n",
    )
    film += ["--environments", 1]
    code, out, _ = run(capfd, *world, "--baseline", "constant", "--action", "0", "--episodes", 2, *film)
    assert code == 0
    assert out.splitlines()[-1] == "  film     films/walk.mp4"
    assert "length   6.0 steps mean" in out
    assert int(cv2.VideoCapture("films/walk.mp4").get(cv2.CAP_PROP_FRAME_COUNT)) == 14  # 6 steps and a reset, twice
    again = [*world, "--baseline", "constant", "--action", "0", "--episodes", 1, "--video", "films/walk.mp4"]
    assert refused(capfd, *again).startswith("--video films/walk.mp4 is there already; add --force to replace it")
    assert run(capfd, *again, "--force")[0] == 0
    assert int(cv2.VideoCapture("films/walk.mp4").get(cv2.CAP_PROP_FRAME_COUNT)) == 7


CHATTY = """
from distrl.environments.worlds.toy import Bandit


class Chatty(Bandit):
    def step(self, action):
        print("look at me")
        return super().step(action)
"""
WALL = """
import sys
from distrl.apps.commands import main as cli
code = cli.main(["evaluate", *sys.argv[1:]])
walled = {"tensorflow", "keras", "jax", "tf2onnx", "onnx", "ray", "redis"} & sys.modules.keys()
sys.exit(f"imported: {sorted(walled)}" if walled else code)
"""


def test_what_environments_print_is_apart_and_no_framework_is_imported(run_dir, workplace):
    (workplace / "chatty.py").write_text(CHATTY)
    path = os.pathsep.join([str(Path(distrl.__file__).parent.parent), str(workplace)])
    for arguments in (["--env", "chatty:Chatty", "--baseline", "random"], [str(run_dir)]):
        done = subprocess.run(
            [sys.executable, "-c", WALL, *arguments, "--json", "--episodes", "3"],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["episodes"] == 3
    assert "look at me" not in done.stdout


@pytest.mark.parametrize("mask", ["action_mask", "legal"])
def test_the_random_baseline_chooses_what_is_allowed(capfd, workplace, mask):
    """Half of its choices are the better one of the two that are allowed."""
    environment = f"environment: {{id: distrl.environments.worlds.toy:Masked, kwargs: {{mask: {mask}}}}}\n"
    heads = "" if mask == "action_mask" else "network: {heads_parameters: [{kind: policy, action_mask: legal}]}\n"
    (workplace / "config.yaml").write_text(environment + heads)
    code, out, err = run(capfd, ".", "--baseline", "random", "--episodes", "200", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["mean_return"] == pytest.approx(4.0, abs=0.5)


@pytest.fixture(scope="module")
def data(run_dir, tmp_path_factory):
    """300 episodes of the run's policy, and 200 of random actions; of the latter a table without probabilities, too."""
    folder = tmp_path_factory.mktemp("data")
    own, uniform = f"{folder}/own-v0", f"{folder}/random-v0"
    assert main.main(["record", str(run_dir), "--episodes", "300", "--output", own]) == 0
    world = ["--env", ENVIRONMENT, "--set", "environment.kwargs={n: 2, length_steps: 3}"]
    assert main.main(["record", "random", *world, "--episodes", "200", "--output", uniform]) == 0
    rng = np.random.default_rng(0)
    rows = [(number, step, rng.integers(2), rng.integers(2)) for number in range(50) for step in range(3)]
    lines = [f"{symbol},{action},{float(symbol == action)},{n},{step == 2}" for n, step, symbol, action in rows]
    table = folder / "steps.csv"
    table.write_text("observation_0,action,reward,episode,terminated\n" + "\n".join(lines).replace("True", "1"))
    table.write_text(table.read_text().replace("False", "0"))
    return own, uniform, str(table)


COLUMNS = ("--columns", "{truncated: null}")


def test_data_of_the_policy_itself_has_equal_weights(run_dir, data, capfd):
    code, out, err = run(capfd, run_dir, "--data", data[0], "--interval", "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    estimates = {each.pop("estimator"): each for each in told.pop("estimates")}
    assert [*estimates] == ["ips", "wis", "dm", "dr", "sdr", "fqe"]
    discounted = told.pop("mean_discounted_return")
    for name in ("ips", "wis"):
        assert estimates[name]["value"] == pytest.approx(discounted, rel=1e-4)
    for name, each in estimates.items():
        assert each["low"] < each["value"] < each["high"]
        assert each["value"] == pytest.approx(discounted, rel=0.1)
        weighs = name in ("ips", "wis", "dr", "sdr")
        assert each["effective_episodes"] == (pytest.approx(300, rel=1e-4) if weighs else None)
    assert told.pop("mean_return") > discounted
    assert told == {
        "run": str(run_dir),
        "policy": "newest",
        "data": data[0],
        "seed": 0,
        "env_steps_trained": 72,
        "target": "draws from its distribution",
        "behaviour": "recorded",
        "discount": 0.99,
        "episodes": 300,
        "steps": 900,
    }


@pytest.mark.parametrize("arguments", [(), ("--behaviour", "bc")])
def test_random_actions_are_estimated_from_data_of_the_policy(run_dir, data, capfd, arguments):
    more = ("--epsilon", 1, "--discount", 0.9, "--interval", "--json", *arguments)
    told = json.loads(run(capfd, run_dir, "--data", data[0], *more)[1])
    true = 0.5 * (1 + 0.9 + 0.81)  # one of two symbols, three times
    # Observations do not tell the step: to a model each is the last one with probability 1/3.
    modelled = 0.5 / (1 - 0.9 * 2 / 3)
    for each in told["estimates"]:
        expected, most = (modelled, 0.02) if each["estimator"] in ("dm", "fqe") else (true, 0.15)
        assert each["value"] == pytest.approx(expected, abs=most)
    assert told["target"] == "draws from its distribution, or a random one with probability 1"
    assert told["behaviour"] == ("fitted to the actions" if arguments else "recorded")


def test_the_greedy_policy_is_estimated_as_it_is_played(run_dir, data, capfd):
    played = json.loads(run(capfd, run_dir, "--episodes", 300, "--json")[1])["mean_return"]
    told = json.loads(run(capfd, run_dir, "--data", data[1], "--greedy", "--discount", 1, "--json")[1])
    assert told["target"] == "takes its best action"
    for each in told["estimates"]:
        if each["estimator"] in ("ips", "wis", "sdr"):  # observations do not tell the step to a model
            assert each["value"] == pytest.approx(played, abs=0.4)


def test_estimates_are_a_table(run_dir, data, capfd):
    code, out, err = run(capfd, run_dir, "--data", data[1], "--estimator", "wis,fqe", "--interval")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"policy of {run_dir}, newest, 72 environment steps: draws from its distribution"
    assert lines[1] == f"  data       {data[1]}: 200 episodes, 600 steps"
    assert lines[2] == "  behaviour  recorded"
    assert lines[5].split() == ["estimator", "value", "95", "%", "interval", "effective", "episodes"]
    wis, fqe = (line.split() for line in lines[6:])
    assert (wis[0], wis[3], fqe[0], fqe[-1]) == ("wis", "…", "fqe", "–")
    assert float(wis[2]) < float(wis[1]) < float(wis[4])
    again = run(capfd, run_dir, "--data", data[1], "--estimator", "wis,fqe", "--interval")
    assert again == (code, out, err)  # draws come from the seed
    assert "interval" not in run(capfd, run_dir, "--data", data[1], "--estimator", "fqe")[1]


def test_a_table_without_probabilities_needs_a_fitted_policy(run_dir, data, capfd):
    told = "ips, wis, dr, sdr: {} lacks the probabilities of its actions; add --behaviour bc"
    assert refused(capfd, run_dir, "--data", data[2], *COLUMNS) == told.format(data[2])
    code, out, _ = run(capfd, run_dir, "--data", data[2], *COLUMNS, "--behaviour", "bc")
    assert code == 0
    assert "  behaviour  fitted to the actions\n" in out
    code, out, _ = run(capfd, run_dir, "--data", data[2], *COLUMNS, "--estimator", "dm,fqe")
    assert code == 0
    assert "  behaviour  unknown\n" in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--estimator", "fqe"], "--estimator goes with --data NAME, recorded episodes"),
        (["--greedy"], "--greedy goes with --data NAME, recorded episodes"),
        (["--data", "x", "--episodes", "3"], "--episodes is of episodes that are played; with --data nothing acts"),
        (["--data", "x", "--baseline", "random"], "--baseline is of episodes that are played; with --data nothing"),
        (["--data", "x", "--estimator", "ips,foo"], "--estimator foo: there are ips, wis, dm, dr, sdr, fqe; several"),
        (["--data", "x", "--behaviour", "td3"], "--behaviour td3: there is bc"),
        (["--data", "none"], "no data set none: neither a folder with Minari's metadata.json nor in"),
        (["--data", "none", "--columns", "coach"], "sets.0: columns are of a table, FILE.csv or FILE.parquet"),
        (["--data", "none.csv"], "none.csv cannot be read: "),
    ],
)
def test_what_cannot_be_estimated_is_one_line(run_dir, capfd, arguments, told):
    assert told in refused(capfd, run_dir, *arguments)


def test_one_episode_that_decides_has_no_interval(run_dir, workplace, capfd):
    """The policy that acted took its action once in a million steps, and those of the others every second time."""
    rows = [f'{n % 2},{n % 2},1.0,{n},1,"[0.5, 0.5]"' for n in range(9)] + ['1,1,0.0,9,1,"[0.999999, 0.000001]"']
    Path("steps.csv").write_text("observation_0,action,reward,episode,terminated,p\n" + "\n".join(rows))
    arguments = (run_dir, "--data", "steps.csv", "--columns", "{truncated: null, probabilities: p}", "--interval")
    estimates = json.loads(run(capfd, *arguments, "--json")[1])["estimates"]
    for each in estimates:
        assert (each["low"] is None) == (each["high"] is None) == (each["estimator"] == "wis")
    assert estimates[1]["effective_episodes"] == pytest.approx(1.0, abs=1e-3)
    wis = run(capfd, *arguments, "--estimator", "wis")[1].splitlines()[-1]
    assert wis.split()[2:] == ["one", "episode", "decides", "1.0"]


def test_estimates_need_a_run_and_weights(run_dir, data, capfd):
    assert refused(capfd, "--data", "x") == "--data goes with the policy of a run: distrl evaluate RUN --data NAME"
    # Random actions alone, of one episode: the policy may take none of them.
    part = ("--interval", "--estimator", "fqe")
    one = Path("one.csv")
    one.write_text("observation_0,action,reward,episode,terminated\n1,1,1.0,0,1\n")
    told = f"{Path.cwd() / one} has one episode, and an interval needs two"
    assert refused(capfd, run_dir, "--data", one, *COLUMNS, *part) == told
