import pytest
from pydantic import TypeAdapter, ValidationError

from distrl.config import layers
from distrl.config.load import dump, load
from distrl.config.network import BlockParameters, EmbedderParameters
from distrl.errors import ConfigError

SCHEME = "network.middleware_parameters.scheme"
LAYER = TypeAdapter(layers.Layer)


def test_a_mapping_without_a_kind_is_dense_and_a_number_stays_one():
    assert LAYER.validate_python({"units": 3}) == layers.DenseLayer(units=3)
    assert LAYER.validate_python(3) == 3
    assert LAYER.validate_python({"kind": "residual", "layers": [3, {"kind": "flatten"}]}) == layers.ResidualLayer(
        layers=(3, layers.FlattenLayer())
    )


@pytest.mark.parametrize("cls", [member.__origin__ for member in layers.LayerParameters.__args__])
def test_every_kind_can_be_written_and_read_back(cls):
    required = {
        "filters": 2,
        "units": 3,
        "indices": 4,
        "activation": "relu",
        "rate": 0.5,
        "layer": "a.b:C",
        "layers": [1],
    }
    given = {name: required[name] for name, field in cls.model_fields.items() if field.is_required() or name == "units"}
    layer = LAYER.validate_python({"kind": cls.model_fields["kind"].default, **given})
    assert type(layer) is cls
    assert LAYER.validate_python(layer.model_dump(mode="json")) == layer


@pytest.mark.row("L15", "L04.5")
def test_a_scheme_survives_its_file(tmp_path):
    text = (
        f"--set={SCHEME}=[64, {{kind: conv2d, filters: 3, kernel_size: [3, 2]}}, "
        "{kind: residual, layers: [{units: 2, kernel_initializer: [[1, 0], [0, 1.5]]}]}]"
    )
    loaded = load(sets=[text.removeprefix("--set=")])
    scheme = loaded.config.network.middleware_parameters.scheme
    assert scheme[0] == 64
    assert scheme[1].kernel_size == (3, 2)
    assert scheme[2].layers[0].kernel_initializer == ((1.0, 0.0), (0.0, 1.5))
    (tmp_path / "run.yaml").write_text(dump(loaded))
    assert load(file=tmp_path / "run.yaml").config == loaded.config


def test_schemes_by_name():
    assert BlockParameters().scheme == "Medium"
    assert EmbedderParameters().scheme == "auto"
    assert EmbedderParameters(scheme="ImpalaResNet").scheme == "ImpalaResNet"
    with pytest.raises(ValidationError):
        BlockParameters(scheme="ImpalaResNet")


@pytest.mark.row("L02", "L12.1", "L15", "R05")
@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("[{unitz: 3}]", f"unknown key {SCHEME}.0.unitz (from flag --set); did you mean {SCHEME}.0.units?"),
        (
            "[64, {kind: densee}]",
            f"{SCHEME}.1: {{kind: densee}} (from flag --set) must have a kind of dense, noisy_dense, conv1d, conv2d, "
            "pool2d, flatten, activation, dropout, batch_norm, batch_renorm, layer_norm, embedding, dueling, lstm, "
            "custom, residual, or be a number; did you mean dense?",
        ),
        ("5", f"{SCHEME}: 5 (from flag --set) must be the name of a scheme or a list of layers"),
        (
            "medium",
            f"{SCHEME}: 'medium' (from flag --set) must be 'Empty', 'Shallow', 'Medium' or 'Deep'; "
            "did you mean Medium?",
        ),
        ("[0]", f"{SCHEME}.0: 0 (from flag --set) must be greater than or equal to 1"),
        ("[99999999999]", f"{SCHEME}.0: 99999999999 (from flag --set) must be less than or equal to 16777216"),
        ("[true]", f"{SCHEME}.0: true (from flag --set) must be a valid integer"),
        ("[{units: 3, activation: relv}]", None),
        ("[{kind: conv2d}]", f"{SCHEME}.0.filters is missing (from flag --set)"),
        (
            "[{kind: conv2d, filters: 1, kernel_size: [1, 2, 3]}]",
            f"{SCHEME}.0.kernel_size: [1, 2, 3] (from flag --set) must have at most 2 items, not 3",
        ),
        ("[{}]", f"{SCHEME}.0: units: null takes the width of the input and needs skip: true"),
        ("[{kind: residual, layers: []}]", f"{SCHEME}.0: layers is empty, and x + x is no residual block"),
        (
            "[{kind: residual, layers: [{units: 3, l1: x}]}]",
            f"{SCHEME}.0.layers.0.l1: 'x' (from flag --set) must be a valid number",
        ),
        (
            "[{units: 1, kernel_initializer: [[1], [x]]}]",
            f"{SCHEME}.0.kernel_initializer.1.0: 'x' (from flag --set) must be a valid number",
        ),
        (
            "[{kind: activation, activation: relu, negative_slope: 0.1}]",
            f"{SCHEME}.0: negative_slope belongs to leaky_relu, not to relu",
        ),
        ("[{kind: dropout, rate: 1.0}]", f"{SCHEME}.0.rate: 1.0 (from flag --set) must be less than 1"),
    ],
)
def test_a_wrong_layer_is_one_line_with_its_path(value, line):
    with pytest.raises(ConfigError) as caught:
        load(sets=[f"{SCHEME}={value}"])
    if line is None:  # an unknown activation lists what there is
        assert str(caught.value).startswith(f"{SCHEME}.0.activation: 'relv' (from flag --set) must be 'none', 'relu', ")
        assert str(caught.value).endswith("; did you mean relu?")
    else:
        assert str(caught.value) == line


def test_a_lower_bound_above_the_upper_is_refused():
    with pytest.raises(ConfigError, match=r"camera.input_clipping: the lower bound 1.0 must be below the upper bound"):
        load(sets=["network.input_embedders_parameters={camera: {input_clipping: [1, 0]}}"])
