import numpy as np
import pytest

from distrl.config.heads import ValueHeadParameters

VALUE = (ValueHeadParameters(),)
SGD = {"optimizer_type": "SGD", "learning_rate": 0.1, "middleware_parameters": {"scheme": "Empty"}}
ADAM = {"optimizer_type": "Adam", "learning_rate": 0.1, "middleware_parameters": {"scheme": "Empty"}}
BATCHNORM = {"middleware_parameters": {"scheme": [3], "batchnorm": True}}
NORMALIZED = {"input_embedders_parameters": {"observation": {"normalize": True}}}
ROWS = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
X = {"observation": ROWS}
ONES = np.ones(3, np.float32)
BIAS = "main/value_head/bias"


def fill(copy, value):
    copy.set_weights([np.full_like(array, value) for array in copy.get_weights()])


def value(copy):
    """The one value that all weights of a copy have."""
    values = np.unique(np.concatenate([array.ravel() for array in copy.get_weights()]))
    assert values.size == 1
    return float(values[0])


def accumulate_ones(copy):
    """The gradient of every weight is 1: one input of ones, a value of 0 and a target of -1."""
    before = copy.get_weights()
    fill(copy, 0.0)
    copy.accumulate_gradients({"observation": np.ones((1, 4), np.float32)}, [np.float32([-1.0])])
    copy.set_weights(before)


def test_set_weights_goes_to_online_alone(wrap):
    network = wrap(has_target=True, has_global=True)
    for copy in network.by_name.values():
        fill(copy, 0.0)
    network.set_weights([np.full_like(array, 4.0) for array in network.online.get_weights()], 0.25)
    assert {name: value(copy) for name, copy in network.by_name.items()} == {
        "online": 1.0,
        "target": 0.0,
        "global": 0.0,
    }


