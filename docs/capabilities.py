"""Prints which capability rows hold, and the tests that settle them: a page of the site.

A test that settles rows carries their ids: `@pytest.mark.row("B15", "B16")`. The marks are read from the source, so
that the page needs no test run and lists what is in the tree, whatever is installed.

The promise of a row in words is a line of docs/promises.txt; what is absent, a line of docs/absent.txt.

    python docs/capabilities.py
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
PROMISES = ROOT / "docs" / "promises.txt"
ABSENT = ROOT / "docs" / "absent.txt"
ROW_ID = re.compile(r"([A-Z]+)(\d+)(?:\.(\d+))?")
HEADER = """# Capabilities that hold

Each row is a promise that distrl keeps, settled by the tests beside it. Rows that are met otherwise, absent, or
obsolete follow.
The letters are groups of promises, and ids are stable: tests and changes name them.

| Row | Promise | Settled by |
|---|---|---|
"""

OTHERWISE_HEADER = """
## Met otherwise

Rows whose mechanism is obsolete, belongs to another library or differs in part, and what serves the need instead; or
what of a row is absent.

| Row | By |
|---|---|
"""
ABSENT_HEADER = """
## Absent

| Row | What is absent |
|---|---|
"""
OBSOLETE_HEADER = """
## Obsolete

Rows whose mechanism belongs to TensorFlow 1, to a simulator or library that is not maintained, or to a plug-in, and of
which nothing exists:

