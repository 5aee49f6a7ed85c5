import csv
import io

from distrl.apps.experiments.directory import RunResult, SweepRun
from distrl.apps.experiments.results import ReturnScale, Wording, comparisons
from distrl.apps.experiments.sweep import Planned
from distrl.apps.experiments.tables import cells, comma_separated, latex


def run(score, seed, state="done", steps=1000, **values):
    return SweepRun(Planned(seed, values, seed), RunResult(state, steps, 90.0, score))


RUNS = [
    *(run(score, seed, **{"algorithm.name": "a_b"}) for seed, score in ((1, -12.5), (2, -10.5))),
    run(-20.0, 1, steps=2000, **{"algorithm.name": "ppo", "algorithm.clip_range": 0.1}),
    run(None, 2, "failed", **{"algorithm.name": "ppo", "algorithm.clip_range": 0.1}),
    run(None, 3, "interrupted", **{"algorithm.name": "ppo", "algorithm.clip_range": 0.1}),
    run(None, 1, "failed", **{"algorithm.name": "a2c"}),
]
WORDING = Wording(RUNS)
(FOUND,) = comparisons(RUNS, "E-v0", {})


def test_cells():
    assert cells(FOUND, WORDING) == (
        (
            "algorithm",
            "clip_range",
            "runs",
            "mean return",
            "95 % interval",
            "steps",
            "minutes per run",
            "failed",
            "not done",
        ),
        [
            ("a_b", "–", "2", "-11.5", "-12.5 … -10.5", "1,000", "1.5", "", ""),
            ("ppo", "0.1", "1", "-20.0", "–", "2,000", "1.5", "1", "1"),
            ("a2c", "–", "0", "–", "–", "–", "–", "1", ""),
        ],
    )


def test_only_seeds_are_one_row_and_normalised_scores_are_no_returns():
    runs = [run(1.0, 1), run(2.0, 2, steps=3000)]
    (found,) = comparisons(runs, "E-v0", {})
    heads, rows = cells(found, Wording(runs))
    assert (heads[0], rows) == ("", [("every seed", "2", "1.50", "1.00 … 2.00", "1,000 … 3,000", "1.5", "", "")])
    runs = [run(1.0, 1, **{"environment.id": name}) for name in "AB"]
    found = comparisons(runs, "", {name: ReturnScale(0.0, 2.0) for name in "AB"})[0]
    heads, rows = cells(found, Wording(runs))
    assert (heads[2], rows[0][:4]) == ("mean score", ("every seed", "2", "0.50", "–"))


def test_latex():
    assert latex(FOUND, WORDING).decode().splitlines()[1:] == [
        r"\begin{tabular}{llrrrrrrr}",
        r"\toprule",
        r"algorithm & clip\_range & runs & mean return & 95 \% interval & steps & minutes per run & failed & not done"
        r" \\",
        r"\midrule",
        r"a\_b & -- & 2 & $-$11.5 & $-$12.5 \dots{} $-$10.5 & 1,000 & 1.5 &  &  \\",
        r"ppo & 0.1 & 1 & $-$20.0 & -- & 2,000 & 1.5 & 1 & 1 \\",
        r"a2c & -- & 0 & -- & -- & -- & -- & 1 &  \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_latex_escapes_whatever_a_value_is():
    runs = [run(1.0, 1, a="\\input{x} 5% $y$ a&b\n~^<x-1> 1e-05")]
    line = latex(comparisons(runs, "E-v0", {})[0], Wording(runs)).decode().splitlines()[5]
    assert line.startswith(
        r"\textbackslash{}input\{x\} 5\% \$y\$ a\&b \textasciitilde{}\textasciicircum{}"
        r"\textless{}x-1\textgreater{} 1e-05 &"
    )


def test_comma_separated_values_are_in_full():
    rows = [*csv.DictReader(io.StringIO(comma_separated(FOUND, WORDING).decode()))]
    assert rows[0] | {"algorithm.name": "a_b", "algorithm.clip_range": "", "iqm": "-11.5", "over_best": ""} == rows[0]
    assert [rows[1][name] for name in ("over_best", "over_best_low", "over_best_high")] == ["0.0", "0.0", "0.0"]
    assert [rows[1][name] for name in ("runs", "failed", "not_done", "minutes_per_run")] == ["1", "1", "1", "1.5"]
    assert [rows[2][name] for name in ("runs", "iqm", "env_steps_least", "minutes_per_run")] == ["0", "", "", ""]
