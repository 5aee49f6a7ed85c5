import pytest

from distrl.commands import main
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


def test_bad_input_is_one_line(capsys, tmp_path):
    assert main.main(["export", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"distrl: error: {tmp_path} is not a run's directory: it holds no")
