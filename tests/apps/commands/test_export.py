import pytest

from distrl.apps.commands import main
from distrl.data_store.checkpoints import save
from distrl.networks.policy.description import BundleDescription
from distrl.networks.policy.exported_model import Exported
from distrl.serving import export as launched
from distrl.types import EnvSpec


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """Stands for the export: keeps what it was called with."""
    kept = []
    description = BundleDescription({}, {}, {}, {}, EnvSpec("Task-v0", {}, {}), (), {}, "abcdef" * 10)

    def export_run(run_dir, output, **given):
        kept.append((str(run_dir), output, given))
        path = output or tmp_path / "policy.onnx"
        path.write_bytes(b"x" * 2500)
        return path, Exported(description, "ppo", 1_234_567, 1)

    monkeypatch.setattr(launched, "export_run", export_run)
    return kept


def test_what_was_written_is_told_in_one_line(capsys, calls, tmp_path):
    assert main.main(["export", "runs/first", "--output", str(tmp_path / "a.onnx"), "--checkpoint", "best"]) == 0
    ((run, output, given),) = calls
    assert (run, output.name) == ("runs/first", "a.onnx")
    assert given == {"checkpoint": "best", "force": False, "version": "0.1.0"}
    told = "a.onnx: ppo on Task-v0 after 1,234,567 steps, 2 kB, sha256 abcdefabcdef"
    assert capsys.readouterr().out == f"{tmp_path}/{told}\n"


def test_a_run_and_its_step_name_a_checkpoint(capsys, calls, tmp_path):
    path = save(tmp_path / "run" / "checkpoints", 20, {}, {}, keep=1)
    output = ("--output", str(tmp_path / "a.onnx"))
    assert main.main(["export", f"{tmp_path}/run@20", *output]) == 0
    assert main.main(["export", f"{tmp_path}/run@best", *output]) == 0
    assert [(run, given["checkpoint"]) for run, _, given in calls] == [
        (f"{tmp_path}/run", str(path)),
        (f"{tmp_path}/run", "best"),
    ]
    capsys.readouterr()
    assert main.main(["export", f"{tmp_path}/run@20", "--checkpoint", "best"]) == 2
    assert "run@20 names a checkpoint already; leave --checkpoint best out" in capsys.readouterr().err
    assert main.main(["export", f"{tmp_path}/run@10"]) == 2
    assert capsys.readouterr().err == (f"distrl: error: {tmp_path}/run has no checkpoint of update 10; there are 20\n")


def test_bad_input_is_one_line(capsys, tmp_path):
    assert main.main(["export", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"distrl: error: {tmp_path} is not a run's directory: it holds no")
