from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl.apps.dashboard.query import FIELDS, Term, number_in, parse, resolved, select
from distrl.errors import ConfigError

NUMBERS = ("env_steps", "mean_return_100", "evaluation_mean_return")
RUNS: tuple[dict[str, Any], ...] = (
    {
        "text": "first cartpole-v1 ppo ended",
        "fields": {"algorithm": {"ppo"}, "env": {"cartpole-v1"}, "state": {"ended", "solved"}, "tag": {"paper", "v2"}},
        "columns": {"env_steps": 2e6, "mean_return_100": 475.0, "network.learning_rate": 3e-4, "seed": 3},
    },
    {
        "text": "second pong-v5 impala failed",
        "fields": {"algorithm": {"impala"}, "env": {"pong-v5"}, "state": {"failed"}, "name": {"my second try"}},
        "columns": {
            "env_steps": 1e6,
            "mean_return_100": None,
            "network.learning_rate": 1e-3,
            "seed": 1,
            "double": True,
        },
    },
    {
        "text": "third cartpole-v1 appo running",
        "fields": {
            "algorithm": {"appo"},
            "env": {"cartpole-v1"},
            "state": {"running", "stalled"},
            "note": {"bad seed"},
        },
        "columns": {"env_steps": 5, "mean_return_100": 20.5, "network.learning_rate": 1e-5, "learner.init_from": None},
    },
    {
        "text": "fourth cartpole-v1 ppo ended",
        "fields": {"algorithm": {"ppo"}, "env": {"cartpole-v1"}, "state": {"ended"}, "archived": {"yes"}},
        "columns": {"actors.count": 4, "learner.replicas.count": 2, "network.optimizer_type": "Adam"},
    },
)


class Table:
    """`Facts` of hand-made runs."""

    def __init__(self, runs=RUNS):
        self.runs = runs
        self.numbers = NUMBERS
        self.settings = sorted({name for run in runs for name in run["columns"]} - {*NUMBERS})

    def __len__(self):
        return len(self.runs)

    def texts(self):
        return [run["text"] for run in self.runs]

    def field(self, name):
        assert name in FIELDS.values()
        usual = {"no"} if name == "archived" else set()
        return [run["fields"].get(name, usual) for run in self.runs]

    def column(self, name):
        return [run["columns"].get(name) for run in self.runs]


def found(query):
    return select(parse(query), Table())


@pytest.mark.parametrize(
    ("query", "positions"),
    [
        ("", [0, 1, 2]),  # without what is archived
        ("cartpole", [0, 2]),
        ("CARTPOLE ended", [0]),
        ("-cartpole", [1]),
        ("algo:ppo", [0]),  # not a part of appo
        ("algorithm=PPO", [0]),
        ("env:pong", [1]),
        ("-env:pong", [0, 2]),
        ("state:failed", [1]),
        ("is:stalled", [2]),
        ("-state:failed -state:solved", [2]),
        ("state!=failed", [0, 2]),
        ("tag:v2", [0]),
        ("tag:v", []),
        ('name:"second try"', [1]),
        ("note:bad", [2]),
        ("archived:yes", [3]),
        ("archived:any ppo", [0, 2, 3]),
        ("archived:no", [0, 1, 2]),
        ("lr>=3e-4", [0, 1]),
        ("lr<3e-4", [2]),
        ("lr=0.0003", [0]),
        ("lr:3e-4", [0]),
        ("lr!=3e-4", [1, 2]),
        ("learning_rate=1e-3", [1]),
        ("network.learning_rate<=1e-5", [2]),
        ("seed=3", [0]),
        ("seed!=3", [1]),  # not a run without a seed
        ("-seed=3", [1, 2]),
        ("return>400", [0]),
        ("-return>400", [1, 2]),  # also a run without a return
        ("env_steps>1M", [0]),
        ("steps>=1_000k steps<2e6", [1]),
        ("double=true", [1]),
        ("optimizer_type=adam archived:any", [3]),
        ("-word", [0, 1, 2]),
        ("-", [0, 1, 2]),  # a word
        ('"second pong"', [1]),
        ('"lr>=3e-4"', []),  # a word
    ],
)
def test_queries(query, positions):
    assert found(query) == positions


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("lrr>1", "no number or setting is named 'lrr'; did you mean lr"),
        ("zzzzzz=1", "no number or setting is named 'zzzzzz'; numbers are env_steps"),
        ("count>1", "count is ambiguous: actors.count, learner.replicas.count; write more of the path"),
        ("state:faled", "state is one of running, paused, stalled, slow, ended"),
        ("archived:maybe", "archived is one of no, yes, any, not 'maybe'"),
        ("lr>=", "lr>= has no value"),
        ("lr>=fast", "network.learning_rate is compared with a number, such as lr>=3e-4"),
        ("state>failed", "state has no order; write state:failed"),
        ("colour:red", "no number or setting is named 'colour'"),
    ],
)
def test_a_query_that_cannot_be_answered(query, problem):
    with pytest.raises(ConfigError) as caught:
        found(query)
    assert str(caught.value).startswith(problem)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3e-4", 3e-4),
        ("1_000", 1000.0),
        ("20k", 20_000.0),
        ("1.5M", 1.5e6),
        (".5", 0.5),
        ("-3", -3.0),
        ("1e999", None),
        ("nan", None),
        ("inf", None),
        ("k", None),
        ("", None),
        ("0x10", None),
    ],
)
def test_numbers(text, number):
    assert number_in(text) == number


def test_a_name_is_a_number_before_it_is_a_setting():
    settings = ["stop.env_steps", "network.learning_rate", "algorithm.critic.learning_rate"]
    assert resolved("env_steps", NUMBERS, settings) == "env_steps"
    assert resolved("stop.env_steps", NUMBERS, settings) == "stop.env_steps"
    assert resolved("critic.learning_rate", NUMBERS, settings) == "algorithm.critic.learning_rate"
    with pytest.raises(ConfigError, match="ambiguous"):
        resolved("lr", NUMBERS, settings)


@given(st.text(max_size=60))
def test_any_text_is_a_query_or_one_line_that_says_why_not(text):
    problem, positions = "", []
    try:
        positions = found(text)
    except ConfigError as error:
        problem = str(error)
    assert len(problem) < 400
    assert "\n" not in problem
    assert positions == sorted({*positions} & {0, 1, 2, 3})


NAMES = st.sampled_from(("lr", "return", "steps", "seed", "network.learning_rate"))
COMPARISONS = st.builds(Term, NAMES, st.sampled_from((">", ">=", "<", "<=", "=", "!=")), st.sampled_from(("1", "3e-4")))
TERMS = COMPARISONS | st.builds(Term, st.just(""), st.just(":"), st.sampled_from(("cartpole", "v5", "ended", "x")))


@given(TERMS)
def test_a_term_and_its_negation_share_no_run_and_leave_none_out(term):
    everyone = Term("archived", ":", "any")
    negated = Term(term.name, term.operator, term.value, negated=True)
    one, other = select([everyone, term], Table()), select([everyone, negated], Table())
    assert sorted([*one, *other]) == [0, 1, 2, 3]


@given(st.lists(TERMS, max_size=4))
def test_terms_select_what_each_of_them_selects(terms):
    alone = [set(select([term], Table())) for term in terms]
    assert set(select(terms, Table())) == {0, 1, 2}.intersection(*alone)


@given(TERMS)
def test_a_term_as_it_is_written_is_read_back(term):
    assert parse(f"{term.name}{term.operator if term.name else ''}{term.value}") == [term]
