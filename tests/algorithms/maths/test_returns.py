"""V-trace, GAE, n-step returns and Retrace against hand-computed tables and slow twins that look like the papers.

Runs on every Keras backend (see test_backends.py), so nothing here imports TensorFlow or JAX.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from distrl.algorithms.maths.returns import corrected_gae, gae, n_step, retrace, step_discounts, vtrace


def column(*values):
    """[T] -> float32 [T, 1]."""
    return np.array(values, "float32")[:, None]


def flags(text):
    """'..x.' -> bool [T, 1], True at x."""
    return np.array([letter == "x" for letter in text])[:, None]


def check(returns, targets, advantages):
    np.testing.assert_allclose(ops.convert_to_numpy(returns.value_targets), targets, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ops.convert_to_numpy(returns.advantages), advantages, rtol=1e-5, atol=1e-5)


# --- twins: one column, sums written out as in the papers -------------------------------------------------------------


def twin_vtrace(v, r, d, valid, weights, rho_bar, c_bar, rho_bar_pg, trace_lambda):
    """Espeholt et al. 2018, equation 1: vs_s = V_s + sum_t (prod_{i<t} discount_i c_i) delta_t."""
    steps = len(r)
    rho, c, rho_pg = (
        np.where(valid, weights if bar is None else np.minimum(bar, weights), 0.0)
        for bar in (rho_bar, c_bar, rho_bar_pg)
    )
    delta = rho * (r + d * v[1:] - v[:-1])
    vs = v.astype(float).copy()
    for s in range(steps):
        for t in range(s, steps):
            vs[s] += np.prod(d[s:t] * trace_lambda * c[s:t]) * delta[t]
    return vs[:-1], rho_pg * (r + d * vs[1:] - v[:-1])


def twin_gae(v, r, d, valid, trace_lambda):
    """Schulman et al. 2016, equation 16: A_t = sum_l (gamma lambda)^l delta_{t+l}, up to the first invalid row."""
    steps = len(r)
    advantages = np.zeros(steps)
    for t in range(steps):
        for i in range(t, steps):
            if not valid[i]:
                break
            advantages[t] += np.prod(d[t:i] * trace_lambda) * (r[i] + d[i] * v[i + 1] - v[i])
    return v[:-1] + advantages, advantages


def twin_corrected_gae(v, r, d, valid, weights, rho_bar, c_bar, trace_lambda):
    """A_t = sum_l (gamma lambda)^l w_t,l delta_{t+l}: w is 1 of the step itself, V-trace's c...c rho of later ones."""
    steps = len(r)
    targets, _ = twin_vtrace(v, r, d, valid, weights, rho_bar, c_bar, None, trace_lambda)
    rho, c = (np.where(valid, weights if bar is None else np.minimum(bar, weights), 0.0) for bar in (rho_bar, c_bar))
    delta = r + d * v[1:] - v[:-1]
    advantages = np.where(valid, delta, 0.0)
    for t in range(steps):
        for later in range(t + 1, steps):
            weight = np.prod(d[t:later] * trace_lambda) * np.prod(c[t + 1 : later]) * rho[later]
            advantages[t] += valid[t] * weight * delta[later]
    return targets, advantages


def twin_n_step(v, r, d, valid, steps):
    """Walks n steps forward from each row, then takes V."""
    targets = np.zeros(len(r))
    for start in range(len(r)):
        t, weight = start, 1.0
        while t < len(r) and t < start + steps and valid[t]:
            targets[start] += weight * r[t]
            weight *= d[t]
            t += 1
        targets[start] += weight * v[t]
    return targets, targets - v[:-1]


