import gc
import json

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Text, Tuple

import distrl
from distrl.actors.outbox import Outbox
from distrl.apps.agents.agent import as_one_loop, configured
from distrl.environments.given import registered, spaces_of_environment
from distrl.environments.vector import environment_seeds
from distrl.errors import ConfigError, DistrlError
from tests.apps.agents.conftest import SMALL

COUNTS = ("produced", "trained", "stored", "queued", "in_flight", "dropped", "lost", "env_steps", "updates", "episodes")
PPO = [
    "actors.environments=1",
    "actors.unroll_length_steps=8",
    "learner.batch_size=2",
    "algorithm.minibatches=1",
    "algorithm.epochs=1",
]


def play(agent, environment, steps, *, loop=0, seed=None, greedy=False):
    """Play as a loop of the user's does; return how many episodes have ended."""
    observation, _ = environment.reset(seed=seed)
    ended = 0
    for _ in range(steps):
        action = agent.act(observation, loop, greedy=greedy)
        observation, reward, terminated, truncated, _ = environment.step(action)
        agent.observe(reward, terminated, truncated, observation, id=loop)
        if terminated or truncated:
            ended += 1
            observation, _ = environment.reset()
        if agent.ended is not None:
            break
    return ended


def first_seed(seed):
    """The seed that the environment of a run's own actor gets."""
    key = np.random.SeedSequence(seed, spawn_key=(1, 0, 1, 0)).spawn(3)[0]
    return environment_seeds(int(key.generate_state(1)[0]), 1)[0]


@pytest.mark.row("G06", "G20")
@pytest.mark.parametrize(
    "sets",
    [
        pytest.param(["algorithm.name=ppo", *PPO], id="ppo"),
        pytest.param(
            [
                *("algorithm.name=impala", "actors.unroll_length_steps=8", "learner.batch_size=2"),
                "network.middleware_parameters={kind: lstm, scheme: [], number_of_lstm_cells: 4}",
            ],
            id="memory",
        ),
        pytest.param(
            [
                *("algorithm.name=dqn", "actors.unroll_length_steps=4", "algorithm.replay.min_size_steps=40"),
                "environment.preprocessing=[{step: clip, of: reward, low: 0, high: 0.5}, {step: stack, frames: 2}]",
            ],
            id="replay",
        ),
        pytest.param(["algorithm.name=a3c", "actors.unroll_length_steps=8"], id="gradients"),
    ],
)
def test_it_learns_what_a_run_that_steps_the_environment_itself_learns(sets, cartpole, tmp_path):
    """Bit for bit, with the environment's own seed."""
    loaded = distrl.load(sets=[*SMALL, *sets, "seed=3", "stop.updates=12", "actors.count=0", "actors.environments=1"])
    assert distrl.train(loaded, run_dir=tmp_path / "run", view="silent").error is None
    with distrl.Agent(loaded, run_dir=tmp_path / "agent", view="silent") as agent:
        play(agent, cartpole, 10_000, seed=first_seed(3))
        assert agent.ended == "updates"
        assert agent.updates == 12
    runs = [tmp_path / name for name in ("run", "agent")]
    weights, other = ((run / "policy" / "weights.msgpack").read_bytes() for run in runs)
    assert weights == other
    summaries = [json.loads((run / "summary.json").read_text()) for run in runs]
    assert {name: summaries[0][name] for name in COUNTS} == {name: summaries[1][name] for name in COUNTS}
    assert summaries[0]["episodes"] > 0


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    """An agent that makes no update, as its batches are large."""
    sets = [*SMALL, "algorithm.name=ppo", "actors.unroll_length_steps=64", "learner.batch_size=64"]
    with distrl.Agent({}, sets=sets, run_dir=tmp_path_factory.mktemp("agent") / "run", view="silent") as made:
        yield made


ZEROS = np.zeros(4, np.float32)


