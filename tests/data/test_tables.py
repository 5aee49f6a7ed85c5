"""CSV and Parquet files: the rows become episodes, or one line says what is wrong."""

import re
import resource
from pathlib import Path

import h5py
import numpy as np
import pyarrow
import pytest
import yaml
from gymnasium.spaces import Box, Dict, Discrete, Text
from pyarrow import parquet

from distrl.config.data import DataSetConfig
from distrl.data.episodes import DataError, Episode, Spaces
from distrl.data.opening import new_set, opened

PAGE = Path(__file__).parents[2] / "docs/coming_from.md"
CHOICE = Spaces(Box(-9.0, 9.0, (2,)), Discrete(3, start=1), 1, 3)
VECTOR = Spaces(Box(-9.0, 9.0, (2,)), Box(-1.0, 1.0, (2,)), 1, None)
ROWS = """observation_0,observation_1,action,reward,episode,terminated,truncated
0,1,1,0.5,a,0,0
2,3,2,1.5,a,1,0
4,5,3,2.5,b,0,0
6,7,1,3.5,b,0,0
8,9,2,4.5,b,0,1
"""


@pytest.fixture
def table(tmp_path):
    def make(text, **columns):
        (tmp_path / "steps.csv").write_text(text)
        return {"name": str(tmp_path / "steps.csv"), "columns": columns or None}

    return make


def read(given, spaces=CHOICE):
    found = opened(DataSetConfig.model_validate(given), spaces)
    return [*found.read(range(len(found.lengths)))]


def test_rows_become_episodes(table):
    first, second = read(table(ROWS))
    assert first.observations.tolist() == [[0, 1], [2, 3], [2, 3]]  # nothing reads what follows a termination
    assert (first.actions.tolist(), first.rewards.tolist(), first.terminated) == ([1, 2], [0.5, 1.5], True)
    assert second.observations.tolist() == [[4, 5], [6, 7], [8, 9]]  # what the last step led to is unknown
    assert (second.actions.tolist(), second.rewards.tolist(), second.terminated) == ([3, 1], [2.5, 3.5], False)


def test_a_row_without_an_action_shows_what_the_last_step_led_to(table):
    text = (
        "observation_0,observation_1,action,reward,episode\n0,1,1,0.5,7\n2,3,2,1.5,7\n4,5,,,7\n6,7,3,1.0,8\n8,9,,,8\n"
    )
    without = {"terminated": None, "truncated": None}
    first, second = read(table(text, **without, ends="truncated"))
    assert first.observations.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert (second.observations.tolist(), second.rewards.tolist()) == ([[6, 7], [8, 9]], [1.0])
    long = text.replace("2,3,2,1.5,7\n", "2,3,2,1.5,7\n2,2,2,1.5,7\n")  # of three steps, the environment's limit
    assert [episode.terminated for episode in read(table(long, **without, ends="limit"))] == [False, True]


def test_a_choice_that_is_not_whole_is_not_cut(table):
    assert read(table(ROWS.replace("0,1,1,0.5", "0,1,1.5,0.5")))[0].actions.tolist() == [1.5, 2.0]  # refused later


def test_an_observation_that_is_a_choice(table):
    text = "observation,action,reward,episode\n3,1,0.5,a\n4,2,1.5,a\n"
    given = table(text, observation=["observation"], terminated=None, truncated=None, ends="terminated")
    (episode,) = read(given, CHOICE._replace(observation=Discrete(9)))
    assert (episode.observations.tolist(), episode.observations.dtype.kind) == ([3, 4, 4], "i")


def test_parquet_with_named_columns_and_vectors(tmp_path):
    columns = {"x": [0.0, 1.0], "y": [2.0, 3.0], "left": [0.5, -0.5], "right": [1.0, -1.0], "paid": [1, 2]}
    parquet.write_table(pyarrow.table({**columns, "trial": [1, 1], "done": [False, True]}), tmp_path / "t.parquet")
    named = {"observation": ["y", "x"], "action": ["left", "right"], "reward": "paid", "episode": "trial"}
    given = {"name": str(tmp_path / "t.parquet"), "columns": {**named, "terminated": "done", "truncated": None}}
    (episode,) = read(given, VECTOR)
    assert episode.observations.tolist() == [[2, 0], [3, 1], [3, 1]]
    assert (episode.actions.tolist(), episode.actions.dtype) == ([[0.5, 1.0], [-0.5, -1.0]], np.float32)


