"""Keras is imported without unused packages, and the collector is off only inside the context."""

import gc
import json
import subprocess
import sys
from importlib.util import find_spec

import pytest

from distrl.networks.framework import lean_import
from distrl.networks.framework.lean_import import UNUSED, collector_at_rest, import_keras

LEAN = """
import gc, json, os, sys
os.environ["KERAS_BACKEND"], os.environ["TF_CPP_MIN_LOG_LEVEL"] = sys.argv[1], "2"
from distrl.networks.framework.lean_import import UNUSED, import_keras
import_keras(sys.argv[1])
brought = [name for name in UNUSED[sys.argv[1]] if name in sys.modules]
from importlib import import_module, util
importable = [import_module(name).__name__ for name in UNUSED[sys.argv[1]] if util.find_spec(name)]
from keras import ops
total = float(ops.sum(ops.matmul(ops.ones((2, 3)), ops.ones((3, 2)))))
print(json.dumps([sys.modules["keras"].config.backend(), brought, importable, total, gc.isenabled()]))
"""


@pytest.mark.parametrize("framework", ["tensorflow", pytest.param("jax", marks=pytest.mark.long)])
def test_keras_computes_without_the_packages_that_it_would_bring(framework):
    told = subprocess.check_output([sys.executable, "-c", LEAN, framework], text=True, stderr=subprocess.DEVNULL)
    installed = [name for name in UNUSED[framework] if find_spec(name)]
    assert json.loads(told.splitlines()[-1]) == [framework, [], installed, 12.0, True]


def test_what_has_been_imported_stays_and_what_was_hidden_can_be_imported_afterwards(monkeypatch, tmp_path):
    (tmp_path / "plotting_things.py").write_text("drawn = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    with lean_import._absent(["json", "plotting_things"]):
        import json as there

        assert there is json
        with pytest.raises(ModuleNotFoundError):
            import plotting_things
    import plotting_things

    assert plotting_things.drawn == 3
    del sys.modules["plotting_things"]


def test_where_keras_is_imported_already_nothing_is_touched(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras", gc)
    frozen = gc.get_freeze_count()
    import_keras("tensorflow")
    assert (sys.modules["keras"], gc.get_freeze_count()) == (gc, frozen)


@pytest.mark.parametrize("was_on", [True, False])
def test_the_collector_comes_back_as_it_was_and_leaves_alone_what_is_there(was_on):
    before, was = gc.get_freeze_count(), gc.isenabled()
    (gc.enable if was_on else gc.disable)()
    try:
        with collector_at_rest():
            assert not gc.isenabled()
            kept = [[] for _ in range(1000)]
        assert gc.isenabled() == was_on
        assert gc.get_freeze_count() >= before + 1000
        assert len(kept) == 1000
    finally:
        gc.unfreeze()
        (gc.enable if was else gc.disable)()