def twin_retrace(v, q, r, d, valid, weights, c_bar, trace_lambda):
    """Munos et al. 2016, equation 3: Q_s + sum_t (prod_{s<i<=t} d_{i-1} c_i) (r_t + d_t V_{t+1} - Q_t)."""
    c = trace_lambda * np.minimum(c_bar, weights)
    targets = q.astype(float).copy()
    for s in range(len(r)):
        for t in range(s, len(r)):
            if not valid[t]:
                break
            targets[s] += np.prod(d[s:t] * c[s + 1 : t + 1]) * (r[t] + d[t] * v[t + 1] - q[t])
    return targets


def by_column(twin, arrays, *settings):
    """Runs a twin on every column of [T, N] arrays."""
    results = [twin(*(array[:, n] for array in arrays), *settings) for n in range(arrays[0].shape[1])]
    return np.stack([targets for targets, _ in results], 1), np.stack([advantages for _, advantages in results], 1)


# --- hand-computed tables ---------------------------------------------------------------------------------------------


@pytest.mark.row("H05")
@pytest.mark.parametrize(
    ("weights", "bars", "targets", "advantages"),
    [
        # rho = c = [.5, 1, 1]; deltas [.7, 1.35, 2.3];
        # vs_2 = 1.5 + 2.3, vs_1 = 1 + 1.35 + .9 x 2.3 = 4.42 - 1, ...
        ((0.5, 1.0, 2.0), (1.0, 1.0, 1.0), (2.289, 3.42, 3.8), (1.789, 2.42, 2.3)),
        # On-policy: the 3-step return, 1 + .9 x 0 + .81 x 2 + .729 x 2 = 4.078.
        ((1.0, 1.0, 1.0), (1.0, 1.0, 1.0), (4.078, 3.42, 3.8), (3.578, 2.42, 2.3)),
        # No truncation: delta_2 = 2 x 2.3 = 4.6, vs_2 = 6.1; vs_1 = 1 + .35 + .9 x 4.6 = 5.49;
        # vs_0 = .5 + .7 + .9 x .5 x 4.49 = 3.2205; adv_0 = .5 (1 + .9 x 5.49 - .5) = 2.7205.
        ((0.5, 1.0, 2.0), (None, None, None), (3.2205, 5.49, 6.1), (2.7205, 4.49, 4.6)),
    ],
)
def test_vtrace_of_the_paper_by_hand(weights, bars, targets, advantages):
    result = vtrace(
        values=column(0.5, 1.0, 1.5, 2.0),
        rewards=column(1.0, 0.0, 2.0),
        discounts=column(0.9, 0.9, 0.9),
        valid=~flags("..."),
        log_rhos=np.log(column(*weights)),
        rho_bar=bars[0],
        c_bar=bars[1],
        rho_bar_policy_gradient=bars[2],
    )
    check(result, column(*targets), column(*advantages))


@pytest.mark.parametrize(
    ("trace_lambda", "targets", "advantages"),
    [
        # As above: rho = c = [.5, 1, 1]; advantages are not weighed by rho: 1 + .9 x 3.42 - .5, 0 + .9 x 3.8 - 1, 2.3.
        (1.0, (2.289, 3.42, 3.8), (3.578, 2.42, 2.3)),
        # vs - V: 2.3; .35 + .45 x 2.3 = 1.385; .7 + .225 x 1.385. Advantages 1.4 + .45 x 1.385; .35 + .45 x 2.3; 2.3.
        (0.5, (1.511625, 2.385, 3.8), (2.02325, 1.385, 2.3)),
        # One step: nothing follows that would have to be corrected.
        (0.0, (1.2, 1.35, 3.8), (1.4, 0.35, 2.3)),
    ],
)
def test_corrected_gae_by_hand(trace_lambda, targets, advantages):
    result = corrected_gae(
        values=column(0.5, 1.0, 1.5, 2.0),
        rewards=column(1.0, 0.0, 2.0),
        discounts=column(0.9, 0.9, 0.9),
        valid=~flags("..."),
        log_rhos=np.log(column(0.5, 1.0, 2.0)),
        trace_lambda=trace_lambda,
    )
    check(result, column(*targets), column(*advantages))