"""
OBSOLETE = [
    *("D07.6", "D07.18", "D07.20", "D07.21", "D51", "D115", "D136", "D137", "D161", "D170", "D172", "D173"),
    *("D192.1", "D192.2", "D192.3", "D192.4", "F01", "F02", "F03", "F08", "F13", "F14", "F19", "F20", "G03", "G19"),
    *("J05", "J07", "J11", "M11.1", "M12", "M14", "N04", "N05", "N06", "O12", "R06", "R07"),
]
OTHERWISE = {
    "A22": "One framework at a time, chosen by `learner.backend`.",
    "C02": "MXNet is retired. Keras runs on TensorFlow or JAX, chosen by `learner.backend`.",
    "C14": "There are no sessions: compiled functions and eager calls share the variables.",
    "D21": "Training stops by any of these units, and schedules of exploration, priorities and the curriculum count "
    "environment steps, episodes or updates. Evaluations begin by environment steps. Learning rates count optimizer "
    "steps.",
    "D31": "Statistics are of the updates between two points, not of an episode: episodes are the actors', updates the "
    "learner's. They are in TensorBoard; `metrics.csv` has the numbers of the last update.",
    "D85": "In evaluations epsilon is `evaluation.epsilon`, 0 unless set. The policy is evaluated even where chance "
    "overrides it: all rows share one forward pass, and a recurrent state moves at every step.",
    "D89": "Evaluations draw no truncated noise: they take the policy's best action, or with `evaluation.epsilon` at "
    "times a uniformly random one. The bounds are those of the action.",
    "D104": "Observation normalisation is a layer of the network; the learner keeps its statistics and publishes them "
    "with the weights, so that all workers share them: `normalize: true` of an embedder. Cut at ± 10, epsilon 1e-8.",
    "D113": "Reward normalisation is the learner's, which sees the rewards of all actors; no actor normalises.",
    "L08.10": "Steps `reshape`, `flatten`, `one_hot`. Time is no part of an observation: `networks/parts/trunk.py` "
    "folds [T, N] into one batch axis where a network meets unrolls, and unfolds it.",
    "L08.12": "Arrays are time-major everywhere, [T, N]; `networks/parts/trunk.py`, which needs the other order, swaps "
    "axes and swaps them back.",
    "A01": "Where a machine has a GPU was not tested: the tests assert the CPU on a machine without one.",
    "D194": "Absent: a space of attention.",
    "G15": "Absent: the last batch and a table of values are not kept.",
    "O05": "One memory without shards. Absent: dropping what is queued; actors wait instead.",
    "Q06": "Absent: TensorFlow's SavedModel; the graph is ONNX.",
    "Q07": "Absent: HDF5 and SavedModel.",
    "R08": "Absent: notebooks on goals, offline data and hierarchies. CI runs one notebook, `make long` all.",
    "L10.2": "As D104: running statistics are the network's, which divides by the deviation of earlier observations.",
    "E02": "gymnasium's `Space.contains`. Observations are checked as they are read, except for the bounds of a Box.",
    "E04": "Names are paths without a leading separator or marks of tuples: `a`, `b/0`, `b/1`.",
    "E05": "Arrays have their batch axis from the vector of environments on; another number of axes is refused. "
    "A single sample gets one from `gymnasium.vector.utils.concatenate`.",
    "E06": "Spaces carry no ranks: `[T, B, …]` is stated by `UnrollSchema`, `[N, …]` by the network's Keras inputs.",
    "E07": "No placeholders: Keras makes its inputs from the `EnvSpec`. Buffers are gymnasium's `create_empty_array`.",
    "E08": "A text is an array of tokens, [length], int32, because policies read numbers; all else as the row says.",
    "E10": "Spaces carry no ranks to be given or taken: `gymnasium.vector.utils.batch_space` makes another space.",
    "E11": "gymnasium's `create_empty_array` with its default `fn=numpy.zeros`: zeros in the space's own dtype.",
    "E20": "gymnasium's `batch_space(space, n).sample()` draws each part n times; `gymnasium.vector.utils.iterate` "
    "over it gives n samples of the whole.",
    "E21": "Equality of two `EnvSpec`s, or gymnasium's `is_space_dtype_shape_equiv`; without ranks none is wider.",
    "E22": "`UnrollBuilder` has an array for each name of the `EnvSpec`, for a whole unroll; no lists grow.",
    "E23": "Nothing infers spaces from operations: Keras infers shapes, and the `EnvSpec` states the inputs.",
    "H03": "Losses are means over valid steps, not sums over time, so that learning rates do not depend on the length "
    "of unrolls.",
    "H17": "An aggregated baseline is a network whose embedders end in one unit, before an empty middleware. The "
    "policy has the same structure.",
    "I06": "No optimizer wraps another: `trpo` joins the natural gradient and the line search, `algorithm.epochs` "
    "repeats steps.",
    "I07": "`algorithm.epochs` of `ppo` and `algorithm.value_epochs` of `trpo`: so many steps on the same unrolls.",
    "I09": "Absent: gradients are clipped, steps are not.",
    "I10": "`algorithm.target_update_every_updates` and `algorithm.target_update_rate`. A target begins equal to its "
    "source and moves for the first time after so many updates, not at the first.",
    "I13": "Absent: no optimizer perturbs weights at random.",
    "I16": "Solvers are functions in `algorithms/maths/trust_region.py`, without a base class.",
    "O06": "Unrolls keep their length: their last rows use the steps that are left before the bootstrap.",
    "D162": "Q_VALUE needs a network that learns the values of actions, which `vpg` has not: `sac`, `td3` and `ddpg` "
    "have. DISCOUNTED_TD_RESIDUAL is `td_residual`, TD_RESIDUAL the same with `discount: 1.0`.",
    "L12.11": "The `lstm` middleware, on `keras.layers.LSTMCell`: state in, state out (rows D05, L05).",
    "D131": "The replay memory keeps and evicts whole unrolls, which hold pieces of episodes; n-step targets bootstrap "
    "at their ends.",
    "D134": "Classes are the choices of the action; labels of one's own are absent.",
    "D132": "Streams: with `max_staleness_updates: 0` every unroll is trained on once, under its own policy.",
    "P07.1": "Absent: shaped returns, and updates of target networks. "
    "Statistics are as in D31, returns of the last 100 episodes.",
    "P07.2": "Means of a batch. Absent: values of each choice, and the targets of state values, of which "
    "`explained_variance` is reported.",
    "P07.3": "Absent: mean and deviation of the actions' distribution, and variance of returns, of which "
    "`explained_variance` is reported.",
    "P07.4": "Absent: shaped returns, the distance from the goal, and scores of off-policy evaluation.",
    "R03": "Two actors train with one kind of action for each algorithm. `make long` trains all; CI makes the first "
    "updates of one preset for each algorithm.",
    "I03": "No Horovod: `learner.replicas` shards a batch over devices with JAX.",
}


def rows_in(source: str) -> Iterator[tuple[str, str]]:
    """Yields (row id, name of the marked test). A mark on a class or module counts for that as a whole.

    Raises:
        ValueError: A mark is on something else than a test, has no id, or one that is not letters followed by digits.
    """

    def visit(node: ast.AST, scope: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            scope = (*scope, node.name)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"pytest.mark.row", "mark.row"}:
            ids = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
            if not ids or len(ids) < len(node.args) or not all(ROW_ID.fullmatch(str(row)) for row in ids):
                raise ValueError(f"line {node.lineno}: a row mark needs literal ids such as 'B15': {ast.unparse(node)}")
            if scope and not scope[-1].lower().startswith("test"):
                raise ValueError(f"line {node.lineno}: a row mark on {scope[-1]}, which is no test")
            yield from ((str(row), "::".join(scope)) for row in ids)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, scope)

    yield from visit(ast.parse(source), ())


def page(tests: Path = TESTS) -> str:
    """Return the page for the test files under `tests`, rows in order of letter and number."""
    settled: dict[str, set[str]] = defaultdict(set)
    for path in sorted(tests.rglob("test_*.py")):
        file = path.relative_to(tests.parent).as_posix()
        try:
            for row, name in rows_in(path.read_text()):
                settled[row].add(f"`{file}::{name}`" if name else f"`{file}`")
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
    words, absent = _lines_of(PROMISES), _lines_of(ABSENT)
    if twice := sorted(settled.keys() & {*absent, *OBSOLETE}, key=_order):
        raise ValueError(f"{', '.join(twice)}: a test settles what is said to be absent or obsolete")
    if without := sorted(settled.keys() - words.keys(), key=_order):
        raise ValueError(f"{PROMISES.name} has no line for {', '.join(without)}: say what the row promises")
    ordered = sorted(settled, key=_order)
    lines = [f"| {row} | {words[row]} | {'<br>'.join(sorted(settled[row]))} |\n" for row in ordered]
    otherwise = [f"| {row} | {by} |\n" for row, by in sorted(OTHERWISE.items(), key=lambda item: _order(item[0]))]
    lacking = [f"| {row} | {absent[row]} |\n" for row in sorted(absent, key=_order)]
    parts = [HEADER, *lines, OTHERWISE_HEADER, *otherwise, ABSENT_HEADER, *lacking, OBSOLETE_HEADER]
    return "".join(parts) + ", ".join(sorted(OBSOLETE, key=_order)) + ".\n"


def _lines_of(path: Path) -> dict[str, str]:
    """Return row -> what the file says of it, in one line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {row: words for row, _, words in (line.partition(" ") for line in lines)}


def _order(row: str) -> tuple[str, int, int]:
    match = ROW_ID.fullmatch(row)
    assert match is not None, row
    return match[1], int(match[2]), int(match[3] or 0)


if __name__ == "__main__":
    print(page(), end="")
