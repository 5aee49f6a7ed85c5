import pytest

import distrl
from distrl.apps.config.configuration import load
from distrl.errors import ConfigError
from tests.apps.agents.conftest import SMALL

FLOATS = {"type": "float", "shape": (4,)}
CHOICE = {"type": "int", "num_actions": 3}

PPO = {
    "type": "ppo_agent",
    "update_mode": {"unit": "timesteps", "batch_size": 60},
    "memory": {"type": "latest", "include_next_states": False, "capacity": 5000},
    "step_optimizer": {"type": "adam", "learning_rate": 1e-2},
    "subsampling_fraction": 0.1,
    "optimization_steps": 50,
    "discount": 0.98,
    "entropy_regularization": 0.02,
    "likelihood_ratio_clipping": 0.3,
    "baseline_mode": "states",
    "summarizer": None,
}
NETWORK = [{"type": "dense", "size": 32}, {"type": "dense", "size": 16}]


@pytest.mark.row("G21")
def test_an_agent_is_made_of_a_specification_and_what_is_left_is_named(tmp_path):
    made = distrl.from_tensorforce(PPO, states=FLOATS, actions=CHOICE, network=NETWORK)
    assert made.left == ("baseline_mode", "summarizer")
    config = load(made.config).config
    algorithm, network = config.algorithm, config.network
    assert (algorithm.name, algorithm.minibatches, algorithm.epochs) == ("ppo", 10, 5)
    assert (algorithm.discount, algorithm.entropy_weight, algorithm.clip_range) == (0.98, 0.02, 0.3)
    assert (network.optimizer_type, network.learning_rate) == ("Adam", 1e-2)
    assert (network.middleware_parameters.scheme, network.middleware_parameters.activation) == ((32, 16), "tanh")
    assert (config.actors.unroll_length_steps, config.sequences_per_batch) == (60, 1)
    with distrl.Agent(made.config, sets=SMALL, run_dir=tmp_path / "run", view="silent") as agent:
        for _ in range(61):
            assert agent.act([0.0, 0.1, 0.2, 0.3]) in (0, 1, 2)
            agent.observe(1.0, False)
        assert agent.updates == 1


def test_a_memory_and_exploration_are_converted():
    spec = {
        "type": "ddqn_agent",
        "update_mode": {"unit": "timesteps", "batch_size": 32, "frequency": 4},
        "memory": {"type": "prioritized_replay", "capacity": 10_000, "include_next_states": True},
        "optimizer": {"type": "multi_step", "optimizer": {"type": "rmsprop", "learning_rate": 0.1}, "num_steps": 2},
        "actions_exploration": {"type": "epsilon_decay", "initial_epsilon": 0.9, "timesteps": 500},
        "target_sync_frequency": 200,
        "entropy_regularization": 0.1,
        "network": [{"type": "conv2d", "size": 32}],
    }
    made = distrl.from_tensorforce(spec, states=FLOATS, actions=CHOICE)
    assert made.left == ("entropy_regularization", "network")  # of no use to DQN; a convolution's window is unknown
    config = load(made.config).config
    algorithm = config.algorithm
    assert (algorithm.name, algorithm.double, algorithm.target_update_every_updates) == ("dqn", True, 50)
    replay = algorithm.replay
    assert (replay.capacity_steps, replay.samples_per_insert, replay.sampler.kind) == (10_000, 8.0, "prioritized")
    assert config.exploration.epsilon.start == 0.9
    assert (config.actors.unroll_length_steps, config.batch_size) == (4, 32)


@pytest.mark.row("G21")
@pytest.mark.parametrize(
    ("actions", "told"),
    [
        ({"type": "int"}, "^actions: whole numbers need num_actions, how many there are to choose from$"),
        ({"a": {"type": "float", "min_value": 0.0}}, "^actions.a: real numbers have both min_value and max_value, or"),
        ({"type": "text"}, "^actions: type 'text' is none of bool, int, float$"),
    ],
)
def test_actions_that_are_not_specified_as_they_must_be(actions, told):
    with pytest.raises(ConfigError, match=told.replace(".", r"\.")):
        distrl.from_tensorforce({"type": "ppo_agent"}, states=FLOATS, actions=actions)


def test_spaces_of_all_types():
    states = {
        "switches": {"type": "bool", "shape": (2,)},
        "switch": {"type": "bool"},
        "grid": {"type": "int", "num_states": 5, "shape": (2, 2)},
        "counts": {"type": "int", "shape": 3, "min_value": 0, "max_value": 9},
    }
    actions = {"type": "float", "shape": (2,), "min_value": -1.0, "max_value": 1.0}
    spaces = distrl.from_tensorforce({"type": "vpg_agent"}, states, actions).config["environment"]["spaces"]
    assert spaces["action_space"] == {"type": "Box", "shape": [2], "dtype": "float32", "low": -1.0, "high": 1.0}
    assert spaces["observation_space"]["spaces"] == {
        "switches": {"type": "MultiBinary", "shape": [2]},
        "switch": {"type": "Discrete", "n": 2},
        "grid": {"type": "MultiDiscrete", "nvec": [[5, 5], [5, 5]]},
        "counts": {"type": "Box", "shape": [3], "dtype": "int64", "low": 0, "high": 9},
    }
    with pytest.raises(ConfigError, match=r"^TensorForce's agent 'dqn': converted are ppo_agent, "):
        distrl.from_tensorforce({"type": "dqn"}, states, actions)


def test_what_depends_on_what_is_not_there_is_left(tmp_path):
    """Time steps between two moves of a target network, where updates come by episodes; and exploration of VPG."""
    spec = {"type": "dqn_agent", "target_sync_frequency": 100, "update_mode": {"unit": "episodes", "batch_size": 2}}
    assert distrl.from_tensorforce(spec, FLOATS, CHOICE).left == ("target_sync_frequency", "update_mode")
    spec = {"type": "vpg_agent", "actions_exploration": {"type": "epsilon_decay"}, "optimization_steps": 3}
    assert distrl.from_tensorforce(spec, FLOATS, CHOICE).left == ("optimization_steps", "actions_exploration")
    path = tmp_path / "trpo.json"
    path.write_text('{"type": "trpo_agent", "discount": 0.9}')
    made = distrl.from_tensorforce(path, FLOATS, CHOICE)
    assert load(made.config).config.network.use_separate_networks_per_head


@pytest.mark.parametrize(
    ("spec", "states", "told"),
    [
        ("no such file.json", FLOATS, "^specification no such file.json cannot be read: No such file"),
        (
            {"type": "ppo_agent", "subsampling_fraction": 0},
            FLOATS,
            "^subsampling_fraction: 0 must be a number above 0$",
        ),
        (
            {"type": "dqn_agent", "update_mode": {"unit": "timesteps", "batch_size": 0}},
            FLOATS,
            "^batch_size: 0 must be a number above 0$",
        ),
        ({"type": "ppo_agent"}, "float", "^states: 'float' is no specification; give a mapping"),
    ],
)
def test_numbers_and_files_that_cannot_be(spec, states, told):
    with pytest.raises(ConfigError, match=told.replace(".json", r"\.json")):
        distrl.from_tensorforce(spec, states, CHOICE)
