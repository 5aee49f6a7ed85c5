import numpy as np
import onnxruntime
import pytest

from distrl.errors import CheckpointError

X = {"observation": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)}


def disturb(network):
    """Other weights than the initial ones, biases included."""
    rng = np.random.default_rng(1)
    network.set_weights([rng.standard_normal(weight.shape) for weight in network.get_weights()])


@pytest.fixture
def saved(build, tmp_path):
    """(network, its weights saver) after saving into tmp_path."""
    network = build()
    disturb(network)
    weights, _ = network.collect_savers("run/networks")
    weights.save(tmp_path)
    return network, weights


@pytest.mark.row("B20")
def test_a_network_has_two_savers_under_the_parents_path(build, tmp_path):
    weights, onnx = build().collect_savers("run/networks")
    assert [saver.name for saver in (weights, onnx)] == ["run/networks/main"] * 2
    assert weights.save(tmp_path) == tmp_path / "run" / "networks" / "main.npz"
    assert onnx.save(tmp_path) == tmp_path / "run" / "networks" / "main.onnx"
    assert [saver.name for saver in build().collect_savers()] == ["main", "main"]


@pytest.mark.row("B20")
def test_saved_weights_come_back_in_another_network(saved, build, tmp_path):
    network, _ = saved
    other = build(seed=2)
    other.collect_savers("run/networks")[0].restore(tmp_path)
    for array, restored in zip(network.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(restored, array)


@pytest.mark.row("B20", "D48")
@pytest.mark.parametrize("compute_dtype", ["float32", "bfloat16"])
def test_the_onnx_file_needs_nothing_else(build, tmp_path, compute_dtype):
    network, exact = build(compute_dtype=compute_dtype), build()
    disturb(network)
    exact.set_weights(network.get_weights())
    path = network.collect_savers()[1].save(tmp_path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    outputs = session.run(["policy/action", "value"], X)
    for computed, expected in zip(outputs, exact.predict(X), strict=True):
        np.testing.assert_allclose(computed, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.unlink(), "cannot be restored: .*No such file"),
        (lambda path: path.write_bytes(b""), "cannot be restored: No data left in file"),
        (lambda path: path.write_bytes(b"garbage"), "cannot be restored: "),
        (lambda path: path.write_bytes(path.read_bytes()[:-200]), "cannot be restored: File is not a zip file"),
        (
            lambda path: np.savez(path, **{"main/value_head/bias": np.ones(1)}),
            "belongs to another network: main",
        ),
    ],
)
def test_a_file_that_is_none_of_ours_is_one_line_of_error(saved, tmp_path, spoil, message):
    network, weights = saved
    before = network.get_weights()
    spoil(tmp_path / "run" / "networks" / "main.npz")
    with pytest.raises(CheckpointError, match=message) as raised:
        weights.restore(tmp_path)
    assert "\n" not in str(raised.value)
    for array, old in zip(network.get_weights(), before, strict=True):
        np.testing.assert_array_equal(array, old)


def test_weights_of_another_structure_are_refused(saved, build, tmp_path):
    other = build(middleware_parameters={"scheme": [9]})
    with pytest.raises(CheckpointError, match=r"has shape \(4, 9\), given \(4, 8\)"):
        other.collect_savers("run/networks")[0].restore(tmp_path)


def test_values_that_are_not_finite_are_refused(saved, tmp_path):
    network, weights = saved
    arrays = network.network.named_weights()
    arrays["main/value_head/bias"][...] = np.nan
    np.savez(tmp_path / "run" / "networks" / "main.npz", **arrays)
    with pytest.raises(CheckpointError, match=r"cannot be restored: weight main/value_head/bias: .* not finite"):
        weights.restore(tmp_path)