@pytest.mark.row("D163")
@pytest.mark.parametrize(("terminated", "advantages"), [("...", (2.12648, 1.634, 0.95)), (".x.", (1.31, 0.5, 0.95))])
def test_gae_by_hand(terminated, advantages):
    values = column(0.5, 0.5, 0.5, 0.5)
    result = gae(
        values=values,
        rewards=column(1.0, 1.0, 1.0),
        discounts=step_discounts(flags(terminated), 0.9),
        valid=~flags("..."),
        trace_lambda=0.8,
    )
    check(result, values[:-1] + column(*advantages), column(*advantages))


@pytest.mark.row("D164")
@pytest.mark.parametrize(
    ("options", "targets"),
    [
        # 1 + 0; 0 + .9 (2.5 + 1 x (1 - 3)); 1 + .9 (1.5 + 1 x (.45 - 2)), as min(1, 2) = 1. The first is in none.
        ({}, (0.955, 0.45, 1.0)),
        # 1 + .9 (1.5 + .5 x (1.35 - 2)), where 1.35 = 0 + .9 (2.5 + .5 x (1 - 3)).
        ({"trace_lambda": 0.5}, (2.0575, 1.35, 1.0)),
        # 1 + .9 (1.5 + 2 (.45 - 2)).
        ({"c_bar": 10.0}, (-0.44, 0.45, 1.0)),
        # One step each: r + .9 V.
        ({"trace_lambda": 0.0}, (2.35, 2.25, 1.0)),
    ],
)
def test_retrace_by_hand(options, targets):
    """rho [.5, 2, 1], Q [1, 2, 3], V [.5, 1.5, 2.5], r [1, 0, 1], gamma .9, and nothing after the last step."""
    found = retrace(
        values=column(0.5, 1.5, 2.5, 0.0),
        action_values=column(1.0, 2.0, 3.0),
        rewards=column(1.0, 0.0, 1.0),
        discounts=column(0.9, 0.9, 0.9),
        valid=~flags("..."),
        log_rhos=np.log(column(0.5, 2.0, 1.0)),
        **options,
    )
    np.testing.assert_allclose(ops.convert_to_numpy(found), column(*targets), rtol=1e-5)


@pytest.mark.row("H07")
@pytest.mark.parametrize(
    ("horizon", "returns"),
    [(3, [2.95, 1.45125, 1.3775, 1.45, 1, 94]), (None, [4.19319, 2.30862, 1.3775, 1.45, 1, 94])],
)
def test_discounted_rewards_up_to_a_horizon_and_a_final_reward(horizon, returns):
    """discount .95, terminated in the fifth step; 100 follows the last. Without a horizon: GAE with lambda 1."""
    known = {
        "values": column(0, 0, 0, 0, 0, 0, 100),
        "rewards": column(2, 1, 0, 0.5, 1, -1),
        "discounts": step_discounts(flags("....x."), 0.95),
        "valid": np.ones((6, 1), bool),
    }
    computed = n_step(**known, steps=horizon) if horizon else gae(**known, trace_lambda=1.0)
    np.testing.assert_allclose(ops.convert_to_numpy(computed.value_targets), column(*returns), rtol=1e-5)


@pytest.mark.row("H08")
def test_cumulative_discount_from_a_start():
    known = {"values": column(0, 0, 0, 4), "rewards": column(1, 2, 3), "valid": np.ones((3, 1), bool)}
    computed = gae(**known, discounts=step_discounts(flags("..."), 0.5), trace_lambda=1.0)
    np.testing.assert_allclose(ops.convert_to_numpy(computed.value_targets), column(3.25, 4.5, 5), rtol=1e-6)


def test_discounts_are_zero_where_terminated_alone():
    np.testing.assert_allclose(ops.convert_to_numpy(step_discounts(flags(".x."), 0.9)), column(0.9, 0.0, 0.9))


