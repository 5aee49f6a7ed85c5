"""Tokens: looked up, pooled without padding, exported; by hand and against plain indexing."""

import keras
import numpy as np
import pytest

from distrl.config.network import EmbedderParameters
from distrl.errors import ConfigError
from distrl.networks.parts.embedders import embed, vocabulary_of
from distrl.networks.policy import bundle
from distrl.types import ArraySpec

TOKENS = ArraySpec((4,), "int32", 0, 9, vocabulary=10)
WORDS = np.int32([[3, 7, 0, 0], [0, 0, 0, 0], [9, 9, 1, 2]])


def model_of(dtype="int32", vocabulary=10, length=4, **parameters):
    tokens = keras.Input((length,), dtype=dtype, name="x")
    given = EmbedderParameters(**parameters)
    embedded = embed(tokens, given, name="mission", seed=1, vocabulary=vocabulary)
    return keras.Model({"x": tokens}, {"y": embedded})


def embedding(words, **parameters):
    model = model_of(words.dtype.name, length=words.shape[1], **parameters)
    return model.get_layer("embedder_mission_words").embeddings.numpy(), np.asarray(model({"x": words})["y"])


@pytest.mark.row("L06")
def test_a_text_is_the_mean_of_its_words():
    table, computed = embedding(WORDS, embedding_width=5)
    assert table.shape == (10, 5)
    expected = [(table[3] + table[7]) / 2, np.zeros(5), (2 * table[9] + table[1] + table[2]) / 4]
    np.testing.assert_allclose(computed, expected, rtol=1e-6)


@pytest.mark.row("L06")
def test_without_pooling_layers_get_every_word_and_zeros_for_padding():
    words = model_of(embedding_width=5, pooling="none", scheme=[{"kind": "activation", "activation": "none"}])
    assert words.get_layer("embedder_mission_activation_0").output.shape == (None, 4, 5)  # (B, L, D)
    table, computed = embedding(WORDS, embedding_width=5, pooling="none")
    expected = table[WORDS]
    expected[WORDS == 0] = 0.0
    np.testing.assert_array_equal(computed, expected.reshape(3, 20))


@pytest.mark.parametrize(
    "parameters",
    [{}, {"scheme": [6]}, {"pooling": "none", "scheme": [{"kind": "lstm", "units": 3, "mask_value": 0.0}]}],
)
def test_padding_has_no_influence(parameters):
    short, long = WORDS, np.pad(WORDS, ((0, 0), (0, 5)))
    np.testing.assert_array_equal(embedding(short, **parameters)[1], embedding(long, **parameters)[1])


def test_tokens_beyond_the_table_take_its_last_row():
    table, computed = embedding(np.int32([[12, 0], [9, 0]]))
    np.testing.assert_allclose(computed, [table[9], table[9]])


def test_whole_numbers_are_tokens_where_the_configuration_says_so():
    explicit, implicit = EmbedderParameters(kind="tokens"), EmbedderParameters()
    box = ArraySpec((3,), "uint8", 0.0, 255.0)
    assert vocabulary_of(box, explicit, "mission") == 256
    assert vocabulary_of(box, implicit, "mission") is None
    assert vocabulary_of(TOKENS, explicit, "mission") == vocabulary_of(TOKENS, implicit, "mission") == 10
    _, computed = embedding(np.uint8([[255, 0]]), vocabulary=256, kind="tokens")
    assert computed.shape == (1, 32)


@pytest.mark.row("E24")
@pytest.mark.parametrize(
    "array",
    [
        ArraySpec((3,), "float32", 0.0, 5.0),
        ArraySpec((3, 2), "int32", 0.0, 5.0),
        ArraySpec((3,), "int32", -1.0, 5.0),
        ArraySpec((3,), "int32", 0.0, None),
        ArraySpec((3,), "int64", 0.0, float(2**63)),
    ],
)
def test_what_cannot_be_tokens_is_refused(array):
    with pytest.raises(
        ConfigError, match=r"^network\.input_embedders_parameters\.mission\.kind: tokens are whole numbers"
    ):
        vocabulary_of(array, EmbedderParameters(kind="tokens"), "mission")


@pytest.mark.parametrize(
    ("vocabulary", "parameters", "message"),
    [
        (10, {"input_offset": 1.0}, "mission.input_offset has no effect on tokens, which are no quantities"),
        (10, {"normalize": True}, "mission.normalize has no effect on tokens"),
        (10, {"input_rescaling": 9.0}, "mission.input_rescaling has no effect on tokens"),
        (10, {"input_clipping": (0, 1)}, "mission.input_clipping has no effect on tokens"),
        (
            10,
            {"kind": "tensor", "pooling": "none"},
            "mission.pooling has no effect on a tensor; for tokens only",
        ),
        (None, {"embedding_width": 3}, "mission.embedding_width has no effect on a vector; for tokens only"),
    ],
)
def test_what_this_kind_has_no_use_for_is_refused(vocabulary, parameters, message):
    with pytest.raises(ConfigError) as caught:
        model_of(vocabulary=vocabulary, **parameters)
    assert str(caught.value).startswith(f"network.input_embedders_parameters.{message}")


@pytest.mark.row("L06")
@pytest.mark.parametrize(
    ("dtype", "parameters"),
    [
        ("int32", {"embedding_width": 8, "scheme": [6]}),
        ("int64", {"pooling": "none", "scheme": [{"kind": "lstm", "units": 3, "mask_value": 0.0}]}),
        ("uint8", {"kind": "tokens"}),
    ],
)
def test_tokens_export_and_compute_the_same(dtype, parameters):
    model = model_of(dtype, **parameters)
    bundle.verify_graph(bundle.export_graph(model), model, specs={"x": TOKENS})