def test_an_episode_without_a_step_is_none(agent_of):
    """Its unroll is learned from all the same."""
    agent = agent_of("actors.unroll_length_steps=4", "learner.batch_size=1", config="impala")
    for _ in range(20):
        agent.act(np.zeros(4, np.float32))
        agent.reset()
        agent.act(np.zeros(4, np.float32))
        agent.observe(1.0, True)
    summary = agent.close()
    assert (sum(summary.dropped.values()), summary.episodes > 5, summary.mean_return_100) == (0, True, 1.0)


def test_calls_out_of_order_are_refused_and_change_nothing(agent):
    with pytest.raises(DistrlError, match=r"^observe: there is no loop 'calls'; known are .*; act comes first$"):
        agent.observe(1.0, False, id="calls")
    assert agent.act(ZEROS, "calls") in (0, 1)
    with pytest.raises(DistrlError, match=r"^act: loop 'calls' has an action without a result; call observe first$"):
        agent.act(ZEROS, "calls")
    agent.observe(1.0, False, id="calls")
    with pytest.raises(DistrlError, match=r"^observe: loop 'calls' has no action without a result; call act first$"):
        agent.observe(1.0, False, id="calls")
    agent.act(ZEROS, "calls")
    agent.observe(1.0, True, id="calls")
    agent.act(ZEROS, "calls")


@pytest.mark.parametrize(
    ("observation", "told"),
    [
        (np.zeros(3, np.float32), r"^'observation' has shape \(3,\), its space says \(4,\)$"),
        ([0, 0, np.nan, 0], r"^'observation' is not finite$"),
        ("a", r"^'observation' has shape \(\), its space says \(4,\)$"),
        (["a", 0, 0, 0], "'observation' has dtype <U"),
        (np.full(4, 1e39), "'observation' has numbers beyond those of float32"),
        (None, r"^'observation' has shape \(\), its space says \(4,\)$"),
    ],
)
def test_an_observation_that_is_not_of_the_space_is_refused(agent, observation, told):
    """Also in the middle of an episode, which goes on."""
    for _ in range(2):
        with pytest.raises(DistrlError, match=told):
            agent.act(observation, told)
        agent.act(ZEROS, told)
        agent.observe(1.0, False, id=told)
    agent.act(ZEROS, told)
    with pytest.raises(DistrlError, match=told if observation is not None else "the last observation; give it"):
        agent.observe(1.0, False, True, observation, id=told)
    agent.observe(1.0, False, True, ZEROS, id=told)


@pytest.mark.parametrize(
    ("reward", "told"),
    [
        (np.inf, "the reward is inf; give a finite number"),
        (None, "the reward is a NoneType; give one number"),
        ([1.0, 2.0], "the reward is a list; give one number"),
    ],
)
def test_a_reward_that_is_no_finite_number_is_refused(agent, reward, told):
    agent.act(ZEROS, told)
    with pytest.raises(DistrlError, match=f"^observe: {told}$"):
        agent.observe(reward, False, id=told)
    agent.observe(0.0, False, id=told)


def test_a_greedy_episode_draws_nothing_and_is_no_episode_that_learns(agent):
    before = agent.act(ZEROS, "beside")
    agent.observe(1.0, False, id="beside")
    actions = set()
    for _ in range(20):
        actions.add(int(agent.act(ZEROS, "greedy", greedy=True)))
        with pytest.raises(DistrlError, match=r"open episode of loop 'beside' learns; end it with observe"):
            agent.act(ZEROS, "beside", greedy=True)
        agent.observe(1.0, False, id="greedy")
    assert len(actions) == 1
    with pytest.raises(DistrlError, match=r"open episode of loop 'greedy' is greedy; end it with observe"):
        agent.act(ZEROS, "greedy")
    agent.reset("greedy")
    agent.act(ZEROS, "greedy")
    assert before in (0, 1)