def test_a_column_of_lists_as_rllib_writes_it(tmp_path):
    """Ray's tensors of one shape are lists in the file, also of actions; an episode that is cut off loses its end."""
    wide = pyarrow.large_list(pyarrow.float32())

    def write(*observations):
        columns = {
            "eps_id": ["a", "a", "b", "b"],
            "obs": pyarrow.array(observations, wide),
            "actions": pyarrow.array([[0.5, 1.0], [-0.5, -1.0], [0.0, 0.25], [0.0, 0.0]], wide),
            "rewards": [1.0, 2.0, 3.0, 4.0],
            "new_obs": pyarrow.array([[9.0, 9.0]] * 4, wide),
            "terminateds": [False, True, False, False],
            "truncateds": [False, False, False, True],
        }
        parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")

    (block,) = re.findall(r"```yaml\n(data:.*?rllib.parquet.*?)```", PAGE.read_text(), re.DOTALL)
    (given,) = yaml.safe_load(block)["data"]["sets"]
    given["name"] = str(tmp_path / "t.parquet")
    write([0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0])
    first, second = read(given, VECTOR)
    assert first.observations.tolist() == [[0, 1], [2, 3], [2, 3]]
    assert (first.actions.tolist(), first.actions.dtype) == ([[0.5, 1.0], [-0.5, -1.0]], np.float32)
    assert (second.observations.tolist(), second.rewards.tolist()) == ([[4, 5], [6, 7]], [3.0])
    for broken, length in (([2.0], 1), (None, 0)):
        write([0.0, 1.0], broken, [4.0, 5.0], [6.0, 7.0])
        with pytest.raises(DataError, match=rf"'obs' of row 2 has {length} numbers, not 2$"):
            read(given, VECTOR)
    write([0.0, 1.0], [2.0, 3.0], [4.0, None], [6.0, 7.0])
    with pytest.raises(DataError, match=r"row 3 lacks a number in 'obs'; fill it, or remove the episode$"):
        read(given, VECTOR)


def test_a_dump_of_d3rlpy_becomes_a_table_by_the_lines_of_the_documentation(tmp_path, monkeypatch):
    page = PAGE.read_text()
    (lines,) = re.findall(r"```python norun: tests/data/test_tables.py[^\n]*\n(.*?)```", page, re.DOTALL)
    (columns,) = re.findall(r"The columns of `steps.parquet` are `(.*?)`", page)
    episodes = (([[0, 1], [2, 3]], [[1], [2]], [[0.5], [1.5]], True), ([[4, 5], [6, 7]], [[3], [1]], [[1], [2]], False))
    with h5py.File(tmp_path / "d3rlpy.h5", "w") as dump:  # as d3rlpy 2 writes it
        dump["num_episodes"] = len(episodes)
        for number, episode in enumerate(episodes):
            for name, values in zip(("observations", "actions", "rewards", "terminated"), episode, strict=True):
                dump[f"{name}_{number}"] = values
    monkeypatch.chdir(tmp_path)
    exec(lines, {})
    first, second = read({"name": "steps.parquet", "columns": yaml.safe_load(columns)})
    assert (first.observations.tolist(), first.actions.tolist()) == ([[0, 1], [2, 3], [2, 3]], [1, 2])
    assert (first.rewards.tolist(), first.terminated) == ([0.5, 1.5], True)
    assert (second.observations.tolist(), second.actions.tolist()) == ([[4, 5], [6, 7]], [3])
    assert second.terminated is False


