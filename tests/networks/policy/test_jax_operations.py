"""Every operation of JAX that has nodes in ONNX computes what JAX computes, with a free batch axis."""

import os

import numpy as np
import onnxruntime
import pytest

if os.environ.get("KERAS_BACKEND") != "jax":
    pytest.skip("test_jax_conversion_process.py runs this in a process with JAX", allow_module_level=True)

import jax
import jax.numpy as jnp
from jax import lax

from distrl.networks.policy.jax_conversion import convert
from distrl.networks.policy.jax_operations import OPERATIONS
from distrl.networks.policy.onnx_graph import unknown_operation

VECTOR, ROWS, IMAGE = (6,), (5, 4), (8, 6, 3)
FLOATS, BOTH = ("float32",), ("float32", "int32")


def same(*names, function=None):
    return {name: (function or getattr(lax, name), (VECTOR,), FLOATS) for name in names}


def window(operation, start):
    return lambda x: lax.reduce_window(x, start, operation, (1, 3, 2, 1), (1, 2, 2, 1), "SAME")


def convolved(x, kernel, **options):
    numbers = lax.conv_dimension_numbers(x.shape, kernel.shape, ("NHWC", "HWIO", "NHWC"))
    return lax.conv_general_dilated(x, kernel, dimension_numbers=numbers, **options)


def scanned(x):
    def body(state, row):
        total, step = state
        return (total + row, step + 1), (total * row, total + step)

    return lax.scan(body, (jnp.zeros_like(x[:, 0]), 2), x.swapaxes(0, 1))[1]


def counted(x):
    return lax.scan(lambda state, _: (0.5 * state + 1.0, None), x, None, length=3)[0]


def repeated(x):
    return lax.while_loop(lambda state: jnp.min(state[1]) < 9, lambda state: (state[0] + 1, state[1] + x * x), (0, x))


KERNEL = np.random.default_rng(1).standard_normal((3, 2, 3, 4)).astype(np.float32)
TABLE = np.arange(20, dtype=np.float32).reshape(10, 2)
CASES = {
    **same("add", "sub", "mul", "max", "min", "div", function=None),
    **same("exp", "tanh", "logistic", "neg", "abs", "sign", "floor", "ceil", "erf", "sin", "cos", "tan", "sinh"),
    **same("cosh", "asinh", "atan", "square", "expm1", "erfc", "exp2", "is_finite"),
}
for two in ("add", "sub", "mul", "max", "min", "div"):
    CASES[two] = (getattr(lax, two), (VECTOR, VECTOR), FLOATS * 2)