def test_masks_need_an_observation_that_they_stand_for(agent):
    with pytest.raises(DistrlError, match=r"no head masks its action; name a part of the observation in network.heads"):
        agent.act(ZEROS, "mask", mask=[1, 0])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"config": "pppo"}, r"^agent 'pppo': did you mean .*ppo"),
        ({"config": "ppo", "observation_space": Discrete(2)}, "come together or not at all"),
        ({"config": "ppo", "sets": ["actors.count=-1"]}, "actors.count"),
        ({"config": distrl.load(), "sets": ["seed=1"]}, "the configuration is complete; give them to distrl.load"),
        ({"config": 3}, "^config is a int; name a preset or an algorithm, or use distrl.load$"),
        ({"config": "missing.yaml"}, "missing.yaml"),
        ({"config": "ppo", "redis_url": "redis://host"}, "^redis_url: it goes with run, the id of the run to join$"),
        (
            {"config": "dqn", "sets": ["data.sets=x.csv"]},
            "nothing acts in a run that learns from data alone; add data.s",
        ),
        (
            {
                "config": "dqn",
                "sets": ["recording.name=x"],
                "observation_space": Box(0, 1),
                "action_space": Discrete(2),
            },
            "^recording.name: it needs an environment that distrl can make, by environment.id$",
        ),
        (
            {
                "config": "ppo",
                "observation_space": gymnasium.spaces.Graph(Box(0, 1), None),
                "action_space": Discrete(2),
            },
            "the space at 'observation' cannot be served: it is a Graph",
        ),
        (
            {
                "config": {"environment": {"id": "distrl.environments.worlds.toy:Toy"}},
                "sets": ["environment.kwargs={size: 4}", "environment.curriculum={size: {after: {0: 3}}}"],
            },
            "environment.curriculum",
        ),
        (
            {
                "config": {"evaluation": {"every_env_steps": 100}},
                "observation_space": Box(0, 1),
                "action_space": Discrete(2),
            },
            "evaluation.every_env_steps: nothing can make the environment of environment.spaces",
        ),
    ],
)
def test_what_no_agent_can_be_made_of(arguments, told, tmp_path):
    config = arguments.pop("config")
    with pytest.raises(ConfigError, match=told):
        distrl.Agent(config, run_dir=tmp_path / "run", view="silent", **arguments)
    assert not (tmp_path / "run" / "summary.json").exists()


def test_a_run_of_spaces_alone_is_no_run_for_actors(tmp_path):
    spaces = {
        "observation_space": {"type": "Box", "shape": [4]},
        "action_space": {"type": "Discrete", "n": 2},
    }
    with pytest.raises(ConfigError, match=r"your own code steps the environment, so actors cannot; add --no-actors"):
        distrl.load({"environment": {"id": "mine", "spaces": spaces}})
    here = distrl.load({"environment": {"id": "mine", "spaces": spaces}, "actors": {"count": 0}})
    summary = distrl.train(here, run_dir=tmp_path / "run", view="silent")
    assert (summary.exit_code, summary.error) == (
        2,
        "environment mine: your own code steps it (environment.spaces): use distrl.Agent (docs/agents.md)",
    )


@pytest.mark.row("G10", "G21")
def test_many_loops_of_one_agent_have_episodes_and_accounts_of_their_own(agent_of, tmp_path):
    """In nested spaces with a mask; then the run is saved, closed and resumed."""
    observation_space = Dict(
        {
            "action_mask": Box(0, 1, (3,), np.int8),
            "place": Tuple([Discrete(5, start=-2), Box(-np.inf, np.inf, (2,))]),
            "name": Text(8),
        }
    )
    spaces = {"observation_space": observation_space, "action_space": Discrete(3, start=4)}
    masked = "network.heads_parameters=[{kind: ppo, action_mask: action_mask}]"
    agent = agent_of(*PPO, masked, "environment.metrics={score: last}", **spaces)
    rng = np.random.default_rng(0)
    allowed, ended = {}, 0
    for step in range(90):
        for loop in ("a", "b", 7):
            if loop == 7 and step > 40:
                continue  # a client that has gone
            allowed[loop] = rng.permutation([1, 0, step % 2]).astype(np.int8)
            shown = {"place": (np.int64(rng.integers(-2, 3)), rng.normal(size=2).astype(np.float32)), "name": "ab"}
            action = agent.act(shown, loop, mask=allowed[loop])
            assert allowed[loop][action - 4]
            over = rng.random() < 0.2
            ended += over
            agent.observe(1.0, over, id=loop, metrics={"score": 2.0, "is_success": True})
    with pytest.raises(DistrlError, match=r"the part 'action_mask' of an observation of a Dict; this .* is a list"):
        agent.act([], "a", mask=[1, 1, 1])
    assert agent.updates > 5
    updates = agent.updates
    assert agent.save() == tmp_path / "run"
    assert [*(tmp_path / "run" / "checkpoints").glob(f"ckpt-*{updates}")]
    agent.reset()
    summary = agent.close()
    assert agent.close() is summary
    with pytest.raises(DistrlError, match=r"^act: the agent is closed; make another one with resume='.*run'$"):
        agent.act({}, "a")
    settled = summary.trained + summary.queued + summary.in_flight + sum(summary.dropped.values()) + summary.lost
    assert (summary.produced, summary.foreign) == (settled, 0)
    metrics = distrl.load_run(tmp_path / "run").metrics
    assert metrics["info_score_100"][-1] == 2.0
    assert metrics["success_rate_100"][-1] == 1.0
    assert 0 < summary.episodes <= ended

    with distrl.Agent(resume=str(tmp_path / "run"), view="silent") as resumed:
        assert resumed.updates == updates
    with pytest.raises(ConfigError, match=r"^config is missing: name a preset or an algorithm; resume=None names no d"):
        distrl.Agent()