@pytest.mark.row("D139")
def test_the_table_of_another_library(table):
    text = "action,all_action_probabilities,episode_id,reward,transition_number,state_feature_0,state_feature_1\n"
    text += '0,"[0.5,0.25,0.25]",0,-1.0,0,0.1,0.2\n2,"[0.2,0.2,0.6]",0,0.0,1,0.3,0.4\n,,0,,,0.5,0.6\n'
    given = table(text)
    given["columns"] = "coach"
    (episode,) = read(given, CHOICE._replace(action=Discrete(3)))
    assert episode.log_probabilities == pytest.approx(np.log([0.5, 0.6]))
    assert episode.observations == pytest.approx(np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]))
    assert (episode.actions.tolist(), episode.terminated) == ([0, 2], True)


@pytest.mark.parametrize(
    ("text", "columns", "line"),
    [
        (ROWS.partition("\n")[0] + "\n0,1,1,0.5,a,0,1\n2,3,2,1.5,b,0,1\n", {}, "has no step whose end is known"),
        (ROWS, {"observation": ["observation_0"]}, r"1 columns are no observation of Box.*; set columns.observation"),
        (ROWS.replace("reward", "pay"), {}, "has no column 'reward', it has observation_0"),
        (ROWS.replace("1.5", ""), {}, "row 2 has no 'reward'; fill it, or remove the episode"),
        (ROWS.replace("1.5", "much"), {}, "column 'reward' is not of numbers"),
        (ROWS.replace("0,1,1,0.5,a,0,0", "0,1,1,0.5,a,1,0"), {}, "'terminated' is true in row 1, and column 'episode'"),
        (
            ROWS.replace("1.5,a,1", "1.5,a,0"),
            {"truncated": None},
            "column 'terminated' is true in no last row of an episode; if all were cut off, set columns.terminated to",
        ),
        (
            'observation_0,observation_1,action,reward,episode,p\n1,1,1,0,a,"[0.5,0.6,0.1]"\n',
            {"terminated": None, "truncated": None, "ends": "terminated", "probabilities": "p"},
            r"'p' of row 1 are \[0.5, 0.6\d*, 0.1\d*\], no probabilities",
        ),
        (
            'observation_0,observation_1,action,reward,episode,p\n1,1,1,0,a,"[0,0.5,0.5]"\n',
            {"terminated": None, "truncated": None, "ends": "terminated", "probabilities": "p"},
            "the action of row 1 has probability 0",
        ),
        ("observation_0,observation_1,action,reward,episode,terminated,truncated\n", {}, "has no rows"),
        ("a,b\n1\n", {}, "cannot be read"),
    ],
)
def test_a_table_that_is_none_costs_one_line(table, text, columns, line):
    with pytest.raises(DataError, match=line) as refused:
        read(table(text, **columns))
    assert "\n" not in str(refused.value)


def test_a_limit_that_the_environment_has_not(table):
    given = table(ROWS, terminated=None, truncated=None, ends="limit")
    with pytest.raises(DataError, match="the environment has no limit of steps by which episodes were cut off; set"):
        read(given, VECTOR._replace(action=Discrete(3, start=1)))


