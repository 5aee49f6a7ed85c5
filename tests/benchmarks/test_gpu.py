import json

import pytest

from benchmarks import gpu, speed
from benchmarks.gpu import Machine
from benchmarks.measurement import FailedError
from benchmarks.speed import NOTHING

WHERE = {"commit": "abc1234", "date": "2026-01-02", "machine": "16 cores (X), one GPU", "load_before": 0.1}
COLD = {"name": "pong-cold", **WHERE, "actors": 14, "sets": [], "first_update_s": 57.04, "programs": 123}
WARM = {
    **COLD,
    "name": "pong-warm",
    "sets": ["learner.threads=2"],
    "first_update_s": 9.5,
    "env_steps_per_s": 17_600.4,
    "updates": 120,
    "learner_idle_share": 0.77,
    "actors_blocked_share": 0.0,
    "gpu_busy_share": 0.08,
    "gpu_used_mb": 3_210.4,
    "mean_return_100": None,
    "wall_s": 30.0,
}
MEASURED = {
    "frames_per_update": 10_240,
    "update_s": 0.05,
    "flops_per_update": 5e11,
    "peak_flops_per_s": 4e14,
    "batch_bytes": 10**8,
    "feed_s": 0.1,
    "copy_s": 0.04,
}
RATES = {
    "frames_per_s": 204_800.0,
    "flops_per_s": 1e13,
    "peak_flops_per_s": 4e14,
    "decoded_frames_per_s": 102_400.0,
    "copied_frames_per_s": 256_000.0,
}
GPU = Machine(True, "one GPU, driver 580.65.06, JAX 0.10.2")
NO_GPU = Machine(False, "no GPU, JAX 0.10.2")


def rows_of(*entries):
    """Return the lines of the table."""
    return gpu.block({"command": "c", "results": [*entries]}).splitlines()[4:]


def test_the_page_s_figures():
    assert gpu.block({"command": "c", "results": []}) == NOTHING
    cold, warm = rows_of(WARM, COLD)  # in the order of the rows, not of the measurements
    assert cold == (
        "| `pong-cold`: Pong, IMPALA, empty cache, 14 actors | first update after 57.0 s | ≤ 25, **missed** |"
    )
    assert warm == (
        "| `pong-warm`: the same, from the cache, learner.threads=2, 14 actors | first update after 9.5 s; "
        "17,600 steps/s; learner idle 77%; actors blocked 0%; GPU 8% busy; 3,210 MB of the GPU | ≤ 10, met |"
    )


def test_figures_that_are_not_known_are_left_out():
    (line,) = rows_of({**COLD, "name": "halfcheetah-cpu", "first_update_s": None, "actors": 1})
    assert line == "| `halfcheetah-cpu`: HalfCheetah, APPO, learner on the CPU, 1 actor |  | – |"
    (line,) = rows_of({"name": "feeding", **WHERE, "fed_frames_per_s": 250_000})
    assert line.endswith("| 250,000 frames/s | ≥ 200000, met |")


@pytest.mark.parametrize(
    ("compiled", "told"), [(True, ("9.5 s", "≤ 10, met")), (False, ("9.5 s with an empty cache", "–"))]
)
def test_a_training_that_finds_no_program_is_not_called_warm(compiled, told, tmp_path, monkeypatch):
    def run(arguments, limit_s, variables):
        run_dir = tmp_path / "runs/pong-warm"
        run_dir.mkdir(parents=True)
        summary = dict.fromkeys(("env_steps_per_s", "updates", "learner_idle_share", "actors_blocked_share"), None)
        written = {**summary, "mean_return_100": None, "wall_s": 30.0, "time_to_first_update_s": 9.5}
        (run_dir / "summary.json").write_text(json.dumps(written))

    monkeypatch.setattr(gpu, "run", run)
    if compiled:
        (tmp_path / "caches/pong/distrl/jax").mkdir(parents=True)
        (tmp_path / "caches/pong/distrl/jax/a-cache").touch()
    found = gpu.measure("pong-warm", 20.0, [], tmp_path, 60.0)
    (line,) = rows_of({"name": "pong-warm", **WHERE, **found})
    actors = f"{found['actors']} actor{'s' if found['actors'] > 1 else ''}"
    assert line == f"| `pong-warm`: the same, from the cache, {actors} | first update after {told[0]} | {told[1]} |"


@pytest.mark.parametrize(("rate", "verdict"), [(250_000.0, "met"), (200_000.0, "**missed**")])
def test_bfloat16_is_to_be_faster_than_float32(rate, verdict):
    slower = {"name": "alone-nature-float32", **WHERE, **RATES}
    halved = {"name": "alone-nature-bfloat16", **WHERE, **RATES, "frames_per_s": rate}
    first, second = rows_of(slower, halved)
    assert first.endswith("| 204,800 frames/s; 10 of 400 TFLOP/s; one thread decodes 102,400/s; copies 256,000/s | – |")
    assert second.endswith(f"| above float32, {verdict} |")


def test_the_page_says_what_the_committed_report_says():
    page = gpu.PAGE.read_text("utf-8")
    assert speed.published(page, "gpu", speed.page_text("gpu", gpu.block)) == page


@pytest.fixture
def with_gpu(monkeypatch):
    monkeypatch.setattr(gpu, "find_machine", lambda: GPU)


