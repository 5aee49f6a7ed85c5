"""JAX's half of the backend, on four virtual devices: a process of its own runs this file once more, on JAX."""

import os
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import keras
import numpy as np
import pytest

from distrl import nest
from distrl.config.heads import PolicyHeadParameters, ValueHeadParameters
from distrl.config.network import NetworkParameters
from distrl.errors import ConfigError
from distrl.networks.copies import Copies
from distrl.networks.framework.backend import Gradients, building
from distrl.networks.objective import over_unrolls
from distrl.networks.steps import Step
from distrl.types import ArraySpec, Batch, DiscreteSpec, EnvSpec
from tests.traces import traces

ON_JAX = keras.backend.backend() == "jax"
DEVICES = {
    "KERAS_BACKEND": "jax",
    "JAX_PLATFORMS": "cpu",
    # Nearly all of the time is compilation, so programs are compiled without optimisation.
    "XLA_FLAGS": "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0 "
    "--xla_cpu_use_fusion_emitters=false",
}
JAX_MISSING = find_spec("jax") is None and "CI" not in os.environ

SPEC = EnvSpec("Vector-v0", {"observation": ArraySpec((4,), "float32")}, {"action": DiscreteSpec(2)})
T, N = 5, 16
NETWORKS = {
    "mlp": {
        "input_embedders_parameters": {"observation": {"scheme": [8], "normalize": True}},
        "middleware_parameters": {"scheme": [16], "batchnorm": True},
    },
    "lstm": {"middleware_parameters": {"kind": "lstm", "number_of_lstm_cells": 8}},
}