@dataclass(frozen=True)
class Case:
    """How one unroll of four steps ends, and what follows; V = [1, 2, 3, 4], bootstrap 5, reward 1 where valid."""

    terminated: str
    invalid: str
    vtrace: tuple[float, ...]  # targets
    vtrace_advantages: tuple[float, ...]
    gae: tuple[float, ...]  # advantages
    two_step: tuple[float, ...]  # targets


# gamma = .5. Importance weights [.5, 2, .5, 2]: rho = c = [.5, 1, .5, 1], and 2 as the bar of the policy gradient
# leaves them as they are. GAE: lambda = .5. Differences r + .5 V' - V: [1, .5, 0, -.5] where nothing ends.
CASES = {
    # V-trace corrections backwards: -.5; 0 + .25 x -.5; .5 + .5 x -.125; .5 + .25 x .4375.
    # GAE backwards: -.5; 0 + .25 x -.5; .5 + .25 x -.125; 1 + .25 x .46875.
    # Two steps: 1 + .5 + .25 x 3; 1 + .5 + .25 x 4; 1 + .5 + .25 x 5; 1 + .5 x 5 (one step is left).
    "middle": Case(
        terminated="....",
        invalid="....",
        vtrace=(1.609375, 2.4375, 2.875, 3.5),
        vtrace_advantages=(0.609375, 0.875, -0.125, -1.0),
        gae=(1.1171875, 0.46875, -0.125, -0.5),
        two_step=(2.25, 2.5, 2.75, 3.5),
    ),
    # Step 1 terminates: its difference is 1 - 2 = -1; row 2 is the final observation, row 3 the next episode's first.
    "terminated": Case(
        terminated=".x..",
        invalid="..x.",
        vtrace=(1.25, 1.0, 3.0, 3.5),
        vtrace_advantages=(0.25, -2.0, 0.0, -1.0),
        gae=(0.75, -1.0, 0.0, -0.5),
        two_step=(1.5, 1.0, 3.0, 3.5),
    ),
    # Step 1 is truncated: its difference, 1 + .5 x 3 - 2 = .5, bootstraps from V = 3 of the final observation.
    "truncated": Case(
        terminated="....",
        invalid="..x.",
        vtrace=(1.625, 2.5, 3.0, 3.5),
        vtrace_advantages=(0.625, 1.0, 0.0, -1.0),
        gae=(1.125, 0.5, 0.0, -0.5),
        two_step=(2.25, 2.5, 3.0, 3.5),
    ),
    # The last step terminates: its difference is 1 - 4 = -3, V = 5 of the final observation counts for nothing.
    "terminated at the end": Case(
        terminated="...x",
        invalid="....",
        vtrace=(1.53125, 2.125, 2.25, 1.0),
        vtrace_advantages=(0.53125, 0.25, -0.75, -6.0),
        gae=(1.078125, 0.3125, -0.75, -3.0),
        two_step=(2.25, 2.5, 1.5, 1.0),
    ),
    # The last step of the unroll before ended an episode: row 0 is its final observation.
    "ended before": Case(
        terminated="....",
        invalid="x...",
        vtrace=(1.0, 2.4375, 2.875, 3.5),
        vtrace_advantages=(0.0, 0.875, -0.125, -1.0),
        gae=(0.0, 0.46875, -0.125, -0.5),
        two_step=(1.0, 2.5, 2.75, 3.5),
    ),
    # Step 0 is truncated: 1 + .5 x 2 - 1 = 1. Step 2 terminates: 1 - 3 = -2. Rows 1 and 3 are final observations.
    "two episodes": Case(
        terminated="..x.",
        invalid=".x.x",
        vtrace=(1.5, 2.0, 2.0, 4.0),
        vtrace_advantages=(0.5, 0.0, -1.0, 0.0),
        gae=(1.0, 0.0, -2.0, 0.0),
        two_step=(2.0, 2.0, 1.0, 4.0),
    ),
}
CASES["both"] = CASES["terminated"]  # terminated and truncated at once: the termination decides
CASES["truncated at the end"] = CASES["middle"]  # the bootstrap row is the final observation, as it is in the middle


