import pytest

from benchmarks.peers.rows import Row, cpu_s_per_step, read_rows, since_command, steps_at, steps_per_s, window


def rows(*pairs):
    return [Row(float(wall_s), steps, 1, None) for wall_s, steps in pairs]


def test_lines_of_a_peer(tmp_path):
    path = tmp_path / "progress.jsonl"
    assert read_rows(path) == []
    path.write_text(
        '{"wall_s": 3.5, "env_steps": 100, "updates": 2, "mean_return_100": null}\n'
        '{"wall_s": 4.0, "env_steps": 200, "updates": 4, "mean_return_100": 12.5}\n'
        '{"wall_s": 4.5, "env_st'  # being written
    )
    assert read_rows(path) == [Row(3.5, 100, 2, None), Row(4.0, 200, 4, 12.5)]


def test_rows_of_distrl_begin_with_the_first_update(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("updates,env_steps,x,mean_return_100,wall_s\n,0,,,0.5\n1,64,7,,2.5\n9,640,7,20.5,3.5\n10,70")
    read = read_rows(path)
    assert read == [Row(2.5, 64, 1, None), Row(3.5, 640, 9, 20.5)]
    assert [row.wall_s for row in since_command(read, 0.75)] == [3.25, 4.25]


def test_a_rate_leaves_out_the_first_quarter():
    # 3 s to the first update, then slow for 2 s, then 100 steps a second.
    told = rows((3, 50), (5, 60), (7, 260), (9, 460), (11, 660))
    assert window(told) == (told[1], told[-1])
    assert steps_per_s(told) == 100.0


def test_a_rate_of_updates_of_many_seconds_is_that_of_the_last():
    assert steps_per_s(rows((10, 1000), (20, 3000))) == 200.0
    assert steps_per_s(rows((10, 1000), (11, 1500), (20, 6000))) == 500.0


@pytest.mark.parametrize("told", [[], rows((3, 50)), rows((3, 50), (3, 60))])
def test_no_rate_without_two_rows(told):
    assert steps_per_s(told) is None
    assert cpu_s_per_step(told, [(1.0, 1.0), (9.0, 9.0)]) is None


def test_steps_lie_on_the_line_between_rows():
    told = rows((2, 100), (4, 300), (5, 900))
    assert [steps_at(told, wall_s) for wall_s in (1, 2, 3, 4, 4.5, 5, 6)] == [100, 100, 200, 300, 600, 900, 900]


def test_processor_time_of_a_step_is_taken_in_the_same_window():
    told = rows((0, 0), (4, 400), (8, 800), (16, 1600))
    # The window is 4 s to 16 s; samples in it at 5 s and 15 s: 1,000 steps, 18 s of two processors.
    samples = [(1.0, 9.0), (5.0, 10.0), (10.0, 19.5), (15.0, 28.0), (17.0, 90.0)]
    assert cpu_s_per_step(told, samples) == pytest.approx(0.018)
    assert cpu_s_per_step(told, samples[:2]) is None
