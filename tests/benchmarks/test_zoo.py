import pytest

from benchmarks import zoo
from benchmarks.measurement import keep, train_command
from benchmarks.provenance import resolved
from benchmarks.report import report_tree
from distrl.replay.rate_limiter import RateLimiter

BY_NAME = {entry.name: entry for entry in zoo.ENTRIES}


def config(name):
    return resolved(BY_NAME[name].row)


@pytest.mark.parametrize("name", BY_NAME)
def test_every_entry_is_a_configuration_of_one_process(name):
    assert config(name).actors.count == 0
    assert config(name).environment.id == BY_NAME[name].task


def test_names_are_their_own():
    assert len(BY_NAME) == len(zoo.ENTRIES)


def test_minibatches_are_counted_and_the_learning_rate_ends_with_the_training():
    ppo = config("ppo-cartpole")
    assert (ppo.algorithm.minibatches, ppo.algorithm.epochs) == (1, 20)  # 8 x 32 steps in minibatches of 256
    steps = ppo.actors.environments * ppo.actors.unroll_length_steps
    updates = -(-BY_NAME["ppo-cartpole"].steps // steps)
    assert ppo.network.learning_rate_schedule_updates == updates * ppo.algorithm.epochs * ppo.algorithm.minibatches
    assert config("ppo-lunarlander").algorithm.minibatches == 16 * 1024 // 64
    assert config("trpo-acrobot").algorithm.value_minibatches == 2 * 1024 // 128


def test_values_are_trained_as_often_as_there():
    dqn = config("dqn-cartpole")
    assert dqn.algorithm.replay.samples_per_insert == 64 * 128 / 256
    assert dqn.algorithm.target_update_every_updates == 128  # all that follow each other without a step
    assert dqn.exploration.epsilon.steps == 0.16 * 50_000
    assert config("dqn-mountaincar").algorithm.target_update_every_updates == 38 * 8  # 600 steps are 37.5 rounds of 16
    assert config("qr-dqn-acrobot").network.heads_parameters[0].quantiles == 25
    assert config("sac-pendulum").algorithm.replay.samples_per_insert == 256.0  # an update a step
    assert config("sac-pendulum").algorithm.replay.min_size_steps == 100
    rates = {config(f"{name}-pendulum").algorithm.target_update_rate for name in ("sac", "td3", "ddpg")}
    assert rates == {0.005}  # Stable-Baselines3's tau, of every one of them
    assert config("ddpg-pendulum").actors.unroll_length_steps == 200  # an episode


def test_layers_begin_as_theirs():
    uniform = {name for name in BY_NAME if config(name).network.initial_weights == "uniform"}
    assert BY_NAME.keys() - uniform == {name for name in BY_NAME if name.startswith(("ppo-", "trpo-"))} - {
        "ppo-halfcheetah",
        "ppo-hopper",
    }


def test_mujocos_policies_are_theirs():
    cheetah, walker = config("ppo-halfcheetah"), config("ppo-walker2d")
    assert [head.kind for head in cheetah.network.heads_parameters] == ["ppo", "value"]
    assert cheetah.network.heads_parameters[0].initial_log_sigma == -2.0
    assert (cheetah.algorithm.minibatches, walker.algorithm.minibatches) == (512 // 64, 512 // 32)
    assert cheetah.algorithm.value_loss_weight == 2 * 0.58096
    assert walker.network.middleware_parameters.activation == "tanh"
    assert config("ppo-swimmer").algorithm.minibatches == 4 * 1024 // 256


@pytest.mark.parametrize("name", [name for name in BY_NAME if "dqn" in name])
def test_a_new_target_network_comes_between_two_rounds_of_updates(name):
    algorithm, actors, learner = (getattr(config(name), section) for section in ("algorithm", "actors", "learner"))
    per_round = algorithm.replay.samples_per_insert * actors.unroll_length_steps / learner.batch_size
    limiter = RateLimiter(algorithm.replay.samples_per_insert, algorithm.replay.min_size_steps)
    for _ in range(100):
        limiter.insert(actors.unroll_length_steps)
        updates = 0
        while limiter.may_sample(learner.batch_size):
            limiter.sample(learner.batch_size)
            updates += 1
        assert updates in (0, per_round)
    assert algorithm.target_update_every_updates % per_round == 0


def test_updates_begin_where_they_begin_there():
    """1,024 is CartPole's first multiple of 256 steps beyond its 1,000."""
    replay = config("dqn-cartpole").algorithm.replay
    limiter = RateLimiter(replay.samples_per_insert, replay.min_size_steps)
    limiter.insert(3 * 256)
    assert not limiter.may_sample(64)
    limiter.insert(256)
    assert limiter.may_sample(64)


def test_the_command_names_everything_itself(tmp_path):
    command = train_command(BY_NAME["td3-pendulum"].row, 3, tmp_path)
    assert "--preset" not in command
    assert 'environment.id="Pendulum-v1"' in command
    assert "stop.env_steps=20000" in command


def test_the_table_has_their_scores_beside_ours(result, tmp_path):
    rows = [BY_NAME["ppo-cartpole"].row, BY_NAME["dqn-acrobot"].row]
    results = [result("ppo-cartpole", 1, 499.0), result("ppo-cartpole", 2, 500.0)]
    keep(tmp_path / "zoo.json", report_tree(rows, results, {}, "c", [1, 2]))
    *_, heads, _, first, second = zoo.SCORES.block(tmp_path / "zoo.json").splitlines()
    assert heads.endswith("one training |")
    assert first == "| CartPole-v1 | PPO | 100,000 | 499 | 500 | 499.5 | 500 ± 0 |"
    assert second == "| Acrobot-v1 | DQN | 100,000 | – | – | – | −76.6 ± 11.75 |"


def test_the_page_is_what_the_committed_report_says(page_agrees):
    assert page_agrees("zoo", zoo.SCORES.block)
