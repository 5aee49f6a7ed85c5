"""The .npz bytes: round trip, readable by NumPy, and nothing but named numbers comes back."""

import io
import pickle
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from distrl.data_store import npz


def same(first, second):
    return list(first) == list(second) and all(
        first[name].dtype == second[name].dtype
        and first[name].shape == second[name].shape
        and first[name].tobytes() == second[name].tobytes()
        for name in first
    )


DTYPES = st.sampled_from(["bool", "int8", "uint8", "int64", "float16", "float32", "float64", "complex64", ">f4"])
ARRAYS = DTYPES.flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
NAMES = st.from_regex(r"[A-Za-z0-9_]{1,8}(/[a-z0-9_.:-]{1,8}){0,2}", fullmatch=True).filter(
    lambda name: ".." not in name
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(NAMES, ARRAYS, max_size=4))
def test_round_trip(arrays):
    content = npz.encode(arrays)
    assert same(npz.decode(content), arrays)
    assert npz.encode(arrays) == content


@settings(max_examples=20, deadline=None)
@given(st.dictionaries(NAMES, ARRAYS, max_size=4))
def test_a_file_is_read_array_by_array(tmp_path_factory, arrays):
    path = tmp_path_factory.mktemp("npz") / "arrays.npz"
    with path.open("wb") as file:
        npz.write(file, arrays)
    assert path.read_bytes() == npz.encode(arrays)
    with path.open("rb") as stored, npz.opened(stored) as read:
        assert list(read) == list(arrays)
        assert same(dict(read), arrays)
        for name, array in arrays.items():
            given = np.asarray(array)
            assert read.form(name) == (given.dtype, given.shape)
            if given.flags.c_contiguous:
                target = np.ones_like(given, order="C")
                read.read_into(name, target)
                assert same({name: target}, {name: given})


@pytest.mark.parametrize("target", [np.zeros(3), np.zeros(4, np.float32), np.zeros((4, 1))])
def test_an_array_is_read_only_into_one_of_its_form(tmp_path, target):
    path = tmp_path / "arrays.npz"
    path.write_bytes(npz.encode({"a": np.ones(4)}))
    with (
        path.open("rb") as stored,
        npz.opened(stored) as read,
        pytest.raises(ValueError, match=r"array 'a' of float64 \[4\] is not of"),
    ):
        read.read_into("a", target)
    assert not target.any()


def test_a_member_that_claims_more_than_there_is_reserves_nothing():
    content = bytearray(npz.encode({"a": np.ones(4)}))
    at = content.index(b"PK\x01\x02") + 20  # the sizes in the directory
    content[at : at + 8] = (2**31).to_bytes(4, "little") * 2
    with pytest.raises(ValueError, match="its members are larger than itself"):
        npz.decode(bytes(content))


def test_damage_shows_when_the_array_is_read(tmp_path):
    path = tmp_path / "arrays.npz"
    content = bytearray(npz.encode({"whole": np.arange(4), "hurt": np.full(4, 7.5)}))
    content[content.index(np.full(4, 7.5).tobytes())] ^= 1
    path.write_bytes(content)
    with path.open("rb") as stored, npz.opened(stored) as read:
        assert read["whole"].tolist() == [0, 1, 2, 3]
    with (
        pytest.raises(ValueError, match="not an archive of arrays: Bad CRC-32"),
        path.open("rb") as stored,
        npz.opened(stored) as read,
    ):
        read["hurt"]


@pytest.mark.parametrize("error", [RuntimeError("mine"), OverflowError("mine"), EOFError("mine")])
def test_an_error_of_the_caller_is_not_one_of_the_file(error):
    with pytest.raises(type(error), match=r"^mine$"), npz.opened(io.BytesIO(npz.encode({"a": np.ones(4)}))):
        raise error