@pytest.mark.row("G05", "G15")
def test_the_way_of_an_action_and_the_last_batch_can_be_read(agent_of, cartpole):
    """A greedy action of DQN is of the greatest value, and has no log-probability."""
    steps = "environment.preprocessing=[{step: clip, of: observation, low: 0, high: 1}]"
    sets = ["actors.unroll_length_steps=4", "algorithm.replay.min_size_steps=40", "learner.batch_size=16", steps]
    agent = agent_of(*sets, config="dqn", environment=cartpole)
    assert (agent.batch, agent.update()) == (None, {})
    observation = np.array([-1, 2, 0.5, 0], np.float32)
    action = agent.act(observation, greedy=True)
    way = agent.newest()
    assert way.observations["observation"].tolist() == [0, 1, 0.5, 0]
    assert (way.explored, way.log_probability, way.recurrent_state) == (False, None, {})
    assert action == way.outputs["q/q"].argmax()
    agent.observe(1.0, True)
    with pytest.raises(DistrlError, match=r"^newest: loop 0 has no action without a result; call act first$"):
        agent.newest()
    with pytest.raises(DistrlError, match=r"^newest: there is no loop 'x'; known are 0; act comes first$"):
        agent.newest("x")
    agent.act(observation)
    assert agent.newest().explored
    agent.observe(1.0, True)
    play(agent, cartpole, 60)
    assert agent.batch.rewards.shape[1] == 16
    assert agent.update().keys() >= {"loss", "gradient_norm"}


@pytest.mark.parametrize(
    ("config", "rows"),
    [
        ({"algorithm": {"name": "ppo"}}, 64 * 2 * 32),
        ({"algorithm": {"name": "ppo"}, "learner": {"batch_size": 3}}, 3 * 32),
        ({"algorithm": {"name": "ppo"}, "learner": {"batch_size": 3}, "actors": {"environments": 5}}, 3 * 5 * 32),
        ({"algorithm": {"name": "dqn"}, "learner": {"batch_size": 16}}, 16),
    ],
)
def test_a_batch_has_the_rows_that_the_configuration_says(config, rows):
    config, _ = as_one_loop(configured(config, ["environment.id=CartPole-v1"]), None)
    config = config.config
    assert config.actors.environments == 1
    replay = config.algorithm.replay_parameters
    assert config.sequences_per_batch * (1 if replay else config.actors.unroll_length_steps) == rows