def inputs(case):
    valid = ~flags(case.invalid)
    return {
        "values": column(1.0, 2.0, 3.0, 4.0, 5.0),
        "rewards": np.where(valid, column(1.0, 1.0, 1.0, 1.0), 0.0).astype("float32"),
        "discounts": step_discounts(flags(case.terminated), 0.5),
        "valid": valid,
    }


@pytest.mark.parametrize("name", CASES)
def test_vtrace_where_episodes_end(name):
    case = CASES[name]
    weights = np.log(column(0.5, 2.0, 0.5, 2.0))
    result = vtrace(**inputs(case), log_rhos=weights, rho_bar_policy_gradient=2.0)
    check(result, column(*case.vtrace), column(*case.vtrace_advantages))


@pytest.mark.parametrize("name", CASES)
def test_gae_where_episodes_end(name):
    case = CASES[name]
    values = column(1.0, 2.0, 3.0, 4.0)
    check(gae(**inputs(case), trace_lambda=0.5), values + column(*case.gae), column(*case.gae))


@pytest.mark.parametrize("name", CASES)
def test_n_step_where_episodes_end(name):
    case = CASES[name]
    targets = column(*case.two_step)
    check(n_step(**inputs(case), steps=2), targets, targets - column(1.0, 2.0, 3.0, 4.0))


# V of the next row and Q = 1.5 of every action: differences r + .5 V' - 1.5 = [.5, 1, 1.5, 2] where nothing ends;
# traces c = [.5, 1, .5, 1].
RETRACED = {
    # Backwards: 2; 1.5 + .5 x 1 x 2; 1 + .5 x .5 x 2.5; .5 + .5 x 1 x 1.625.
    "middle": (1.3125, 1.625, 2.5, 2.0),
    # Step 1 terminates: 1 - 1.5 = -.5, and 0 in its ignored row; .5 + .5 x -.5.
    "terminated": (0.25, -0.5, 0.0, 2.0),
    # Step 1 is truncated: 1 + .5 x 3 - 1.5 = 1, by V of the final observation; .5 + .5 x 1.
    "truncated": (1.0, 1.0, 0.0, 2.0),
    # -.5; 1.5 + .5 x 1 x -.5; 1 + .25 x 1.25; .5 + .5 x 1.3125.
    "terminated at the end": (1.15625, 1.3125, 1.25, -0.5),
    "ended before": (0.0, 1.625, 2.5, 2.0),
    # 1 + .5 x 2 - 1.5 = .5; step 2 terminates: 1 - 1.5.
    "two episodes": (0.5, 0.0, -0.5, 0.0),
}
RETRACED["both"], RETRACED["truncated at the end"] = RETRACED["terminated"], RETRACED["middle"]


@pytest.mark.parametrize("name", CASES)
def test_retrace_where_episodes_end(name):
    values = column(1.5, 1.5, 1.5, 1.5)
    found = retrace(**inputs(CASES[name]), action_values=values, log_rhos=np.log(column(0.5, 2.0, 0.5, 2.0)))
    np.testing.assert_allclose(ops.convert_to_numpy(found), values + column(*RETRACED[name]), rtol=1e-5)


# --- properties -------------------------------------------------------------------------------------------------------

FEW = settings(max_examples=min(40, settings.default.max_examples), deadline=None)
BARS = st.sampled_from([None, 0.5, 1.0, 2.0])
LAMBDAS = st.sampled_from([0.0, 0.3, 0.95, 1.0])


