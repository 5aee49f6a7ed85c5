"""Checkpoints, policies and configurations forged with valid hashes: refused, nothing runs, nothing is
read from elsewhere, and what was valid before is used."""

import hashlib
import io
import json
import os
import pickle
import struct
import zipfile

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from distrl import wire
from distrl.config.document import parse
from distrl.config.heads import PolicyHeadParameters, ValueHeadParameters
from distrl.config.network import NetworkParameters
from distrl.data_store import npz
from distrl.data_store.checkpoints import load_newest, save
from distrl.errors import ConfigError
from distrl.learner.policy_files import write_bundle, write_weights
from distrl.networks.actions.categorical import CategoricalSpec
from distrl.networks.network import Network
from distrl.networks.policy.bundle import export_bundle
from distrl.networks.policy.description import BundleDescription, WeightSpec
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec, PolicyBundle, Weights

SPEC = EnvSpec("Vector-v0", {"observation": ArraySpec((4,), "float32")}, {"action": DiscreteSpec(2)})
MOST_GROWTH_MB = 64
BOMB_MB = 200


class Trap:
    """Unpickling one is noticed by audit hooks, and by the environment."""

    def __reduce__(self):
        return exec, ("import os; os.environ['TRAP'] = '1'",)


PICKLE = pickle.dumps(Trap())


def npy(array):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def headed(header, data=b""):
    """An .npy file with any text as its header."""
    text = header.encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def described(descr="'<f4'", shape="(0,)"):
    return headed(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}")


def archive(*members, compression=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression, compresslevel=1) as file:
        for name, content in members:
            file.writestr(name, content)
    return buffer.getvalue()


def directory_of(names, *, offset, extra=b""):
    """One member of 100,000 bytes, and a directory that finds it under each of the names, wherever it says."""
    content = archive(("a.npy", npy(np.zeros(25_000, np.float32))))
    start = content.index(b"PK\x01\x02")
    entry = bytearray(content[start : start + 46])
    entry[42:46] = struct.pack("<I", offset)
    entry[28:32] = struct.pack("<HH", 5, len(extra))
    entries = b"".join(bytes(entry) + name + extra for name in names)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, len(names), len(names), len(entries), start, 0)
    return content[:start] + entries + end


OBJECTS = np.array([Trap()], object)
RECORDS = np.array([(1.0, Trap())], [("a", "f4"), ("b", object)])
FAR = struct.pack("<HHQ", 1, 8, 2**63 + 5)
ARCHIVES = {
    "an array of objects": archive(("w.npy", npy(OBJECTS))),
    "an array of records with objects": archive(("w.npy", npy(RECORDS))),
    "a pickle as an array": archive(("w.npy", PICKLE)),
    "a pickle as an archive": PICKLE,
    "a module beside the array": archive(("w.npy", npy(np.ones(2))), ("os.py", b"raise SystemExit")),
    "a name that leads out": archive(("../../w.npy", npy(np.ones(2)))),
    "a name that leads out on Windows": archive(("..\\w.npy", npy(np.ones(2)))),
    "an absolute name": archive(("/tmp/w.npy", npy(np.ones(2)))),
    "a bomb": archive(("w.npy", npy(np.zeros(BOMB_MB * 2**18, np.float32))), compression=zipfile.ZIP_DEFLATED),
    "one member under many names": directory_of([b"%c.npy" % letter for letter in b"abcdefghij"], offset=0),
    "a member far away": directory_of([b"a.npy"], offset=2**32 - 1, extra=FAR),
    "a shape of terabytes": archive(("w.npy", described(shape="(1000000000000,)"))),
    "a shape beyond 64 bits": archive(("w.npy", described(shape="(4294967296, 4294967296)"))),
    "an empty shape beyond 64 bits": archive(("w.npy", described(shape="(0, 10000000000000000000000)"))),
    "a shape of 100 axes": archive(("w.npy", described(shape="(0," + "1," * 100 + ")"))),
    "numbers of no size": archive(("w.npy", described("'|V0'", "(1000000000000000000,)"))),
    "a dtype within a dtype": archive(("w.npy", described("(" * 150 + "'<f4'" + ",(1,))" * 150))),
    "an empty dtype": archive(("w.npy", described("()"))),
    "a dtype of a list": archive(("w.npy", described("[[]]"))),
    "a header too deep for the parser": archive(("w.npy", headed("-" * 9000 + "1"))),
    "a header of brackets": archive(("w.npy", headed("(" * 9000))),
    "a header with keys that are none": archive(("w.npy", headed("{[]: 1}"))),
    "a header with keys in no order": archive(("w.npy", headed("{1: 2, 'a': 3}"))),
    "a header that is a call": archive(("w.npy", headed("__import__('os').putenv('TRAP', '1')"))),
}
DEEP = b"[" * 100_000


