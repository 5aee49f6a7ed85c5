"""The table of a comparison: for the page, LaTeX with booktabs, and CSV."""

import csv
import io
import re
from collections.abc import Sequence

from distrl.apps.experiments.results import Combination, Ranking, Wording, over_the_best
from distrl.config.secrets import masked
from distrl.errors import one_line
from distrl.metrics.phrases import UNKNOWN, count_words, known, return_words

_LATEX = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"–": "--", "…": r"\dots{}", "<": r"\textless{}", ">": r"\textgreater{}"},
}
_HEADS = ("runs", "mean return", "95 % interval", "steps", "minutes per run", "failed", "not done")


def cells(comparison: Ranking, wording: Wording) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headings and rows, a column for each setting that varies."""
    mean = "mean score" if comparison.environment is None else "mean return"
    heads = tuple(mean if head == "mean return" else head for head in _HEADS)
    return (*(wording.names.values() or [""]), *heads), [
        (*_settings(one, wording), *_numbers(one)) for one in comparison.combinations
    ]


def latex(comparison: Ranking, wording: Wording) -> bytes:
    """Return a tabular for the package booktabs, UTF-8."""
    heads, rows = cells(comparison, wording)
    lines = [" & ".join(map(_escaped, row)) + r" \\" for row in (heads, *rows)]
    columns = "l" * (len(heads) - len(_HEADS)) + "r" * len(_HEADS)
    text = "\n".join(
        [
            "% \\usepackage{booktabs}; mean return: interquartile mean over seeds, with its bootstrap interval",
            f"\\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )
    return text.encode()


def comma_separated(comparison: Ranking, wording: Wording) -> bytes:
    """Return a row for each combination, numbers in full, with the probability of improvement over the best; UTF-8."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    scores = ("iqm", "iqm_low", "iqm_high")
    over = ("over_best", "over_best_low", "over_best_high")
    counts = ("env_steps_least", "env_steps_greatest", "minutes_per_run", "failed", "not_done")
    writer.writerow([*wording.names, "runs", *scores, *over, *counts])
    improvements = over_the_best(comparison)
    for one in comparison.combinations:
        settings = [masked(path, one.values.get(path, "")) for path in wording.names]
        better = improvements.get(one.label)
        numbers = [*(one.score or [""] * 3), *(better or [""] * 3), *(one.steps or [""] * 2)]
        writer.writerow(
            [*settings, one.scored, *numbers, "" if one.minutes is None else one.minutes, one.failed, _open(one)]
        )
    return file.getvalue().encode()


def _settings(one: Combination, wording: Wording) -> Sequence[str]:
    return [wording.value(one.values, path) for path in wording.names] or [one.label]


def _numbers(one: Combination) -> Sequence[str]:
    score, steps = one.score, one.steps
    several = score is not None and any(len(scores) > 1 for scores in one.scores)
    return (
        str(one.scored),
        return_words(score.centre) if score else UNKNOWN,
        f"{return_words(score.low)} … {return_words(score.high)}" if score and several else UNKNOWN,
        " … ".join(map(count_words, dict.fromkeys(steps))) if steps else UNKNOWN,
        known(one.minutes, lambda minutes: f"{minutes:,.1f}"),
        str(one.failed or ""),
        str(_open(one) or ""),
    )


def _open(one: Combination) -> int:
    return sum(not run.outcome.has_ended for run in one.runs)


def _escaped(text: str) -> str:
    escaped = "".join(_LATEX.get(letter, letter) for letter in one_line(text))
    return re.sub(r"(?<!\w)-(?=\d)", "$-$", escaped)