@st.composite
def unrolls(draw):
    """Any unroll: ends anywhere, garbage where not valid except in the reward."""
    steps, sequences = draw(st.integers(1, 7)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (steps, sequences)
    valid = rng.random(shape) < draw(st.sampled_from([0.5, 0.8, 1.0]))
    terminated = (rng.random(shape) < 0.3) & valid
    return {
        "values": rng.normal(size=(steps + 1, sequences)).astype("float32"),
        "rewards": np.where(valid, rng.normal(size=shape), 0.0).astype("float32"),
        "discounts": np.where(terminated, 0.0, draw(st.sampled_from([0.5, 0.9, 1.0]))).astype("float32"),
        "valid": valid,
        "log_rhos": rng.normal(size=shape).astype("float32"),
    }


def without_weights(unroll):
    return {name: array for name, array in unroll.items() if name != "log_rhos"}


@FEW
@given(unrolls(), BARS, BARS, BARS, LAMBDAS)
def test_vtrace_is_its_twin(unroll, rho_bar, c_bar, rho_bar_pg, trace_lambda):
    bars = {"rho_bar": rho_bar, "c_bar": c_bar, "rho_bar_policy_gradient": rho_bar_pg}
    arrays = [*without_weights(unroll).values(), np.exp(unroll["log_rhos"])]
    expected = by_column(twin_vtrace, arrays, rho_bar, c_bar, rho_bar_pg, trace_lambda)
    check(vtrace(**unroll, **bars, trace_lambda=trace_lambda), *expected)


@FEW
@given(unrolls(), LAMBDAS)
def test_gae_is_its_twin(unroll, trace_lambda):
    arrays = without_weights(unroll)
    expected = by_column(twin_gae, list(arrays.values()), trace_lambda)
    check(gae(**arrays, trace_lambda=trace_lambda), *expected)


@FEW
@given(unrolls(), BARS, BARS, LAMBDAS)
def test_corrected_gae_is_its_twin(unroll, rho_bar, c_bar, trace_lambda):
    arrays = [*without_weights(unroll).values(), np.exp(unroll["log_rhos"])]
    result = corrected_gae(**unroll, rho_bar=rho_bar, c_bar=c_bar, trace_lambda=trace_lambda)
    check(result, *by_column(twin_corrected_gae, arrays, rho_bar, c_bar, trace_lambda))


def with_action_values(unroll, spread=1.0):
    """Q(o_t, a_t) around V(o_t), after the values, in the order of the twin's arguments."""
    rng = np.random.default_rng(7)
    present = unroll["values"][:-1]
    own = (present + spread * rng.normal(size=present.shape)).astype("float32")
    return {"values": unroll["values"], "action_values": own, **unroll}


@FEW
@given(unrolls(), st.sampled_from([0.5, 1.0, 10.0]), LAMBDAS)
def test_retrace_is_its_twin(unroll, c_bar, trace_lambda):
    known = with_action_values(unroll)
    arrays = [*without_weights(known).values(), np.exp(known["log_rhos"])]
    expected = np.stack(
        [twin_retrace(*(array[:, n] for array in arrays), c_bar, trace_lambda) for n in range(arrays[0].shape[1])], 1
    )
    found = retrace(**known, c_bar=c_bar, trace_lambda=trace_lambda)
    np.testing.assert_allclose(ops.convert_to_numpy(found), expected, rtol=1e-4, atol=1e-4)


@FEW
@given(unrolls(), LAMBDAS)
def test_on_policy_retrace_is_the_lambda_return_where_no_action_is_better_than_the_policy(unroll, trace_lambda):
    unroll["log_rhos"] = np.zeros_like(unroll["log_rhos"])
    found = retrace(**with_action_values(unroll, spread=0.0), trace_lambda=trace_lambda)
    expected = gae(**without_weights(unroll), trace_lambda=trace_lambda).value_targets
    np.testing.assert_allclose(ops.convert_to_numpy(found), ops.convert_to_numpy(expected), rtol=1e-4, atol=1e-5)


@FEW
@given(unrolls())
def test_retrace_of_actions_that_the_policy_never_takes_is_one_step(unroll):
    """No trace: the expected SARSA target r + discount V, and Q itself where not valid."""
    unroll["log_rhos"] = np.full_like(unroll["log_rhos"], -1e9)
    known = with_action_values(unroll)
    one_step = unroll["rewards"] + unroll["discounts"] * unroll["values"][1:]
    expected = np.where(unroll["valid"], one_step, known["action_values"])
    np.testing.assert_allclose(ops.convert_to_numpy(retrace(**known)), expected, rtol=1e-5, atol=1e-6)


@FEW
@given(unrolls(), LAMBDAS)
def test_on_policy_corrected_gae_is_gae(unroll, trace_lambda):
    unroll["log_rhos"] = np.zeros_like(unroll["log_rhos"])
    expected = by_column(twin_gae, list(without_weights(unroll).values()), trace_lambda)
    check(corrected_gae(**unroll, trace_lambda=trace_lambda), *expected)


@FEW
@given(unrolls(), st.integers(1, 9))
def test_n_step_is_its_twin(unroll, steps):
    arrays = without_weights(unroll)
    check(n_step(**arrays, steps=steps), *by_column(twin_n_step, list(arrays.values()), steps))


@FEW
@given(unrolls())
def test_on_policy_vtrace_is_the_n_step_return(unroll):
    unroll["log_rhos"] = np.zeros_like(unroll["log_rhos"])
    arrays = without_weights(unroll)
    check(vtrace(**unroll), *by_column(twin_n_step, list(arrays.values()), len(unroll["rewards"])))


@FEW
@given(unrolls())
def test_gae_of_lambda_one_is_monte_carlo(unroll):
    arrays = without_weights(unroll)
    check(gae(**arrays, trace_lambda=1.0), *by_column(twin_n_step, list(arrays.values()), len(unroll["rewards"])))


@FEW
@given(unrolls(), st.data())
def test_nothing_reaches_back_across_the_seam_between_episodes(unroll, data):
    """Whatever happens after a row that is not valid, targets and advantages up to it stay as they are."""
    seam = data.draw(st.integers(0, len(unroll["rewards"]) - 1))
    unroll["valid"][seam] = False
    other = {name: array.copy() for name, array in unroll.items()}
    other["values"][seam + 1 :] += 10.0
    other["rewards"][seam + 1 :] -= 7.0
    other["log_rhos"][seam:] = 100.0  # the ignored action's weight would overflow
    for first, second in zip(vtrace(**unroll), vtrace(**other), strict=True):
        first, second = ops.convert_to_numpy(first), ops.convert_to_numpy(second)
        np.testing.assert_allclose(first[: seam + 1], second[: seam + 1], rtol=1e-6)
        assert np.isfinite(second).all()
    mine, others = (ops.convert_to_numpy(retrace(**with_action_values(known))) for known in (unroll, other))
    np.testing.assert_allclose(mine[: seam + 1], others[: seam + 1], rtol=1e-6)
    assert np.isfinite(others).all()


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "rewards", "message"),
    [
        ((4, 2), (4, 2), r"got values \[4, 2\], rewards \[4, 2\], discounts \[3, 2\], valid \[3, 2\]"),
        ((4, 2), (3, 1), r"rewards \[3, 1\]"),
        ((4,), (3,), r"values \[4\]"),
        ((1, 2), (0, 2), r"values \[1, 2\]"),
    ],
)
def test_shapes_that_do_not_fit_are_named(values, rewards, message):
    with pytest.raises(ValueError, match=message):
        gae(
            values=np.zeros(values, "float32"),
            rewards=np.zeros(rewards, "float32"),
            discounts=np.zeros((3, 2), "float32"),
            valid=np.ones((3, 2), bool),
            trace_lambda=1.0,
        )


def test_no_steps_are_refused():
    with pytest.raises(ValueError, match="steps >= 1, got 0"):
        n_step(**inputs(CASES["middle"]), steps=0)