def sealed(path, changes):
    """Writes files of a checkpoint, with a manifest that vouches for them."""
    for name, content in changes.items():
        (path / name).write_bytes(content)
    manifest = json.loads((path / "manifest.json").read_text())
    for file in path.iterdir():
        if file.name != "manifest.json":
            content = file.read_bytes()
            manifest["files"][file.name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (path / "manifest.json").write_text(json.dumps(manifest))


def with_archive(content):
    return lambda path: sealed(path, {"main.online.npz": content})


def with_meta(content):
    return lambda path: sealed(path, {"meta.json": content})


def with_entry(**entry):
    """The manifest says something else of the arrays' file."""

    def change(path):
        manifest = json.loads((path / "manifest.json").read_text())
        manifest["files"]["main.online.npz"] |= entry
        (path / "manifest.json").write_text(json.dumps(manifest))

    return change


def with_name(name):
    """The manifest vouches for a file elsewhere, which is there."""

    def change(path):
        outside = path.parent / "outside.npz"
        outside.write_bytes((path / "main.online.npz").read_bytes())
        manifest = json.loads((path / "manifest.json").read_text())
        manifest["files"][name.format(outside=outside)] = manifest["files"]["main.online.npz"]
        (path / "manifest.json").write_text(json.dumps(manifest))

    return change


def with_link(name, *, to=None):
    """A file that is a link to what the manifest vouches for, outside the checkpoint."""

    def change(path):
        outside = path.parent / f"outside-{name}"
        (path / name).rename(outside)
        (path / name).symlink_to(to or outside)

    return change


def with_pipe(name):
    def change(path):
        (path / name).unlink()
        os.mkfifo(path / name)

    return change


def elsewhere(path):
    """The whole checkpoint is a link."""
    path.rename(path.parent / "somewhere")
    path.symlink_to(path.parent / "somewhere")


def endless(path):
    """A device that never ends, and a manifest that says it may be read to its end."""
    with_entry(bytes=-2)(path)
    with_link("main.online.npz", to="/dev/zero")(path)


CHECKPOINTS = {
    **{name: with_archive(content) for name, content in ARCHIVES.items()},
    "meta is a pickle": with_meta(PICKLE),
    "meta is too deep": with_meta(DEEP),
    "meta is a list": with_meta(b'["updates"]'),
    "meta is a number of many digits": with_meta(b'{"updates": ' + b"9" * 5000 + b"}"),
    "the manifest is a pickle": lambda path: (path / "manifest.json").write_bytes(PICKLE),
    "the manifest is too deep": lambda path: (path / "manifest.json").write_bytes(DEEP),
    "the manifest is endless": lambda path: os.truncate(path / "manifest.json", 2**33),
    "a negative size": with_entry(bytes=-2),
    "a size beyond 64 bits": with_entry(bytes=2**70),
    "a size of terabytes": with_entry(bytes=2**43),
    "a size that is none": with_entry(bytes=[1]),
    "a size that is true": with_entry(bytes=True),
    "a wrong hash": with_entry(sha256="0" * 64),
    "a hash that is none": with_entry(sha256=None),
    "a name beside the checkpoint": with_name("../outside.npz"),
    "an absolute name of a file": with_name("{outside}"),
    "a name with a folder": with_name("main.online.npz/../../outside.npz"),
    "a name of another kind": with_name("main.online.pkl"),
    "the arrays are a link": with_link("main.online.npz"),
    "meta is a link": with_link("meta.json"),
    "the manifest is a link": with_link("manifest.json"),
    "the arrays are a device": endless,
    "the checkpoint is a link": elsewhere,
    "the arrays are a pipe": with_pipe("main.online.npz"),
    "the manifest is a pipe": with_pipe("manifest.json"),
    "the arrays are a directory": lambda path: [
        (path / "main.online.npz").unlink(),
        (path / "main.online.npz").mkdir(),
    ],
    "the checkpoint is a file": lambda path: [path.rename(path.parent / "away"), path.write_bytes(PICKLE)],
}


def checkpoints(directory, forge=None):
    """Steps 1 and 2, of which the second is forged."""
    for step in (1, 2):
        path = save(directory, step, {"main.online": {"w": np.full(3, step, np.float32)}}, {"updates": step}, keep=5)
    if forge is not None:
        forge(path)
    return directory


@pytest.mark.row("Q07")
def test_a_forged_checkpoint_is_passed_over_and_the_valid_one_before_it_used(watched, tmp_path):
    directories = [checkpoints(tmp_path / "good")]
    directories += [checkpoints(tmp_path / name, forge) for name, forge in CHECKPOINTS.items()]
    found = watched("read_hostile.py", "checkpoints", *directories)
    told = found["told"]
    assert told.pop("good") == {"step": 2, "value": 2.0, "rejected": []}
    assert told.keys() == CHECKPOINTS.keys()
    for name, each in told.items():
        assert (each.get("step"), each.get("value")) == (1, 1.0), (name, each)
        (reason,) = each["rejected"]
        assert reason.startswith(f"checkpoint {tmp_path / name / 'ckpt-000000000002'} is not valid: "), name
        assert "\n" not in reason
    assert (found["noticed"], found["sprung"]) == ([], None)
    assert found["growth_mb"] <= MOST_GROWTH_MB  # the bomb alone has 200 MB


def test_the_hook_notices_what_numpy_would_have_run(watched, tmp_path):
    """The archives are real: NumPy with pickle allowed runs them."""
    good, forged = tmp_path / "good.npz", tmp_path / "forged.npz"
    good.write_bytes(npz.encode({"w": np.ones(2)}))
    forged.write_bytes(ARCHIVES["an array of objects"])
    found = watched("read_hostile.py", "numpy", good, forged)
    assert found["sprung"] == "1"
    assert {event.split()[0] for event in found["noticed"]} >= {"pickle.find_class", "exec", "os.putenv"}


@pytest.mark.parametrize("name", ["the checkpoint is a link", "the checkpoint is a file", "the arrays are a pipe"])
def test_what_is_no_checkpoint_is_removed_like_one_and_nothing_behind_it(tmp_path, name):
    """A link by the name of a checkpoint once made every later save fail."""
    checkpoints(tmp_path, CHECKPOINTS[name])
    others = {path.name for path in tmp_path.iterdir()} - {"ckpt-000000000001", "ckpt-000000000002"}
    kept = {name: sorted(path.name for path in (tmp_path / name).glob("*")) for name in others}
    (tmp_path / ".tmp-ckpt-000000000009").symlink_to(tmp_path / "ckpt-000000000001")
    save(tmp_path, 3, {"main.online": {"w": np.full(3, 3, np.float32)}}, {"updates": 3}, keep=1)
    assert {path.name for path in tmp_path.iterdir()} == {"ckpt-000000000003", *others}
    assert {name: sorted(path.name for path in (tmp_path / name).glob("*")) for name in others} == kept
    assert load_newest(tmp_path).step == 3


# ------------------------------------------------------------------------------------------------------------ policies


def graph():
    """policy/action = observation times the kernel, which is an input."""
    made = helper.make_graph(
        [helper.make_node("MatMul", ["observation", "kernel"], ["policy/action"])],
        "graph",
        [
            helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["batch", 4]),
            helper.make_tensor_value_info("kernel", TensorProto.FLOAT, [4, 2]),
        ],
        [helper.make_tensor_value_info("policy/action", TensorProto.FLOAT, ["batch", 2])],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def run_with_policy(directory, forged=None):
    """A run's directory with a saved policy of version 3; `forged` replaces some of its files."""
    made = graph()
    description = BundleDescription(
        inputs=SPEC.observations,
        recurrent_state={},
        outputs={"policy/action": (2,)},
        action_distributions={"action": CategoricalSpec(2)},
        environment=SPEC,
        weights=(WeightSpec("kernel", (4, 2), "float32", True),),
        libraries={},
        sha256=hashlib.sha256(made).hexdigest(),
    )
    write_bundle(directory / "policy", PolicyBundle(made, description.to_json()))
    write_weights(directory / "policy", Weights(3, {"kernel": np.ones((4, 2), np.float32)}))
    (directory / "config.yaml").write_text("seed: 1\n")
    for name, content in (forged or {}).items():
        (directory / "policy" / name).write_bytes(content)
    return directory


def weights_file(**changes):
    tree = {"version": 3, "arrays": {"kernel": np.ones((4, 2), np.float32)}, "halves": {}}
    return wire.pack({**tree, **changes})


POLICIES = {
    "weights are a pickle": {"weights.msgpack": PICKLE},
    "weights are an archive of objects": {"weights.msgpack": ARCHIVES["an array of objects"]},
    "weights hold a pickle": {
        "weights.msgpack": weights_file().replace(b"\xa3<f4", b"\xa2|O").replace(b"kind\xc4\x00", b"kind\xc4\x01O")
    },
    "weights are halves of an array": {"weights.msgpack": weights_file(halves={"kernel": np.arange(3)})},
    "weights never end": {"weights.msgpack": b"\xdd\x00\x01\x00\x00" * 10_000},
    "the graph is a pickle": {"graph.onnx": PICKLE},
    "the description is a pickle": {"description.json": PICKLE},
    "the description is too deep": {"description.json": DEEP},
    "the description is of Python's objects": {"description.json": b'{"py/object": "os.system"}'},
}


def test_a_forged_policy_is_refused_in_one_line(watched, tmp_path):
    runs = [run_with_policy(tmp_path / "good")]
    runs += [run_with_policy(tmp_path / name, forged) for name, forged in POLICIES.items()]
    found = watched("read_hostile.py", "policies", *runs)
    told = found["told"]
    assert told.pop("good") == {"version": 3}
    for name, each in told.items():
        assert each.get("refused", "").startswith("CheckpointError: "), (name, each)
        assert "\n" not in each["refused"]
    assert (found["noticed"], found["sprung"]) == ([], None)


@pytest.mark.parametrize("location", ["secret", "{directory}/secret", "../{name}/secret"])
def test_a_cached_graph_that_reads_files_is_exported_again(tmp_path, monkeypatch, caplog, location):
    """It computes what the network computes, as the file is a unit matrix: once it would have been published, to be
    refused by every actor."""
    monkeypatch.chdir(tmp_path)
    np.eye(4, dtype=np.float32).tofile(tmp_path / "secret")
    parameters = NetworkParameters(middleware_parameters={"scheme": [8], "activation": "tanh"})
    network = Network(parameters, SPEC, (PolicyHeadParameters(), ValueHeadParameters()), "main", 1)
    cache = tmp_path / "cache"
    export_bundle(network, cache_dir=cache)
    (path,) = cache.iterdir()
    model = onnx.load_from_string(path.read_bytes())
    for node in model.graph.node:
        node.input[:] = ["seen" if name == "observation" else name for name in node.input]
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=(4, 4), data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location.format(directory=tmp_path, name=tmp_path.name))
    model.graph.initializer.append(tensor)
    model.graph.node.insert(0, helper.make_node("Gemm", ["observation", "w"], ["seen"]))
    path.write_bytes(model.SerializeToString())
    again = export_bundle(network, cache_dir=cache)
    assert again.graph == path.read_bytes() != model.SerializeToString()
    assert not any(tensor.external_data for tensor in onnx.load_from_string(again.graph).graph.initializer)
    assert "is not usable and is exported again" in caplog.text