def test_of_a_parquet_file_two_groups_of_rows_are_in_memory(tmp_path, monkeypatch):
    numbers = np.arange(40)
    columns = {"observation_0": numbers, "observation_1": -numbers, "action": numbers % 3 + 1, "reward": 0.5 * numbers}
    columns |= {"episode": numbers // 4, "terminated": numbers % 4 == 3, "truncated": np.zeros(40, np.bool_)}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet", row_group_size=6)
    found = opened(DataSetConfig(name=str(tmp_path / "t.parquet")), CHOICE)
    read = []
    group = parquet.ParquetFile.read_row_group
    monkeypatch.setattr(
        parquet.ParquetFile, "read_row_group", lambda *given, **s: read.append(given[1]) or group(*given, **s)
    )
    episodes = [*found.read([7, 7, 0, 1])]
    assert [episode.observations[:, 0].tolist() for episode in episodes[1:]] == [
        [28, 29, 30, 31, 31],
        [0, 1, 2, 3, 3],
        [4, 5, 6, 7, 7],  # in two groups
    ]
    assert episodes[0].rewards.tolist() == [14.0, 14.5, 15.0, 15.5]
    assert read == [4, 5, 0, 1]


def test_a_parquet_file_that_changes_or_is_damaged_costs_one_line(tmp_path):
    numbers = np.arange(40_000)
    columns = {"observation_0": numbers, "observation_1": numbers, "action": numbers % 3 + 1, "reward": numbers}
    columns |= {"episode": numbers // 4_000, "terminated": numbers % 4_000 == 3_999}
    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table(columns), path, row_group_size=4_000)
    given = DataSetConfig.model_validate({"name": str(path), "columns": {"truncated": None}})
    whole = path.read_bytes()
    place = parquet.ParquetFile(path).metadata.row_group(5).column(0).dictionary_page_offset
    path.write_bytes(whole[:place] + bytes([255]) * 500 + whole[place + 500 :])
    damaged = opened(given, CHOICE)
    list(damaged.read([4]))
    with pytest.raises(DataError, match=r"t\.parquet: rows from 20001 on cannot be read: ") as refused:
        list(damaged.read([5]))
    assert "\n" not in str(refused.value)
    path.write_bytes(whole + b"more")
    with pytest.raises(DataError, match=r"t\.parquet has changed since it was opened"):
        list(damaged.read([6]))


EXACT = np.array([0.1, -1 / 3, 1e-30, 16_777_217, 2**60, 0.7], np.float32)
"""Numbers of which a decimal fraction of few digits is another number."""


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("observed", "shown", "acted", "done"),
    [
        (Box(-9, 9, (2,), np.float32), EXACT.reshape(3, 2), Discrete(3, start=-1), [-1, 1]),
        (Box(-9, 9, (2,), np.float64), EXACT.reshape(3, 2) / 3.0, Box(-1, 1, (1,)), EXACT[:2, None]),
        (Discrete(9, start=4), [4, 12, 7], Box(-1, 1, (2,), np.float32), EXACT[:4].reshape(2, 2)),
    ],
)
def test_a_table_holds_what_was_recorded(tmp_path, suffix, observed, shown, acted, done):
    shown, done, rewards = np.array(shown), np.array(done), np.array([1 / 3, -0.0])
    writer = new_set(str(tmp_path / "new" / f"steps.{suffix}"), "an environment", observed, acted, {})
    for terminated in (True, False):
        writer.add(Episode(shown, done, rewards, terminated))
    assert not writer._path.exists()
    given = {"name": str(writer.finish())}
    found = read(given, Spaces(observed, acted, 1, None))
    assert [episode.terminated for episode in found] == [True, False]
    for episode in found:
        assert episode.observations.dtype == observed.dtype
        assert episode.observations.tolist() == shown.tolist()  # the last one too
        assert (episode.actions.tolist(), episode.rewards.tolist()) == (done.tolist(), rewards.tolist())
    assert [path.name for path in writer._path.parent.iterdir()] == [f"steps.{suffix}"]


@pytest.mark.parametrize(
    ("spaces", "line"),
    [
        ((Box(0, 255, (8, 8, 3), np.uint8), Discrete(2)), "and the observations are Box"),
        ((Dict({"a": Discrete(2)}), Discrete(2)), "and the observations are Dict"),
        ((Text(5), Discrete(2)), "and the observations are Text"),
        ((Discrete(2), Dict({"a": Discrete(2)})), "and the actions are Dict"),
    ],
)
def test_what_no_table_holds_costs_one_line(tmp_path, spaces, line):
    with pytest.raises(DataError, match=line) as refused:
        new_set(str(tmp_path / "steps.csv"), "an environment", *spaces, {})
    assert "\n" not in str(refused.value)


def test_a_full_disk_leaves_no_table(tmp_path):
    writer = new_set(str(tmp_path / "steps.parquet"), "an environment", Discrete(9), Discrete(2), {})
    writer.add(Episode(np.arange(2), np.zeros(1), np.zeros(1), terminated=True))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(DataError, match=r"steps.parquet cannot be written: \[Errno 27\] File too large"):
            writer.finish()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not [*tmp_path.iterdir()]
