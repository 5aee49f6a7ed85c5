import pytest

from benchmarks.table import ROWS, SEEDS, selected
from distrl.config.load import load
from distrl.config.presets import preset_facts, presets


def test_rows_have_names_of_their_own():
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert len(SEEDS) >= 3


@pytest.mark.parametrize("row", [row for row in ROWS if row.mean_return is not None], ids=lambda row: row.name)
def test_preset_and_table_want_the_same(row):
    acceptance = preset_facts(row.preset).acceptance
    assert (acceptance.mean_return, acceptance.env_steps) == (row.mean_return, row.env_steps)
    assert acceptance.measure == row.measure


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_tasks_and_algorithms_are_named_as_the_presets_have_them(row):
    config = load(preset=row.preset).config
    assert row.task in (
        config.environment.id,
        "every action type at once",
        "a cue kept for ten steps",
        "a target of two real numbers",
        "a key, and a door behind it",
        "CartPole-v1 without velocities",
        "Pendulum-v1 without its velocity",
        "16 bits flipped to a goal",
        "a reward at the end of a chain",
    )
    assert row.algorithm.replace("-", "").replace(" ", "").lower() in (config.algorithm.name.replace("_", ""), "apex")


@pytest.mark.row("D196")
def test_every_preset_has_a_row():
    assert sorted(presets()) == sorted(row.preset for row in ROWS)


def test_rows_are_selected_by_name():
    assert [row.name for row in selected(ROWS, ["mixed-*", "cartpole-a?c"])] == [
        *("cartpole-a2c", "cartpole-a3c", "mixed-ppo", "mixed-impala")
    ]
    assert selected(ROWS, []) == [*ROWS]
    with pytest.raises(ValueError, match=r"^no row is named cartpole-x; there are cartpole-impala, "):
        selected(ROWS, ["mixed-*", "cartpole-x"])