# ------------------------------------------------------------------------------------------------------ configurations

ATTACK = "[\"import os; os.environ['TRAP'] = '1'\"]"
CONFIGURATIONS = {
    "apply": f"seed: !!python/object/apply:builtins.exec {ATTACK}\n",
    "new": f"seed: !!python/object/new:builtins.exec {ATTACK}\n",
    "a whole document": f"!!python/object/apply:builtins.exec {ATTACK}\n",
    "a key": f"? !!python/object/apply:builtins.exec {ATTACK}\n: 1\n",
    "in a free mapping": f"environment: {{kwargs: {{x: !!python/object/apply:builtins.exec {ATTACK}}}}}\n",
    "merged": f"actors: {{<<: !!python/object/apply:builtins.exec {ATTACK}}}\n",
    "another handle": f"%TAG !e! tag:yaml.org,2002:python/object/apply:\n---\nseed: !e!builtins.exec {ATTACK}\n",
    "another meaning of a tag": f"%TAG ! tag:yaml.org,2002:python/object/apply:\n---\nseed: !builtins.exec {ATTACK}\n",
    "a tag by its address": f"seed: !<tag:yaml.org,2002:python/object/apply:builtins.exec> {ATTACK}\n",
    "name": "seed: !!python/name:os.system\n",
    "module": "seed: !!python/module:antigravity\n",
    "tuple": "environment: {kwargs: {x: !!python/tuple [1]}}\n",
    "bytes": "environment: {kwargs: {x: !!python/bytes aGk=}}\n",
    "own tag": "seed: !include /etc/passwd\n",
    "two documents": "seed: 1\n---\nseed: 2\n",
    "text that is code": "network: {learning_rate: \"__import__('os').environ.update(TRAP='1')\"}\n",
    "a pickle": PICKLE,
    "a pickle after a configuration": b"seed: 1\n...\n" + PICKLE,
    "nothing but zeros": bytes(1000),
    "a bomb of depth": "environment: {kwargs: " + "[" * 5000 + "]" * 5000 + "}\n",
}


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_forged_configuration_is_one_line_and_runs_nothing(watched, tmp_path):
    files = [written(tmp_path / "good", "seed: 5\n")]
    files += [written(tmp_path / name, content) for name, content in CONFIGURATIONS.items()]
    found = watched("read_hostile.py", "configurations", *files)
    told = found["told"]
    assert told.pop("good") == {"seed": 5}
    assert told.keys() == CONFIGURATIONS.keys()
    for name, each in told.items():
        assert each.get("refused", "").startswith("ConfigError: "), (name, each)
        assert "\n" not in each["refused"]
    assert (found["noticed"], found["sprung"]) == ([], None)


def doubled(first, more):
    """17 lines, of which each is twice the one before."""
    return "".join(f"a{i}: &a{i} {(more if i else first).format(f'a{i - 1}')}\n" for i in range(18))


ENDLESS = {
    "a list in itself": "a: &a [*a]\n",
    "a mapping in itself": "a: &a {b: *a}\n",
    "a billion laughs": doubled("[x, x]", "[*{0}, *{0}]"),
    "merged laughs": doubled("{{x: 1}}", "{{<<: [*{0}, *{0}]}}"),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_aliases_do_not_make_a_few_lines_endless(name):
    """17 doublings are half a second; 40 would be for ever, and one alias in itself was a traceback."""
    with pytest.raises(ConfigError, match=r"more than .* (values|levels)"):
        parse(ENDLESS[name], "file x.yaml")
