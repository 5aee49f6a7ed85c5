import numpy as np

from distrl.networks.mergers import concatenate


def test_concatenates_in_order():
    merged = concatenate([np.array([[1.0, 2.0]], np.float32), np.array([[3.0, 4.0]], np.float32)])
    np.testing.assert_array_equal(np.asarray(merged), [[1.0, 2.0, 3.0, 4.0]])


def test_a_single_embedding_stays_as_it_is():
    embedding = np.ones((1, 2), np.float32)
    assert concatenate([embedding]) is embedding