@pytest.mark.usefixtures("with_gpu")
def test_a_row_that_fails_keeps_no_other_from_being_measured(tmp_path, capsys, monkeypatch):
    def measure(row, seconds, sets, out, limit_s):
        assert 0.0 < limit_s < 480.0
        if row == "cartpole-cold":
            raise FailedError("no luck", 1)
        return {"first_update_s": 9.0}

    monkeypatch.setattr(gpu, "measure", measure)
    assert gpu.main(["--only", "cartpole-cold", "cartpole-warm", "cartpole-cpu", "--out", str(tmp_path)]) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[0].endswith("one GPU, driver 580.65.06, JAX 0.10.2: 8 minutes at most")
    assert told[1:6] == [
        "[1/3] cartpole-cold: CartPole, IMPALA, empty cache …",
        "  failed: no luck",
        "[2/3] left out: cartpole-warm: cartpole-cold failed",
        "[3/3] cartpole-cpu: CartPole, IMPALA, learner on the CPU …",
        "  first update after 9.0 s",
    ]
    (entry,) = json.loads((tmp_path / "gpu.json").read_text())["results"]
    assert (entry["name"], entry["machine"].partition(", ")[2]) == ("cartpole-cpu", GPU.devices)


@pytest.mark.usefixtures("with_gpu")
def test_a_row_for_which_no_time_is_left_is_left_out(tmp_path, capsys):
    assert gpu.main(["--only", "pong-warm", "--minutes", "0.5", "--out", str(tmp_path)]) == 0
    assert "[1/1] left out: pong-warm: no time is left" in capsys.readouterr().out
    assert not (tmp_path / "gpu.json").exists()


def test_rows_that_cannot_be_measured_here_say_why():
    assert gpu.missing("alone-nature-float32", NO_GPU) == "no GPU"
    assert gpu.missing("alone-nature-float32", GPU) is None
    assert gpu.missing("pong-warm", NO_GPU) is None


def test_jax_that_does_not_start_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(gpu, "PROBE", "raise ImportError('no such file: libcudart')")
    assert gpu.main(["--out", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("JAX does not start: ImportError: no such file: libcudart: pip install ")


def test_a_gpu_that_jax_does_not_use_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(gpu, "_NVIDIA", tmp_path / "version")
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82.01  Sun Jul 27\n")
    monkeypatch.setattr(gpu, "PROBE", """print('["0.10.2", "cpu", ["cpu"]]')""")
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    assert gpu.main(["--out", str(tmp_path)]) == 2
    advice = "install distrl[jax-cuda] or a newer driver, or set JAX_PLATFORMS=cpu"
    assert capsys.readouterr().out == f"JAX 0.10.2 does not use the GPU with driver 470.82.01: {advice}\n"
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert gpu.find_machine() == NO_GPU


def test_the_page_keeps_its_table_where_there_is_no_gpu(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(gpu, "find_machine", lambda: NO_GPU)
    assert gpu.main(["--publish", "--out", str(tmp_path)]) == 2
    said = "--publish: there is no GPU, and gpu.md keeps the table of the last one; leave it out\n"
    assert capsys.readouterr().out == said


@pytest.mark.parametrize(
    ("platform", "devices"),
    [("cpu", "no GPU, JAX 0.10.2"), ("gpu", "2 NVIDIA H200, driver 580.65.06, JAX 0.10.2")],
)
def test_the_machine_is_named(platform, devices, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "_NVIDIA", tmp_path / "version")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    kernel = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27\nGCC version: 12.2.0"
    (tmp_path / "version").write_text(kernel)
    told = json.dumps(["0.10.2", platform, ["NVIDIA H200"] * 2])
    monkeypatch.setattr(gpu, "PROBE", f"print('a warning'); print({told!r})")
    assert gpu.find_machine() == Machine(platform == "gpu", devices)


def test_the_learner_alone_and_feeding_are_benchmarks_of_their_own(tmp_path, monkeypatch):
    commands = []

    def run(arguments, limit_s):
        commands.append(arguments)
        folder = tmp_path / arguments[-1]
        folder.mkdir()
        results = [{**MEASURED, "frames_per_s": [1.0, 3.0, 2.0]}]
        (folder / f"{arguments[1].partition('.')[2]}.json").write_text(json.dumps({"results": results}))

    monkeypatch.setattr(gpu, "run", run)
    found = gpu.measure("alone-resnet-bfloat16", 20.0, [], tmp_path, 60.0)
    assert found == pytest.approx(RATES)
    assert gpu.measure("feeding", 20.0, [], tmp_path, 60.0) == {"fed_frames_per_s": 3.0}
    out = str(tmp_path / "alone-resnet-bfloat16")
    of_case = ["--only", "resnet-bfloat16", "--unrolls", "4", "--seconds", "1"]
    assert commands[0] == ["-m", "benchmarks.accelerator", *of_case, "--out", out]
    assert commands[1][:4] == ["-m", "benchmarks.feeding", "--only", "pong"]


@pytest.mark.long
def test_a_training_is_measured_cold_and_warm(tmp_path):
    only = ["--only", "cartpole-cold", "cartpole-warm", "--seconds", "15"]
    assert gpu.main([*only, "--out", str(tmp_path)]) == 0
    cold, warm = json.loads((tmp_path / "gpu.json").read_text())["results"]
    assert cold["programs"] == warm["programs"] > 10
    assert warm["env_steps_per_s"] > 0
    assert "env_steps_per_s" not in cold