def run_on_jax(command, **changes):
    return subprocess.run(
        [sys.executable, *command],
        cwd=Path(__file__).parents[3],
        env={**os.environ, **DEVICES, **changes},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def configured(body, **changes):
    code = "from distrl.networks.framework import backend\n" + textwrap.dedent(body)
    return run_on_jax(["-c", code], **changes)


def wrap(**parameters):
    heads = (PolicyHeadParameters(), ValueHeadParameters())
    given = {"learning_rate": 0.01, "clip_gradients": 0.5} | parameters
    return Copies(
        NetworkParameters.model_validate(given), SPEC, heads, has_target=True, has_global=False, name="main", seed=1
    )


def loss(outputs, batch):
    """Means over what is valid, as algorithms take them."""
    from distrl.algorithms.maths.losses import masked_mean

    errors = keras.ops.square(outputs["value"][:-1] - batch.rewards)
    return {
        "policy": masked_mean(keras.ops.sum(outputs["policy/action"][:-1] ** 2, axis=-1), batch.valid),
        "value": masked_mean(errors, batch.valid),
    }, {"top": keras.ops.max(errors)}


def batches(network, count):
    """In the first quarter of the sequences few rows are valid, in the last all; rewards differ by quarter too."""
    rng = np.random.default_rng(0)
    shares = np.repeat([0.1, 0.4, 0.7, 1.0], N // 4)
    for _ in range(count):
        yield Batch(
            observations={"observation": rng.standard_normal((T + 1, N, 4)).astype(np.float32)},
            actions={"action": np.zeros((T, N), np.int32)},
            rewards=(rng.standard_normal((T, N)) + 4.0 * shares).astype(np.float32),
            terminated=np.zeros((T, N), bool),
            truncated=np.zeros((T, N), bool),
            valid=rng.random((T, N)) < shares,
            behaviour_log_probabilities=np.zeros((T, N), np.float32),
            recurrent_state={
                name: rng.standard_normal((N, *spec.shape)).astype(np.float32)
                for name, spec in network.online.recurrent_state.items()
            },
        )


def quarters(batch):
    """The batch in four, as each of four devices has it."""
    size = N // 4
    for start in range(0, N, size):
        part = slice(start, start + size)
        columns = nest.map(lambda array, part=part: array[:, part], batch._replace(recurrent_state={}))
        state = {name: array[part] for name, array in batch.recurrent_state.items()}
        yield columns._replace(recurrent_state=state)


def train(name, replicas):
    """State and metrics after three updates, with all that is assigned between updates."""
    network = wrap(**NETWORKS[name])
    step = network.train_step(loss, replicas)
    told = []
    for batch in batches(network, 3):
        told.append(step(batch))
        network.statistics.observe(batch)
        network.update_target_network(0.5)
    return network, step, told


if not ON_JAX:

    @pytest.mark.long  # in CI, TensorFlow's updates and JAX' are compared, and a run on JAX trains
    @pytest.mark.skipif(JAX_MISSING, reason="JAX is not installed")
    @pytest.mark.parametrize("which", ["mlp", "not mlp"])
    def test_on_jax(which):
        options = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-k", which]
        done = run_on_jax(["-m", "pytest", *options, __file__])
        assert done.returncode == 0, done.stdout + done.stderr
        assert " passed" in done.stdout
        assert "skipped" not in done.stdout

    @pytest.mark.skipif(JAX_MISSING, reason="JAX is not installed")
    def test_what_a_start_compiles_is_little():
        """A kernel is one program; returns are as large a one for many steps as for few."""
        body = """
            import jax, keras, numpy as np
            from distrl.algorithms.maths.returns import gae
            from distrl.networks.parts.initializers import Orthogonal
            compiled = []
            note = lambda name, *_, **__: compiled.append(name.endswith("backend_compile_duration"))
            jax.monitoring.register_event_duration_secs_listener(note)
            kernel = Orthogonal(gain=1.5, seed=3)((7, 5))
            programs = sum(compiled)
            equal = np.array_equal(kernel, keras.initializers.Orthogonal(gain=1.5, seed=3)((7, 5)))
            def operations(steps):
                rows, valid = np.ones((steps, 2), np.float32), np.ones((steps, 2), bool)
                given = dict(values=np.ones((steps + 1, 2), np.float32), rewards=rows, discounts=rows, valid=valid)
                return len(jax.make_jaxpr(lambda given: gae(**given, trace_lambda=0.9))(given).eqns)
            print(programs, equal, operations(64) == operations(8))
            """
        done = configured(body)
        assert done.stdout.split() == ["1", "True", "True"], done.stderr

    @pytest.mark.long
    @pytest.mark.skipif(JAX_MISSING, reason="JAX is not installed")
    def test_compiled_programs_are_kept_unless_jax_is_told_otherwise(tmp_path):
        body = """
            backend.configure(device="cpu", threads=1, deterministic=False, seed=1)
            import jax
            hits = []
            jax.monitoring.register_event_listener(lambda event, **_: hits.append("cache_hits" in event))
            print(float(jax.jit(lambda x: 3.0 * x + 1.0)(2.0)), any(hits), jax.config.jax_compilation_cache_dir)
            """
        ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
        first, second = (configured(body, XDG_CACHE_HOME=ours).stdout.split() for _ in range(2))
        assert (first[:2], second[:2]) == (["7.0", "False"], ["7.0", "True"])
        assert second[2].startswith(f"{ours}/distrl/jax/")
        told = configured(body, XDG_CACHE_HOME=ours, JAX_COMPILATION_CACHE_DIR=theirs).stdout.split()
        assert told == ["7.0", "False", theirs]

    @pytest.mark.long
    @pytest.mark.skipif(JAX_MISSING, reason="JAX is not installed")
    def test_configure_sets_threads_and_devices():
        body = """
            import os
            def threads():
                return len(os.listdir("/proc/self/task"))
            before = threads()
            backend.configure(device="cpu", threads={threads}, deterministic=True, seed=1)
            import jax
            deterministic = "xla_gpu_deterministic_ops=true" in os.environ["XLA_FLAGS"]
            print(threads() - before, jax.default_backend(), deterministic)
            try:
                backend.configure(device="gpu", threads=1, deterministic=False, seed=1)
            except Exception as error:
                print(type(error).__name__, error)
            """
        said = {}
        for threads in (1, 9):
            done = configured(textwrap.dedent(body).format(threads=threads), XLA_FLAGS="")
            assert done.returncode == 0, done.stderr
            (count, platform, deterministic), refused = done.stdout.splitlines()[0].split(), done.stdout.splitlines()[1]
            assert (platform, deterministic) == ("cpu", "True")
            assert refused.startswith("ConfigError learner.device: gpu, but JAX sees no GPU")
            said[threads] = int(count)
        assert said[9] - said[1] >= 8  # at least one pool has a thread for each


else:
    import jax

    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, duration, **_: compiled.append(event) if "backend_compile" in event else None
    )

    def state_of(network):
        """All but the generators that Keras' cells have and never draw from, whose names count through the process."""
        return {
            f"{group}/{path}": array
            for group, arrays in network.state_arrays().items()
            for path, array in arrays.items()
            if "/seed_generator" not in path.removesuffix("/seed_generator_state")
        }

    @pytest.mark.parametrize("name", NETWORKS)
    def test_replicas_make_the_same_update(name):
        network, _, told = train(name, 1)
        alone = state_of(network)
        for replicas in (2, 4):
            network, step, shared = train(name, replicas)
            for one, other in zip(told, shared, strict=True):
                assert other == pytest.approx(one, rel=1e-5, abs=1e-5)
            for path, array in state_of(network).items():
                np.testing.assert_allclose(array, alone[path], rtol=1e-5, atol=1e-5, err_msg=path)
            assert traces(step) == 1

    def test_a_mean_of_means_would_be_another_update():
        network = wrap(**NETWORKS["lstm"])
        online = network.online
        function = over_unrolls(online, loss)
        gradients = Gradients(function, online.model.trainable_variables, online.state_variables)
        (batch,) = batches(network, 1)
        whole, _, of_whole = gradients(batch)
        parts = [gradients(part) for part in quarters(batch)]
        assert abs(np.mean([part for part, _, _ in parts]) - whole) > 0.1 * whole
        of_means = [np.mean(found, axis=0) for found in zip(*(found for _, _, found in parts), strict=True)]
        assert max(np.abs(one - other).max() for one, other in zip(of_means, of_whole, strict=True)) > 0.1
        # And the step of four replicas takes the loss of the whole.
        assert network.train_step(loss, 4)(batch)["loss"] == pytest.approx(whole, rel=1e-5)

    @pytest.mark.parametrize("name", NETWORKS)
    def test_replicas_share_minibatches(name):
        """Two minibatches of eight sequences, as steps of one device."""
        network, shared = wrap(**NETWORKS[name]), wrap(**NETWORKS[name])
        alone, together = network.train_step(loss, 1, 2), shared.train_step(loss, 4, 2)
        for batch in batches(network, 2):
            expected = alone(batch)
            assert together(batch) == pytest.approx(expected, rel=1e-5, abs=1e-5)
        states = state_of(network)
        for path, array in state_of(shared).items():
            np.testing.assert_allclose(array, states[path], rtol=1e-5, atol=1e-5, err_msg=path)
        assert traces(together) == 1
        assert len(shared.online.model.trainable_variables[0].value.sharding.device_set) == 4

    @pytest.mark.parametrize("name", NETWORKS)
    def test_replicas_share_the_work(name):
        flops = {}
        for replicas in (1, 4):
            network = wrap(**NETWORKS[name])
            step = network.train_step(loss, replicas)._compiled
            (batch,) = batches(network, 1)
            values = step.shards.copy([variable.value for variable in step.variables])
            program = step._compiled.lower(values, [], step.shards.split(batch)).compile()
            flops[replicas] = program.cost_analysis()["flops"]  # of each device
            assert "all-gather" not in program.as_text()
        assert flops[4] < 0.6 * flops[1]  # the optimizer's part is everyone's

    @pytest.mark.parametrize("replicas", [1, 4])
    def test_compiled_once_whatever_is_assigned_between_updates(replicas):
        network, step, _ = train("mlp", replicas)
        network.restore(network.state_arrays())
        count = 0
        for batch in batches(network, 2):
            before = len(compiled)
            step(batch)
            count += len(compiled) - before
            network.statistics.observe(batch)
        assert compiled
        assert count == 0
        assert traces(step) == 1
        kernel = network.online.model.trainable_variables[0].value
        assert len(kernel.sharding.device_set) == replicas
        assert kernel.sharding.is_fully_replicated

    def test_statistics_that_are_written_after_a_step_are_seen_by_the_next():
        network, step, _ = train("mlp", 4)
        (batch,) = batches(network, 1)
        first = step(batch)["loss"]
        ((_, layer),) = network.online.normalizations
        layer.mean.assign(np.full(4, 100.0))
        assert step(batch)["loss"] != pytest.approx(first, rel=0.01)

    def test_batches_that_are_not_finite_change_nothing_on_any_device():
        network, step, _ = train("mlp", 4)
        before = state_of(network)
        (batch,) = batches(network, 1)
        batch.rewards[batch.valid] = np.inf
        assert step(batch)["finite"] is False
        for path, array in state_of(network).items():
            np.testing.assert_array_equal(array, before[path], err_msg=path)

    def test_too_few_devices_are_told():
        message = (
            "learner.replicas: 5, but JAX sees 4 device.s. of kind cpu; "
            "XLA_FLAGS=--xla_force_host_platform_device_count=5 makes virtual ones"
        )
        with pytest.raises(ConfigError, match=message):
            wrap().train_step(loss, 5)

    @pytest.mark.parametrize("optimizer", ["RMSProp", "Nadam", "Muon"])
    def test_every_optimizer_is_compiled_once(optimizer):
        network = wrap(optimizer_type=optimizer)
        step = network.train_step(loss)
        for batch in batches(network, 2):
            before = len(compiled)
            step(batch)
        assert len(compiled) == before
        assert traces(step) == 1

    @pytest.mark.parametrize("minibatches", [1, 2])
    def test_a_step_compiled_ahead_makes_the_same_updates_and_compiles_no_more(minibatches):
        network, other = wrap(**NETWORKS["mlp"]), wrap(**NETWORKS["mlp"])
        step, plain = (each.train_step(loss, minibatches=minibatches) for each in (network, other))
        first, *_ = batches(network, 1)
        before = state_of(network)
        step.compile(nest.map(np.zeros_like, first))
        for path, array in state_of(network).items():
            np.testing.assert_array_equal(array, before[path], err_msg=path)
        count = len(compiled)
        told = [step(batch) for batch in batches(network, 2)]
        assert len(compiled) == count
        assert traces(step) == 1
        assert told == [plain(batch) for batch in batches(network, 2)]
        for path, array in state_of(other).items():
            np.testing.assert_array_equal(array, state_of(network)[path], err_msg=path)

    def test_variables_are_built_on_the_cpu_and_move_to_the_device_of_the_first_step():
        """The second device stands for a GPU."""
        device = jax.devices()[1]
        with jax.default_device(device):
            with building():
                network = wrap(**NETWORKS["mlp"])
                step = network.train_step(loss)
            weights = network.online.model.trainable_variables
            assert {weight.value.device for weight in weights} == {jax.devices()[0]}
            first, *rest = batches(network, 3)
            step(first)
            assert {weight.value.device for weight in weights} == {device}
            count = len(compiled)
            for batch in rest:
                step(batch)
        assert len(compiled) == count
        assert traces(step) == 1

    def test_none_of_this_needs_tensorflow():
        assert isinstance(Step, type)
        assert "tensorflow" not in sys.modules