@pytest.mark.row("G27")
def test_updates_begin_after_so_many_steps_and_come_every_so_many(agent_of):
    """First at 10,000, then every 4: 101 of 10,400 steps."""
    spaces = {"observation_space": Box(-1, 1, (4,)), "action_space": Discrete(2)}
    # One update is due 4 steps after the memory's least size, and after every 4 further ones.
    replay = ["algorithm.replay.min_size_steps=9996", "algorithm.replay.samples_per_insert=2"]
    agent = agent_of("actors.unroll_length_steps=4", "learner.batch_size=8", *replay, config="dqn", **spaces)
    seen = {}
    for step in range(10_401):
        agent.act(ZEROS)
        agent.observe(1.0, False)
        seen[agent.updates] = min(seen.get(agent.updates, step), step)
    assert agent.updates == 101
    assert [seen[1], seen[2], seen[101]] == [10_000, 10_004, 10_400]


@pytest.mark.row("G20")
def test_updates_by_hand(agent_of, cartpole):
    agent = agent_of(*PPO, automatic=False, environment=cartpole)
    with pytest.raises(DistrlError, match=r"^act: as many unrolls wait as memory.queue_batches allows; call update$"):
        play(agent, cartpole, 1_000)
    assert agent.updates == 0
    assert agent.update()["finite"] == 1.0
    assert agent.updates > 0


def test_the_error_that_ends_the_training_is_raised_where_the_agent_is(agent_of, cartpole):
    with pytest.raises(DistrlError, match=r"learner.init_from: .*nowhere does not exist; name a run"):
        agent_of("learner.init_from=nowhere", environment=cartpole)


def test_ctrl_c_while_the_learner_works_leaves_an_agent_that_can_be_used(agent_of, cartpole, monkeypatch):
    agent = agent_of(*PPO, environment=cartpole)
    turns = agent._training._turns
    acquire = turns._acts.acquire
    interrupted = iter([True])

    def interrupt():
        if next(interrupted, False):
            raise KeyboardInterrupt
        acquire()

    monkeypatch.setattr(turns._acts, "acquire", interrupt)
    with pytest.raises(KeyboardInterrupt):
        play(agent, cartpole, 100)
    agent.reset()
    play(agent, cartpole, 100)
    assert agent.close().exit_code == 0


def test_an_episode_that_is_open_at_the_end_of_the_training_goes_on(agent_of):
    spaces = {"observation_space": Box(-1, 1, (4,)), "action_space": Discrete(2)}
    agent = agent_of(*PPO, "stop.updates=1", **spaces)
    for _ in range(50):
        agent.act(ZEROS)
        agent.observe(1.0, False)
    assert (agent.ended, agent.updates) == ("updates", 1)
    agent.act(ZEROS)
    agent.observe(1.0, True)
    with pytest.raises(DistrlError, match=r"^act: the training has ended \(updates\); act\(…, greedy=True\) goes on"):
        agent.act(ZEROS)
    agent.act(ZEROS, greedy=True)
    summary = agent.close()
    assert (summary.produced, summary.trained, summary.stop_reason) == (2, 2, "updates")


@pytest.fixture
def pushed(agent_of, monkeypatch):
    """An agent that never updates, and the unrolls that it pushes."""
    agent = agent_of("actors.unroll_length_steps=4", "learner.batch_size=100", config="impala", environment=Counter())
    unrolls = []
    push = Outbox.push
    monkeypatch.setattr(Outbox, "push", lambda self, unroll: (unrolls.append(unroll), push(self, unroll))[1])
    return agent, unrolls


class Counter(gymnasium.Env):
    """Shows 100 times the number of the episode, and the number of the step."""

    observation_space = Box(0, 1e6, (1,))
    action_space = Discrete(2)
    episode = 0

    def reset(self, *, seed=None, options=None):
        self.episode += 100
        self.steps = 0
        return self.shown, {}

    def step(self, action):
        self.steps += 1
        return self.shown, 1.0, False, False, {}

    @property
    def shown(self):
        return np.array([self.episode + self.steps], np.float32)


def rows_of(unrolls):
    """(observation, reward, truncated, valid) of each row of the unrolls."""
    return [
        (int(unroll.observations["observation"][row, 0, 0]), *(getattr(unroll, name)[row, 0] for name in FIELDS))
        for unroll in unrolls
        for row in range(4)
    ]


FIELDS = ("rewards", "truncated", "valid")