def test_numpy_reads_it_without_pickle():
    arrays = {"dense/kernel": np.arange(6.0).reshape(2, 3), "file": np.int64(3), "seed": np.asfortranarray(np.eye(3))}
    with np.load(io.BytesIO(npz.encode(arrays)), allow_pickle=False) as read:
        assert read["dense/kernel"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert read["file"] == 3
    decoded = npz.decode(npz.encode(arrays))
    assert decoded["seed"].tolist() == np.eye(3).tolist()
    assert decoded["dense/kernel"].flags.writeable


@pytest.mark.parametrize(
    "array", [np.array([{}], object), np.array(["a"]), np.zeros(2, [("x", "f4")]), np.array(["2020"], "datetime64[D]")]
)
def test_objects_and_records_are_not_written(array):
    with pytest.raises(ValueError, match="array 'a' has dtype"):
        npz.encode({"a": array})


def test_names_are_in_any_script():
    """An observation's name is part of the names of its statistics and of its rows in the replay memory."""
    names = ("a b", "высота", "🚀", "a..b", "x[0]")
    arrays = {f"statistics/{name}": np.full(2, index) for index, name in enumerate(names)}
    found = npz.decode(npz.encode(arrays))
    assert {name: array.tolist() for name, array in found.items()} == {n: a.tolist() for n, a in arrays.items()}


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../a", "a/../b", "a//b", "a\\b", "a\x00b", "a/"])
def test_names_that_are_not_allowed(name):
    with pytest.raises(ValueError, match="is not made of printable characters"):
        npz.encode({name: np.zeros(1)})


def archive(*members, compression=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        for name, content in members:
            file.writestr(name, content)
    return buffer.getvalue()


def npy(array, *, allow_pickle=False):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


class Bomb:
    """Unpickling this raises, so a test that unpickles cannot pass."""

    def __reduce__(self):
        return (pytest.fail, ("something was unpickled",))


ONES = npy(np.ones(4, "float32"))

FORGED = {
    "no archive": (b"PK nothing", "not an archive"),
    "cut short": (npz.encode({"a": np.ones(9)})[:-9], "not an archive"),
    "objects": (archive(("a.npy", npy(np.array([Bomb()], object), allow_pickle=True))), "has dtype object"),
    "records": (archive(("a.npy", npy(np.zeros(2, [("x", "f4")])))), "has dtype"),
    "a pickle": (archive(("a.npy", pickle.dumps(Bomb()))), "magic string"),
    "compressed": (archive(("a.npy", ONES), compression=zipfile.ZIP_DEFLATED), "is compressed"),
    "another suffix": (archive(("a.pkl", ONES)), "not the name of one array"),
    "outside": (archive(("../a.npy", ONES)), "is not made of printable characters"),
    "absolute": (archive(("/a.npy", ONES)), "is not made of printable characters"),
    "too long": (archive(("a.npy", ONES + b"x")), r"of float32 \[4\] has 17 bytes"),
    "too short": (archive(("a.npy", ONES[:-1])), r"of float32 \[4\] has 15 bytes"),
    "claims more": (archive(("a.npy", ONES.replace(b"(4,), }", b"(9**9,)"))), "EOF in multi-line statement"),
    "claims terabytes": (
        archive(("a.npy", ONES.replace(b"(4,), }            ", b"(4000000000000,), }"))),
        "has 16 bytes",
    ),
    "negative": (archive(("a.npy", ONES.replace(b"(4,), } ", b"(-4,), }"))), "has 16 bytes"),
    "empty": (archive(("a.npy", b"")), "magic|EOF"),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_archives_are_refused(name):
    content, message = FORGED[name]
    with pytest.raises(ValueError, match=message):
        npz.decode(content)


def test_a_name_that_is_twice_there_is_refused():
    with pytest.warns(UserWarning, match="Duplicate name"):
        content = archive(("a.npy", ONES), ("a.npy", ONES))
    with pytest.raises(ValueError, match="not the name of one array"):
        npz.decode(content)


def test_an_encrypted_member_is_refused():
    content = bytearray(archive(("a.npy", ONES)))
    content[content.index(b"PK\x03\x04") + 6] |= 1  # the local header's encryption flag
    content[content.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(ValueError, match="not an archive of arrays"):
        npz.decode(bytes(content))