POSITIVE = {
    "log": jnp.log,
    "sqrt": jnp.sqrt,
    "rsqrt": lax.rsqrt,
    "log1p": jnp.log1p,
    "acosh": lambda x: lax.acosh(1 + x),
}
CASES |= {name: (lambda x, f=function: f(jnp.abs(x) + 0.1), (VECTOR,), FLOATS) for name, function in POSITIVE.items()}
WITHIN_ONE = {name: getattr(lax, name) for name in ("asin", "acos", "atanh")}
CASES |= {
    name: (lambda x, f=function: f(jnp.tanh(x) * 0.9), (VECTOR,), FLOATS) for name, function in WITHIN_ONE.items()
}
CASES |= {
    "pow": (lambda x, y: jnp.abs(x) ** y, (VECTOR, VECTOR), FLOATS * 2),
    "pow of integers": (lambda x, n: lax.pow(x, n), (VECTOR, VECTOR), BOTH),
    "max with zero": (lambda x: (jnp.maximum(x, 0.0), jnp.maximum(0.0, x)), (VECTOR,), FLOATS),
    "integer_pow": (lambda x: (x**2, x**3, x**-1), (VECTOR,), FLOATS),
    "rem": (lambda x, y: (lax.rem(x, y), lax.rem(x, 0.3)), (VECTOR, VECTOR), FLOATS * 2),
    "rem of integers": (lambda x: lax.rem(x - 3, 4), (VECTOR,), ("int32",)),
    "round": (lambda x: jnp.round(x * 4) / 2, (VECTOR,), FLOATS),
    "div of integers": (lambda x: lax.div(x - 3, 2), (VECTOR,), ("int32",)),
    "small integers": (lambda x, y: (x + y, x < y, jnp.maximum(x, y)), (VECTOR, VECTOR), ("uint8", "uint8")),
    **{
        name: (getattr(lax, name), (VECTOR, VECTOR), ("int32", "int32"))
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
    },
    **{
        name: (lambda x, y, f=f: f(x > 0, y > 0), (VECTOR, VECTOR), FLOATS * 2)
        for name, f in (("and", jnp.logical_and), ("or", jnp.logical_or), ("xor", jnp.logical_xor))
    },
    "not": (lambda x: ~(x > 0), (VECTOR,), FLOATS),
    "clamp": (lambda x: lax.clamp(-0.5, x, 0.25), (VECTOR,), FLOATS),
    "select_n": (lambda x, y: jnp.where(x > 0, y, -1.0), (VECTOR, VECTOR), FLOATS * 2),
    "select_n by number": (lambda x: lax.select_n(x % 3, x, 2 * x, 3 * x), (VECTOR,), ("int32",)),
    "convert_element_type": (lambda x: (x.astype("float32") / 255, x.astype(bool)), (IMAGE,), ("uint8",)),
    "broadcast_in_dim": (
        lambda x: (x[:, None] + jnp.ones((4, 1)), jnp.broadcast_to(x[:, :, None], (*x.shape, 2))),
        (VECTOR,),
        FLOATS,
    ),
    "reshape": (lambda x: (x.reshape(-1, 10, 2), x.reshape(-1, 4), jnp.zeros_like(x).reshape(-1, 20)), (ROWS,), FLOATS),
    "squeeze": (lambda x: lax.squeeze(lax.expand_dims(x, (1, 3)), (1,)), (ROWS,), FLOATS),
    "transpose": (lambda x: (x.transpose(2, 0, 1), jnp.full_like(x, 2.0).T), (ROWS,), FLOATS),
    "concatenate": (lambda x: jnp.concatenate([x, jnp.zeros_like(x), 2 * x], axis=2), (ROWS,), FLOATS),
    "stack": (lambda x: jnp.stack([x, 2 * x, jnp.zeros_like(x)], axis=2), (ROWS,), FLOATS),
    "slice": (lambda x: (x[:, 1:4:2], x[:, :, -1], x[:, ::-1]), (ROWS,), FLOATS),
    "dynamic_slice": (
        lambda x, n: lax.dynamic_slice_in_dim(x, jnp.max(n), 2, axis=1),
        (ROWS, ()),
        ("float32", "int32"),
    ),
    "rev": (lambda x: lax.rev(x, (1, 2)), (ROWS,), FLOATS),
    "split": (lambda x: jnp.split(x, [1, 3], axis=2), (ROWS,), FLOATS),
    "iota": (lambda x: x + jnp.arange(6.0) + jnp.arange(x.shape[0])[:, None] + lax.iota("int32", 6), (VECTOR,), FLOATS),
    "dim_as_value": (lambda x: jnp.mean(x, axis=0) + x.shape[0] * jnp.sum(x), (VECTOR,), FLOATS),
    "tile": (lambda x: jnp.tile(x, (1, 2, 3)), (ROWS,), FLOATS),
    "pad": (lambda x: lax.pad(x, 2.0, ((0, 0, 0), (1, -1, 2), (-1, 3, 0))), (ROWS,), FLOATS),
    **{
        f"reduce_{f.__name__}": (lambda x, f=f: (f(x, axis=(1, 2)), f(x, axis=1)), (ROWS,), FLOATS)
        for f in (jnp.sum, jnp.prod, jnp.max, jnp.min)
    },
    "reduce_or": (lambda x: jnp.any(x > 1, axis=1), (ROWS,), FLOATS),
    "reduce_and": (lambda x: jnp.all(x > -1, axis=1), (ROWS,), FLOATS),
    "reduce_sum of bytes": (lambda x: jnp.sum(x, axis=1, dtype="uint8"), (VECTOR,), ("uint8",)),
    "argmax": (lambda x: jnp.argmax(x, axis=2), (ROWS,), FLOATS),
    "argmin": (lambda x: jnp.argmin(x, axis=1), (ROWS,), FLOATS),
    "cumsum": (lambda x: (jnp.cumsum(x, axis=1), lax.cumsum(x, axis=2, reverse=True)), (ROWS,), FLOATS),
    "sort": (lambda x: jnp.sort(x, axis=1), (ROWS,), FLOATS),
    "top_k": (lambda x: lax.top_k(x, 3), (ROWS,), FLOATS),
    "dot_general": (
        lambda x, y: (
            x @ np.ones((4, 3), "float32"),
            x @ y.swapaxes(1, 2),
            jnp.tensordot(x, KERNEL[0, 0], ((2,), (1,))),
        ),
        (ROWS, ROWS),
        FLOATS * 2,
    ),
    "dot_general of several axes": (
        lambda x: jnp.tensordot(x, np.ones((4, 5, 2), "float32"), ((1, 2), (1, 0))),
        (ROWS,),
        FLOATS,
    ),
    "conv_general_dilated": (
        lambda x: convolved(x, KERNEL, window_strides=(2, 1), padding="SAME", rhs_dilation=(1, 2)),
        (IMAGE,),
        FLOATS,
    ),
    "conv of groups": (
        lambda x: convolved(x, KERNEL[:, :, :1, :3], window_strides=(1, 1), padding="VALID", feature_group_count=3),
        (IMAGE,),
        FLOATS,
    ),
    "conv with gaps": (
        lambda x: convolved(x, KERNEL, window_strides=(1, 1), padding=((2, -1), (1, 1)), lhs_dilation=(2, 3)),
        (IMAGE,),
        FLOATS,
    ),
    "reduce_window_max": (window(lax.max, -np.inf), (IMAGE,), FLOATS),
    "reduce_window_sum": (window(lax.add, 0.0), (IMAGE,), FLOATS),
    "pool of a sequence": (
        lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 2, 1), (1, 2, 1), "VALID"),
        (ROWS,),
        FLOATS,
    ),
    "pool of channels first": (
        lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 1, 1), "VALID"),
        (IMAGE,),
        FLOATS,
    ),
    "gather": (lambda n: jnp.take(TABLE, n, axis=0, mode="clip"), (VECTOR,), ("int32",)),
    "gather of an axis": (lambda x: (jnp.take(x, np.array([3, 0]), axis=2), x[:, 2], x[:, [0, 1, 1]]), (ROWS,), FLOATS),
    "gather of parts": (lambda x: (x[:, 1:3], x[:, 2:, :-1], x[:, -2:, 1]), (ROWS,), FLOATS),
    "gather of a part": (lambda x, n: lax.dynamic_slice(x, (0, n.sum(), 1), (x.shape[0], 2, 2)), (ROWS, ()), BOTH),
    "gather of pairs": (lambda x: x[:, np.array([0, 2]), np.array([1, 3])], (ROWS,), FLOATS),
    "gather by row": (
        lambda x, n: jnp.take_along_axis(x, n[:, :, None] % 5, axis=1),
        (ROWS, VECTOR),
        ("float32", "int32"),
    ),
    "scan": (scanned, (ROWS,), FLOATS),
    "scan backwards": (
        lambda x: lax.scan(lambda s, r: (s + r, s * r), x[:, 0], x.swapaxes(0, 1), reverse=True),
        (ROWS,),
        FLOATS,
    ),
    "scan of nothing": (counted, (VECTOR,), FLOATS),
    "while": (repeated, (VECTOR,), FLOATS),
    "cond": (lambda x, n: lax.cond(jnp.max(n) > 3, lambda a: a + 1, lambda a: a * 2, x), (VECTOR, VECTOR), BOTH),
    "switch": (lambda n: lax.switch(jnp.max(n), [lambda a: a + 1, lambda a: a * 2], n), (VECTOR,), ("int32",)),
    "functions of functions": (lambda x: jax.nn.softmax(jax.nn.relu(jax.jit(jax.nn.silu)(x))), (ROWS,), FLOATS),
    "copy": (lambda x: (x, x, jnp.array(x), lax.stop_gradient(x)), (VECTOR,), FLOATS),
}