def test_nothing_is_learned_of_a_row_whose_end_is_not_known(pushed):
    """An episode that is abandoned: with a last observation, before `observe`, and without an observation."""
    agent, unrolls = pushed
    agent.act([100])
    agent.observe(1.0, False, False, [101])
    agent.reset()  # cut off at 101
    agent.act([200])
    agent.reset()  # nothing is known of the action
    agent.act([300])
    agent.observe(5.0, False)
    agent.reset(0)  # nothing is known of where it led
    agent.act([400])
    agent.observe(1.0, True)
    agent.act([500])
    agent.observe(1.0, True)
    rows = rows_of(unrolls)
    assert [row for row in rows if row[3]] == [(100, 1.0, True, True), (400, 1.0, False, True)]
    assert [row[0] for row in rows] == [100, 101, 200, 200, 300, 300, 400, 400]
    assert [unroll.episode_returns.tolist() for unroll in unrolls] == [[1.0], [1.0]]  # those with a step


def test_an_error_within_a_runner_leaves_no_episode_that_goes_on(pushed):
    agent, unrolls = pushed
    runner = distrl.Runner(agent, Counter())
    with pytest.raises(ZeroDivisionError):
        runner.run(on_step=lambda step: 1 // (3 - step.steps))
    assert runner.run(steps=4).steps == 4
    valid = [row for row in rows_of(unrolls) if row[3]]
    assert valid[:4] == [
        (100, 1.0, False, True),
        (101, 1.0, False, True),
        (102, 1.0, True, True),
        (200, 1.0, False, True),
    ]


def test_ctrl_c_within_act_adds_no_row_twice(pushed, monkeypatch):
    agent, unrolls = pushed
    acquire, interrupts = agent._training._turns._acts.acquire, iter([True])

    def interrupt():
        if next(interrupts, False):
            raise KeyboardInterrupt
        acquire()

    monkeypatch.setattr(agent._training._turns._acts, "acquire", interrupt)
    for step in range(9):
        for attempt in range(2):
            try:
                agent.act([step])
                break
            except KeyboardInterrupt:
                assert (step, attempt) == (4, 0)
        agent.observe(1.0, False)
    assert [row[0] for row in rows_of(unrolls)] == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_loop_that_does_not_come_back_is_forgotten(pushed):
    agent, _ = pushed
    for number in range(20):
        agent.act([0], number)
        agent.forget(number)
    gc.collect()
    assert len(agent._training._actors) == 0
    for call in (agent.forget, agent.reset):
        with pytest.raises(
            DistrlError, match=f"^{call.__name__}: there is no loop 3; known are none; act comes first$"
        ):
            call(3)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"terminated": "no"}, "^observe: terminated is 'no', it must be true or false$"),
        ({"metrics": "info"}, "^observe: metrics is a str; give a mapping, such as info$"),
        ({"observation": np.zeros(3)}, "'observation' has shape"),
    ],
)
def test_what_observe_does_not_take(agent, arguments, told):
    agent.act(ZEROS, told)
    with pytest.raises(DistrlError, match=told):
        agent.observe(**{"reward": 1.0, "terminated": False, "id": told} | arguments)
    agent.observe(1.0, False, id=told)


def test_an_agent_in_a_child_process_says_so(agent, monkeypatch):
    monkeypatch.setattr("os.getpid", lambda: 1)
    with pytest.raises(
        DistrlError, match=r"^act: the agent belongs to the process that made it; make another one here$"
    ):
        agent.act(ZEROS)


def test_a_registered_environment_keeps_its_name(cartpole, tmp_path):
    """So that evaluations can make it; one with another limit is known by its spaces."""
    assert registered(cartpole, spaces_of_environment(cartpole)) == ("CartPole-v1", {})
    shorter = gymnasium.make("CartPole-v1", max_episode_steps=9)
    assert registered(shorter, spaces_of_environment(shorter)) is None
    assert registered(Counter(), spaces_of_environment(Counter())) is None
    for what in ("CartPole-v1", gymnasium.make_vec("CartPole-v1", 2)):
        with pytest.raises(ConfigError, match=r"^the environment is a \w+, not a gymnasium.Env$"):
            distrl.Agent.of(what)
