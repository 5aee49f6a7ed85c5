import pytest

from distrl.apps.reports.plots import CurveOptions, group_sources, panel, read_sources
from distrl.errors import ConfigError
from tests.run_folders import make_run


def nobody(text):
    raise AssertionError(text)


def rows(*returns):
    return [
        {"updates": place, "env_steps": 100 * place, "wall_s": 2.0 * place, "episodes": place, "mean_return_100": value}
        for place, value in enumerate(returns, 1)
    ]


def sources(tmp_path, **runs):
    paths = [make_run(tmp_path / name.replace("__", "/"), rows=rows(*values)) for name, values in runs.items()]
    return read_sources(paths, nobody)


def drawn(found, by=None, **options):
    return panel(group_sources(found, by), "mean_return_100", None, CurveOptions(**options))


def test_every_run_is_a_line_by_default(tmp_path):
    groups = drawn(sources(tmp_path, a=(1, 3), b=(3, 5))).groups
    assert [(group.label, group.band) for group in groups] == [("a", None), ("b", None)]
    (points,) = groups[1].curves
    assert (list(points.x), list(points.y)) == ([100, 200], [3, 5])


@pytest.mark.row("P12")
def test_runs_in_sub_folders_form_groups(tmp_path):
    found = sources(tmp_path, slow__one=(1, 3), slow__two=(3, 5), fast__one=(9, 9))
    groups = drawn(found, "folder").groups
    assert [group.label for group in groups] == ["fast", "slow"]
    assert [len(group.curves) for group in groups] == [1, 2]
    remaining = [source for source in found if source.path.parent.name != "fast"]
    assert [group.label for group in drawn(remaining, "folder").groups] == ["slow"]


@pytest.mark.row("P11")
def test_a_group_is_a_band_of_one_deviation_around_its_mean(tmp_path):
    (group,) = drawn(sources(tmp_path, g__a=(1, 3), g__b=(3, 5)), "folder").groups
    assert [list(each) for each in group.band] == [[100, 200], [2, 4], [1, 3], [3, 5]]
    assert len(group.curves) == 2
    ungrouped = drawn(sources(tmp_path / "again", g__a=(1, 3), g__b=(3, 5))).groups
    assert [group.band for group in ungrouped] == [None, None]


def test_runs_with_equal_settings_are_one_group_and_numbers_are_in_order(tmp_path):
    paths = [
        make_run(tmp_path / f"{place}", rows=rows(place), sets=(f"network.learning_rate={rate}", f"seed={place}"))
        for place, rate in enumerate(["0.01", "0.002", "0.01", "0.1"])
    ]
    groups = group_sources(read_sources(paths, nobody), "network.learning_rate")
    assert {label: [source.name for source in runs] for label, runs in groups.items()} == {
        "0.002": ["1"],
        "0.01": ["0", "2"],
        "0.1": ["3"],
    }
    assert [*groups] == ["0.002", "0.01", "0.1"]


def test_words_are_in_order_after_numbers(tmp_path):
    paths = [
        make_run(tmp_path / name, rows=rows(1), sets=(f"stop.minutes={minutes}",))
        for name, minutes in (("a", "null"), ("b", "20"), ("c", "3"))
    ]
    assert [*group_sources(read_sources(paths, nobody), "stop.minutes")] == ["3.0", "20.0", "null"]


def test_an_unknown_key_names_the_nearest(tmp_path):
    with pytest.raises(ConfigError, match=r"unknown configuration key 'network.learning_rat'; did you mean network.le"):
        group_sources(sources(tmp_path, a=(1,)), "network.learning_rat")


@pytest.mark.row("P13")
def test_another_x_axis_has_the_same_values(tmp_path):
    found = sources(tmp_path, a=(1, 3))
    told = {over: drawn(found, over=over).groups[0].curves[0] for over in ("steps", "updates", "episodes", "time")}
    assert {over: list(points.x) for over, points in told.items()} == {
        "steps": [100, 200],
        "updates": [1, 2],
        "episodes": [1, 2],
        "time": [2, 4],
    }
    assert all(list(points.y) == [1, 3] for points in told.values())


@pytest.mark.row("P10")
def test_curves_are_smoothed_before_they_are_a_band(tmp_path):
    found = sources(tmp_path, g__a=(1, 2, 3, 4), g__b=(1, 2, 3, 4))
    (group,) = drawn(found, "folder", window=2).groups
    assert list(group.curves[0].y) == list(group.band.centre) == [1, 1.5, 2.5, 3.5]


@pytest.mark.row("P09")
def test_a_second_axis_has_another_metric_of_the_same_groups(tmp_path):
    two = panel(group_sources(sources(tmp_path, a=(5, 6)), None), "mean_return_100", "updates", CurveOptions())
    assert (two.metric, two.second) == ("mean_return_100", "updates")
    assert [list(group.curves[0].y) for group in (*two.groups, *two.second_groups)] == [[5, 6], [1, 2]]


def test_seeds_that_share_no_x_are_lines_without_a_band(tmp_path):
    (group,) = drawn(sources(tmp_path, g__a=(1,), g__b=(None, 2)), "folder").groups
    assert (len(group.curves), group.band) == (2, None)


def test_runs_without_a_row_are_told_and_passed_over(tmp_path):
    told = []
    paths = [make_run(tmp_path / "a", rows=rows(1)), make_run(tmp_path / "b", rows=()), make_run(tmp_path / "c")]
    (tmp_path / "c/metrics.csv").write_text("updates\nx\n")
    assert [source.name for source in read_sources(paths, told.append)] == ["a"]
    assert told[0] == f"{tmp_path}/b has no numbers yet; wait for its first updates"
    assert "c/metrics.csv is not a table of metrics" in told[1]


@pytest.mark.parametrize(("names", "message"), [(["b"], "b has no numbers yet"), ([], "no run to draw")])
def test_nothing_to_draw_is_an_error(tmp_path, names, message):
    with pytest.raises(ConfigError, match=message):
        read_sources([make_run(tmp_path / name, rows=()) for name in names], nobody)


def test_a_metric_without_a_value_is_told(tmp_path):
    found = sources(tmp_path, a=(None, None))
    with pytest.raises(ConfigError, match="mean_return_100 has no value yet in any of the runs"):
        drawn(found)
    with pytest.raises(ConfigError, match="no metric is named 'mean_return'; did you mean mean_return_100"):
        panel(group_sources(found, None), "mean_return", None, CurveOptions())


def test_a_run_without_the_metric_is_not_among_the_lines(tmp_path):
    assert [group.label for group in drawn(sources(tmp_path, a=(None,), b=(1,))).groups] == ["b"]