def primitives(jaxpr):
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from primitives(inner)


def forms_of(shapes, dtypes):
    return {
        f"x{index}": ((None, *shape), dtype) for index, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
    }


def drawn(shape, dtype, rng):
    if dtype == "float32":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 200 if dtype == "uint8" else 6, shape).astype(dtype)


def leaves(function):
    return lambda *arguments: jax.tree.leaves(function(*arguments))


@pytest.mark.parametrize("name", CASES)
def test_each_computes_what_jax_computes(name):
    function, shapes, dtypes = CASES[name]
    rng = np.random.default_rng(0)
    given = [drawn((3, *shape), dtype, rng) for shape, dtype in zip(shapes, dtypes, strict=True)]
    outputs = [f"y{index}" for index in range(len(leaves(function)(*given)))]
    forms = forms_of(shapes, dtypes)
    model = convert(leaves(function), forms, outputs, 17)
    assert unknown_operation(model.graph) is None
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for batch in (1, 3):
        rows = [array[:batch] for array in given]
        for one, other in zip(
            session.run(outputs, dict(zip(forms, rows, strict=True))), leaves(function)(*rows), strict=True
        ):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            np.testing.assert_allclose(one, other, atol=1e-5, rtol=1e-5)


def test_every_operation_has_a_case():
    seen = set()
    for function, shapes, dtypes in CASES.values():
        rows = [np.ones((2, *shape), dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
        seen |= {*primitives(jax.make_jaxpr(function)(*rows).jaxpr)}
    assert OPERATIONS.keys() - seen <= {"copy", "copy_p", "stack", "dim_as_value"}  # by JAX's version, or of a symbol