def assert_equal(left, right):
    for one, other in zip(left.get_weights(), right.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.row("C06", "B11")
def test_gradients_go_to_the_global_copy_alone(wrap):
    network = wrap(has_global=True, heads=VALUE, **SGD)
    for copy in network.by_name.values():
        fill(copy, 0.0)
    accumulate_ones(network.online)
    network.apply_gradients_to_global_network()
    assert value(network.global_) == pytest.approx(-0.1)
    assert value(network.online) == 0.0
    network.apply_gradients_to_global_network([np.full_like(array, 2.0) for array in network.online.get_weights()])
    assert value(network.global_) == pytest.approx(-0.3)


@pytest.mark.row("C06")
def test_without_a_global_copy_there_is_nowhere_to_apply_to(wrap):
    with pytest.raises(ValueError, match="network main has no global copy to apply gradients to"):
        wrap().apply_gradients_to_global_network()


@pytest.mark.row("C06", "A03", "B11")
def test_workers_share_an_optimizer_or_have_their_own(wrap):
    """Adam, two workers, one step of gradient 1 each: one optimizer with two steps, or two with one step each.

    The first step of any Adam is -0.1 (but for epsilon). A second step of gradient 1 with the same moments is -0.1
    too; what differs are the moments that a third one would see.
    """
    for shared, iterations in ((True, [2, 2]), (False, [1, 1])):
        first = wrap(has_global=True, heads=VALUE, shared_optimizer=shared, **ADAM)
        second = wrap(shared=first.copies.global_, heads=VALUE, shared_optimizer=shared, **ADAM)
        fill(first.global_, 0.0)
        for network in (first, second):
            accumulate_ones(network.online)
            network.apply_gradients_and_sync_networks()
        assert [int(network.copies.optimizer.iterations) for network in (first, second)] == iterations
        assert (first.copies.optimizer is second.copies.optimizer) == shared
        assert value(first.global_) == value(second.online) == pytest.approx(-0.2, rel=1e-3)
        assert value(first.online) == pytest.approx(-0.1, rel=1e-3)


@pytest.mark.row("C07")
def test_gradients_go_to_the_online_copy_alone(wrap):
    network = wrap(has_global=True, heads=VALUE, **SGD)
    for copy in network.by_name.values():
        fill(copy, 0.0)
    accumulate_ones(network.online)
    network.apply_gradients_to_online_network()
    assert (value(network.online), value(network.global_)) == (pytest.approx(-0.1), 0.0)
    network.apply_gradients_to_online_network([np.ones_like(array) for array in network.online.get_weights()])
    assert value(network.online) == pytest.approx(-0.2)


def moving_mean(copy):
    (mean,) = (array for name, array in copy.network.named_weights().items() if name.endswith("moving_mean"))
    return mean


@pytest.mark.row("C08", "T04")
@pytest.mark.parametrize("shared", [True, False])
def test_additional_inputs_move_the_global_copys_averages(wrap, shared):
    network = wrap(has_global=True, heads=VALUE, shared_optimizer=shared, **BATCHNORM)
    network.apply_gradients_to_global_network()
    assert not moving_mean(network.global_).any()
    network.apply_gradients_to_global_network(additional_inputs=X)
    assert moving_mean(network.global_).all()
    assert not moving_mean(network.online).any()


@pytest.mark.row("C08")
def test_additional_inputs_move_the_online_copys_averages(wrap):
    network = wrap(heads=VALUE, **BATCHNORM)
    network.apply_gradients_to_online_network()
    assert not moving_mean(network.online).any()
    network.apply_gradients_to_online_network(additional_inputs=X)
    assert moving_mean(network.online).all()


@pytest.mark.row("C09", "T01")
@pytest.mark.parametrize("has_global", [True, False])
@pytest.mark.parametrize("reset", [True, False])
def test_reset_gradients_resets_when_it_is_true(wrap, has_global, reset):
    network = wrap(has_global=has_global, heads=VALUE, **SGD)
    for copy in network.by_name.values():
        fill(copy, 0.0)
    accumulate_ones(network.online)
    network.apply_gradients_and_sync_networks(reset_gradients=reset)
    assert [value(copy) for copy in network.by_name.values()] == pytest.approx([-0.1] * len(network.by_name))
    kept = np.concatenate([gradient.ravel() for gradient in network.online.accumulated_gradients])
    assert np.all(kept == (0.0 if reset else 1.0))


@pytest.mark.row("C10", "I11")
@pytest.mark.parametrize("has_global", [True, False])
def test_train_and_sync_networks(wrap, has_global):
    network = wrap(has_global=has_global, heads=VALUE, **SGD)
    before = network.online.get_weights()
    network.online.accumulate_gradients(X, [100.0 * ONES])  # is replaced
    told = network.train_and_sync_networks(X, [ONES])
    assert (len(told), len(told.losses)) == (4, 1)
    gradients = network.online.accumulated_gradients  # kept, as Coach keeps them
    for copy in network.by_name.values():
        for old, new, gradient in zip(before, copy.get_weights(), gradients, strict=True):
            np.testing.assert_allclose(new, old - 0.1 * gradient, rtol=1e-5, atol=1e-7)
    again = network.train_and_sync_networks(X, [ONES], importance_weights=np.zeros(3))
    assert again.total_loss == 0.0


@pytest.mark.row("C08", "C10")
def test_train_and_sync_passes_its_inputs_on_if_asked(wrap):
    network = wrap(has_global=True, heads=VALUE, **BATCHNORM)
    network.train_and_sync_networks(X, [ONES])
    assert not moving_mean(network.online).any()
    network.train_and_sync_networks(X, [ONES], use_inputs_for_apply_gradients=True)
    assert moving_mean(network.online).all()
    np.testing.assert_array_equal(moving_mean(network.online), moving_mean(network.global_))


@pytest.mark.row("C11", "B17")
def test_parallel_prediction_asks_every_copy_once(wrap):
    network = wrap(has_target=True)
    fill(network.target, 0.5)
    target, online = network.parallel_prediction([(network.target, X), (network.online, {"observation": -ROWS})])
    for one, other in zip(target, network.target.predict(X), strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(online, network.online.predict({"observation": -ROWS}), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="each of online, target of network main can occur only once"):
        network.parallel_prediction([(network.target, X), (network.target, X)])
    with pytest.raises(ValueError, match="can occur only once"):
        network.parallel_prediction([(wrap().online, X)])


@pytest.mark.row("C12")
def test_training_is_set_for_online_and_target(wrap):
    network = wrap(True, True, heads=VALUE, middleware_parameters={"scheme": [64], "dropout_rate": 0.5})

    def draws(copy):
        return np.abs(copy.predict(X) - copy.predict(X)).max() > 1e-4

    network.set_is_training(True)
    assert [draws(copy) for copy in network.by_name.values()] == [False, True, True]
    network.set_is_training(False)
    assert [draws(copy) for copy in network.by_name.values()] == [False, False, False]


@pytest.mark.row("C13")
def test_variables_by_scope(wrap):
    network = wrap(True, True)
    local, shared = (network.variables(scope) for scope in ("local", "global"))
    assert shared == network.copies.global_.model.variables
    assert local == [*network.copies.online.model.variables, *network.copies.target.model.variables]
    assert not {id(variable) for variable in local} & {id(variable) for variable in shared}
    assert wrap().variables("global") == []


@pytest.mark.row("C15")
def test_str_names_and_describes_the_copies(wrap):
    copy = "observation[4] -> policy/action[2], value[]; 67 weights in 6 arrays"
    assert str(wrap(True, True)) == (
        "Network: main, Copies: 3 (global network | online network | target network)\n"
        f"global network: {copy}\nonline network: {copy}\ntarget network: {copy}"
    )
    assert str(wrap()).splitlines()[0] == "Network: main, Copies: 1 (online network)"


@pytest.mark.row("C16", "B20")
@pytest.mark.parametrize("has_global", [True, False])
def test_savers_are_of_the_authoritative_copy_and_all_copies_get_it(wrap, tmp_path, has_global):
    network = wrap(has_target=True, has_global=has_global)
    authority = network.global_ or network.online
    fill(network.online, 1.0)
    fill(network.target, 2.0)
    fill(authority, 3.0)
    savers = network.collect_savers("run")
    assert [saver.name for saver in savers] == ["run/main", "run/main"]
    savers[0].save(tmp_path)
    for copy in network.by_name.values():
        fill(copy, 0.0)
    savers[0].restore(tmp_path)
    assert [value(copy) for copy in network.by_name.values()] == [3.0] * len(network.by_name)


def test_savers_bring_the_statistics_along(wrap, tmp_path):
    normalized = {"input_embedders_parameters": {"observation": {"normalize": True}}}
    network, other = wrap(**normalized), wrap(**normalized)
    moments, others = (one.copies.statistics.moments["observation"] for one in (network, other))
    moments.add(ROWS)
    saver = network.collect_savers("run")[0]
    saver.save(tmp_path)
    other.collect_savers("run")[0].restore(tmp_path)
    assert moments.count == 3
    for key, array in moments.state().items():
        np.testing.assert_array_equal(others.state()[key], array)
