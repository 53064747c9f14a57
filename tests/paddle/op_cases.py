"""Calls of Paddle's API on small inputs, by kind; op_coverage.py runs them on both devices."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    name: str
    call: Callable[..., Any]
    inputs: Sequence[Any] = ()
    gradients: bool = True
    tolerance: float = 1e-5


def real(*shape: int, low: float = -1.0, high: float = 1.0, kind: str = "float32") -> np.ndarray:
    """Numbers that depend on nothing but the shape and the range."""
    seed = zlib.crc32(repr((shape, low, high)).encode())
    return np.random.RandomState(seed % 2**31).uniform(low, high, shape).astype(kind)


def whole(*shape: int, low: int = 0, high: int = 5, kind: str = "int64") -> np.ndarray:
    seed = zlib.crc32(repr((shape, low, high, kind)).encode())
    return np.random.RandomState(seed % 2**31).randint(low, high, shape).astype(kind)


def truth(*shape: int) -> np.ndarray:
    return whole(*shape, high=2) > 0


def positive(size: int) -> np.ndarray:
    """A symmetric positive definite matrix."""
    half = real(size, size)
    return (half @ half.T + size * np.eye(size)).astype("float32")


def tensor(value: Any, gradients: bool) -> Any:
    import paddle

    if not isinstance(value, np.ndarray):
        return value
    made = paddle.to_tensor(value)
    made.stop_gradient = not (gradients and value.dtype.kind in "fc")
    return made


# Unary ops: the names of functions, and the range of their input.
_UNARY = {
    (-1.0, 1.0): "abs acos asin asinh atan ceil cos cosh digamma erf erfinv exp expm1 floor lgamma "
    "neg round sign sin sinh square tan tanh trunc i0 i0e i1 i1e frac deg2rad rad2deg angle conj "
    "isfinite isinf isnan logsumexp stanh",
    (0.2, 0.8): "log log2 log10 log1p rsqrt sqrt reciprocal logit gammaln atanh",
    (1.1, 3.0): "acosh",
}  # fmt: skip
_ACTIVATIONS = (
    "celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu log_sigmoid mish relu relu6 "
    "selu sigmoid silu softplus softshrink softsign swish tanhshrink thresholded_relu "
    "log_softmax softmax"
)
_BINARY = (
    "add subtract multiply divide maximum minimum fmax fmin atan2 equal not_equal greater_than "
    "greater_equal less_than less_equal heaviside nextafter copysign dot kron dist "
    "logaddexp allclose isclose equal_all hypot"
)
_WHOLE_BINARY = (
    "add subtract multiply floor_divide remainder mod maximum minimum bitwise_and bitwise_or "
    "bitwise_xor equal less_than gcd lcm bitwise_left_shift bitwise_right_shift"
)
_REDUCTIONS = "sum mean max min prod amax amin logsumexp std var median nanmedian nansum nanmean"
_SPARSE_UNARY = (
    "abs asin asinh atan atanh expm1 log1p neg sin sinh sqrt square tan tanh isnan deg2rad"
)


def _elementwise() -> Iterator[Case]:
    import paddle
    import paddle.nn.functional as F

    for (low, high), names in _UNARY.items():
        for name in names.split():
            yield Case(name, getattr(paddle, name), [real(3, 4, low=low, high=high)])
    for name in _ACTIVATIONS.split():
        yield Case(f"F.{name}", getattr(F, name), [real(3, 4, low=-4, high=4)])
    for name in _BINARY.split():
        inputs = [real(4, low=0.5, high=2), real(4, low=0.6, high=2.1)]
        yield Case(name, getattr(paddle, name), inputs)
        if name not in ("dot", "kron", "dist", "allclose", "isclose", "equal_all"):
            bias = [real(2, 3, 4), real(3, 1)]
            yield Case(f"{name} broadcast", getattr(paddle, name), bias, gradients=False)
    for name in _WHOLE_BINARY.split():
        inputs = [whole(3, 4, low=1, high=9), whole(3, 4, low=1, high=4)]
        yield Case(f"{name} int64", getattr(paddle, name), inputs, gradients=False)
    for name in ("logical_and", "logical_or", "logical_xor"):
        yield Case(name, getattr(paddle, name), [truth(3, 4), truth(4)], gradients=False)
    yield Case("logical_not", paddle.logical_not, [truth(3)], False)
    yield Case("bitwise_not", paddle.bitwise_not, [whole(3)], False)
    for name in _REDUCTIONS.split():
        yield Case(f"{name} all", getattr(paddle, name), [real(3, 4)])
        yield Case(f"{name} axis", lambda x, n=name: getattr(paddle, n)(x, axis=1), [real(3, 4)])
    for name in ("any", "all"):
        yield Case(name, lambda x, n=name: getattr(paddle, n)(x, axis=0), [truth(3, 4)], False)


def _arithmetic() -> Iterator[Case]:
    import paddle
    import paddle.nn.functional as F

    x, m = real(3, 4), real(4, 4)
    above = real(3, 4, low=0.5, high=2)
    yield Case("scale", lambda x: paddle.scale(x, 2.0, 1.0), [x])
    yield Case("pow", lambda x: paddle.pow(x, 3), [above])
    yield Case("pow tensor", paddle.pow, [above, real(3, 4)])
    yield Case("rpow", lambda x: 2.0**x, [x])
    yield Case("clip", lambda x: paddle.clip(x, -0.5, 0.5), [x])
    yield Case("lerp", paddle.lerp, [x, above, real(3, 4, low=0, high=1)])
    yield Case("polygamma", lambda x: paddle.polygamma(x, 2), [above])
    yield Case("gammaincc", paddle.gammaincc, [above, above + 1], gradients=False)
    yield Case("gammainc", paddle.gammainc, [above, above + 1], gradients=False)
    yield Case("multigammaln", lambda x: paddle.multigammaln(x, 2), [above + 2])
    yield Case("cumsum", lambda x: paddle.cumsum(x, 1), [x])
    yield Case("cumprod", lambda x: paddle.cumprod(x, 1), [above])
    yield Case("cummax", lambda x: paddle.cummax(x, 1), [x])
    yield Case("cummin", lambda x: paddle.cummin(x, 1), [x])
    yield Case("logcumsumexp", lambda x: paddle.logcumsumexp(x, 1), [x])
    yield Case("add_n", lambda *x: paddle.add_n(list(x)), [x, above, x * 2])
    yield Case("matmul", paddle.matmul, [x, m])
    yield Case("matmul transposed", lambda a, b: paddle.matmul(a, b, True, True), [m, real(5, 4)])
    yield Case("matmul batched", paddle.matmul, [real(2, 3, 4), real(2, 4, 5)])
    yield Case("bmm", paddle.bmm, [real(2, 3, 4), real(2, 4, 5)])
    yield Case("mv", paddle.mv, [x, real(4)])
    yield Case("addmm", paddle.addmm, [real(3, 4), x, m])
    yield Case("baddbmm", paddle.baddbmm, [real(2, 3, 5), real(2, 3, 4), real(2, 4, 5)])
    yield Case("multi_dot", lambda *a: paddle.linalg.multi_dot(list(a)), [x, m, real(4, 2)])
    yield Case("einsum", lambda a, b: paddle.einsum("ij,jk->ik", a, b), [x, m])
    yield Case("outer", paddle.outer, [real(3), real(4)])
    yield Case("inner", paddle.inner, [x, m])
    yield Case("cross", paddle.cross, [real(4, 3), real(4, 3, low=0)])
    yield Case("trace", paddle.trace, [m])
    yield Case("norm", paddle.linalg.norm, [x])
    yield Case("p_norm", lambda x: paddle.linalg.norm(x, 3, axis=1), [above])
    yield Case("frobenius", lambda x: paddle.linalg.norm(x, "fro", axis=[0, 1]), [x])
    yield Case("renorm", lambda x: paddle.renorm(x, 2.0, 0, 1.0), [x])
    yield Case("complex", paddle.complex, [x, above])
    for name in ("real", "imag"):
        yield Case(name, lambda a, b, n=name: getattr(paddle, n)(paddle.complex(a, b)), [x, above])
    yield Case("as_complex", paddle.as_complex, [real(3, 2)])
    yield Case("as_real", lambda a, b: paddle.as_real(paddle.complex(a, b)), [x, above])
    yield Case("complex abs", lambda a, b: paddle.complex(a, b).abs(), [x, above])
    yield Case("diff", paddle.diff, [x])
    yield Case("increment", lambda x: paddle.increment(x), [real(1)], False)
    yield Case("multiplex", lambda a, b: paddle.multiplex(
        [a, b], paddle.to_tensor([[0], [1], [0]], dtype="int32")),
               [x, above])  # fmt: skip
    yield Case("maxout", lambda x: F.maxout(x, 2), [real(1, 4, 3, 3)])
    yield Case("glu", F.glu, [x])
    yield Case("swiglu", lambda x, y: paddle.incubate.nn.functional.swiglu(x, y), [x, above])
    yield Case("prelu", F.prelu, [real(2, 3, 4), real(3)])
    yield Case("rrelu", F.rrelu, [x])
    yield Case("rrelu training", lambda x: F.rrelu(x, training=True), [x])
    yield Case("gumbel_softmax", F.gumbel_softmax, [x])
    yield Case("softmax_", F.softmax_, [x], False)
    for kind in ("float16", "bfloat16", "float64", "int32", "bool", "complex64"):
        yield Case(f"cast {kind}", lambda x, k=kind: x.astype(k), [x], kind == "float64")


def _shapes() -> Iterator[Case]:
    import paddle
    import paddle.nn.functional as F

    x, index = real(3, 4), whole(2, high=3)
    simple: dict[str, Callable[[Any], Any]] = {
        "reshape": lambda x: x.reshape([4, 3]),
        "flatten": paddle.flatten,
        "squeeze": lambda x: paddle.squeeze(x.unsqueeze(1), 1),
        "unsqueeze": lambda x: paddle.unsqueeze(x, [0, 2]),
        "transpose": lambda x: paddle.transpose(x, [1, 0]) * 2,
        "concat": lambda x: paddle.concat([x, x], 1),
        "stack": lambda x: paddle.stack([x, x], 1),
        "unstack": lambda x: paddle.unstack(x, 0),
        "unbind": lambda x: [t + 1 for t in paddle.unbind(x, 1)],
        "split": lambda x: [t * 2 for t in paddle.split(x, [1, 3], 1)],
        "split number": lambda x: [t * 2 for t in paddle.split(x, 2, 1)],
        "chunk": lambda x: paddle.chunk(x, 2, 1),
        "tile": lambda x: paddle.tile(x, [2, 1]),
        "expand": lambda x: paddle.expand(x, [2, 3, 4]),
        "expand_as": lambda x: paddle.expand_as(x, paddle.zeros([2, 3, 4])),
        "broadcast_tensors": lambda x: paddle.broadcast_tensors([x, x[:1]]),
        "flip": lambda x: paddle.flip(x, [0, 1]),
        "roll": lambda x: paddle.roll(x, 1, 1),
        "rot90": paddle.rot90,
        "repeat_interleave": lambda x: paddle.repeat_interleave(x, 2, 0),
        "repeat_interleave tensor": lambda x: paddle.repeat_interleave(
            x, paddle.to_tensor([1, 2, 1]), 0
        ),
        "slice": lambda x: paddle.slice(x, [0, 1], [0, 1], [2, 3]) * 2,
        "strided_slice": lambda x: paddle.strided_slice(x, [1], [0], [4], [2]) * 2,
        "crop": lambda x: paddle.crop(x, [2, 2], [1, 1]),
        "pad": lambda x: F.pad(x, [1, 1, 0, 1]),
        "pad constant": lambda x: F.pad(x, [0, 1, 2, 0], value=1.0),
        "pad3d": lambda x: F.pad(x.reshape([1, 1, 3, 4]), [1, 1, 1, 1], mode="reflect"),
        "diag": lambda x: paddle.diag(x[0]),
        "diagonal": lambda x: paddle.diagonal(x) * 2,
        "diag_embed": lambda x: paddle.diag_embed(x),
        "diagflat": lambda x: paddle.diagflat(x),
        "tril": paddle.tril,
        "triu": paddle.triu,
        "meshgrid": lambda x: paddle.meshgrid(x[0], x[:, 0]),
        "as_strided": lambda x: paddle.as_strided(x, [2, 2], [4, 1], 1) * 1,
        "view": lambda x: x.view([2, 6]) * 2,
        "view dtype": lambda x: x.detach().view("int32") + 0,
        "unfold tensor": lambda x: x.unfold(1, 2, 1) * 2,
        "contiguous": lambda x: x.t().contiguous(),
        "index range": lambda x: x[1:, ::2] * 2,
        "index int": lambda x: x[1] * 2,
        "unflatten": lambda x: paddle.unflatten(x, 1, [2, 2]),
        "moveaxis": lambda x: paddle.moveaxis(x, 0, 1) + 1,
        "vander": lambda x: paddle.vander(x[0], 3),
        "shape": lambda x: paddle.shape(x),
        "numel": paddle.numel,
        "rank": paddle.rank,
        "is_empty": paddle.is_empty,
        "clone": lambda x: x.clone(),
        "assign": paddle.assign,
        "fill_diagonal": lambda x: (x + 0).fill_diagonal_(2.0),
        "fill_diagonal_tensor": lambda x: (x + 0).fill_diagonal_tensor(paddle.ones([3])),
        "fill": lambda x: (x + 0).fill_(2.0),
        "zero": lambda x: (x + 0).zero_(),
        "reverse": lambda x: paddle.reverse(x, [0]),
        "set_value": lambda x: _with_value(x, 1.0),
        "set_value tensor": lambda x: _with_value(x, paddle.ones([4])),
        "shard_index": lambda x: paddle.shard_index(paddle.to_tensor([[1], [9]]), 20, 2, 0),
        "unfold": lambda x: F.unfold(x.reshape([1, 1, 3, 4]), 2),
        "fold": lambda x: F.fold(x.reshape([1, 4, 3]), [2, 4], [2, 2]),
        "frame": lambda x: paddle.signal.frame(x, 2, 1),
        "overlap_add": lambda x: paddle.signal.overlap_add(x, 1),
        "pixel_shuffle": lambda x: F.pixel_shuffle(x.reshape([1, 4, 3, 1]), 2),
        "pixel_unshuffle": lambda x: F.pixel_unshuffle(x[:2].reshape([1, 1, 4, 2]), 2),
        "channel_shuffle": lambda x: F.channel_shuffle(x.reshape([1, 4, 3, 1]), 2),
        "temporal_shift": lambda x: F.temporal_shift(x.reshape([2, 6, 1, 1]), 2, 0.25),
        "reduce_as": lambda x: paddle.reduce_as(x, paddle.ones([4])),
        "strided in-place": lambda x: (x + 0).t().add_(paddle.ones([4, 3])),
    }
    for name, call in simple.items():
        yield Case(name, call, [x])
    yield Case("gather", paddle.gather, [x, index])
    yield Case("gather_nd", paddle.gather_nd, [x, whole(2, 2, high=3)])
    yield Case("index_select", paddle.index_select, [x, index])
    yield Case("index_sample", paddle.index_sample, [x, whole(3, 2, high=4)])
    yield Case("index_add", lambda x, v: paddle.index_add(x, paddle.to_tensor([0, 2]), 0, v),
               [x, real(2, 4)])  # fmt: skip
    yield Case("index_put", lambda x, v: paddle.index_put(x, [paddle.to_tensor([0, 2])], v),
               [x, real(2, 4)])  # fmt: skip
    yield Case("index_fill", lambda x: paddle.index_fill(x, paddle.to_tensor([0]), 0, 2.0), [x])
    yield Case("scatter", lambda x, u: paddle.scatter(x, paddle.to_tensor([0, 2]), u),
               [x, real(2, 4)])  # fmt: skip
    yield Case("scatter add", lambda x, u: paddle.scatter(x, paddle.to_tensor([0, 0]), u, False),
               [x, real(2, 4)])  # fmt: skip
    yield Case("scatter_nd_add",
               lambda x, u: paddle.scatter_nd_add(x, paddle.to_tensor([[0], [2]]), u),
               [x, real(2, 4)])  # fmt: skip
    yield Case("take_along_axis", lambda x, i: paddle.take_along_axis(x, i, 1),
               [x, whole(3, 2, high=4)])  # fmt: skip
    for way in ("assign", "add", "multiply", "amax", "amin", "mean"):
        yield Case(f"put_along_axis {way}",
                   lambda x, i, v, w=way: paddle.put_along_axis(x, i, v, 1, w),
                   [x, whole(3, 1, high=4), real(3, 1)], way in ("assign", "add"))  # fmt: skip
    yield Case("take", lambda x, i: paddle.take(x, i), [x, whole(2, 2, high=12)])
    yield Case("masked_select", paddle.masked_select, [x, truth(3, 4)])
    yield Case("masked_fill", lambda x, m: paddle.masked_fill(x, m, 2.0), [x, truth(3, 4)])
    yield Case("masked_scatter", paddle.masked_scatter, [x, truth(3, 4), real(12)])
    yield Case("where", lambda c, x, y: paddle.where(c, x, y), [truth(3, 4), x, real(3, 4, low=0)])
    yield Case("nonzero", paddle.nonzero, [truth(3, 4)], False)
    yield Case("bool index", lambda x, m: x[m], [x, truth(3, 4)])
    yield Case("list index", lambda x, i: x[i], [x, index])
    yield Case("list index put", lambda x, i: _put(x, i, 2.0), [x, index])
    yield Case("mask index put", lambda x, m: _put(x, m, 2.0), [x, truth(3, 4)])


def _with_value(x: Any, value: Any) -> Any:
    y = x + 0
    y[1] = value
    y[:, 1:3] = 2.0
    return y


def _put(x: Any, index: Any, value: Any) -> Any:
    y = x + 0
    y[index] = value
    return y


def _search() -> Iterator[Case]:
    import paddle

    x = real(3, 4)
    simple: dict[str, Callable[[Any], Any]] = {
        "argmax": lambda x: paddle.argmax(x, 1),
        "argmin": lambda x: paddle.argmin(x, 1),
        "argsort": lambda x: paddle.argsort(x, 1),
        "sort": lambda x: paddle.sort(x, 1, descending=True),
        "topk": lambda x: paddle.topk(x, 2),
        "kthvalue": lambda x: paddle.kthvalue(x, 2),
        "mode": lambda x: paddle.mode(paddle.round(x * 2)),
        "unique": lambda x: paddle.unique(paddle.round(x * 3), True, True, True),
        "unique_consecutive": lambda x: paddle.unique_consecutive(paddle.round(x), True, True),
        "searchsorted": lambda x: paddle.searchsorted(paddle.sort(x[0]), x),
        "bucketize": lambda x: paddle.bucketize(x, paddle.sort(x[0])),
        "histogram": lambda x: paddle.histogram(x, 5, -1, 1),
        "bincount": lambda x: paddle.bincount(paddle.to_tensor([1, 1, 3])),
        "histogramdd": lambda x: paddle.histogramdd(x[:, :2], 3),
        "quantile": lambda x: paddle.quantile(x, 0.3, 1),
        "accuracy": lambda x: paddle.metric.accuracy(x, paddle.to_tensor([[1], [2], [0]])),
        "one_hot": lambda x: paddle.nn.functional.one_hot(paddle.to_tensor([1, 2]), 4),
        "sequence_mask": lambda x: paddle.nn.functional.sequence_mask(paddle.to_tensor([1, 3]), 4),
        "auc": lambda x: paddle._C_ops.auc(
            paddle.nn.functional.softmax(x[:, :2]), paddle.to_tensor([[0], [1], [1]]),
            paddle.zeros([1, 100], "int64"), paddle.zeros([1, 100], "int64"), None, "ROC", 99, 0,
        )[0],
        "edit_distance": lambda x: paddle.nn.functional.loss.edit_distance(
            paddle.to_tensor([[1, 2, 3]]), paddle.to_tensor([[1, 3, 3]]),
            input_length=paddle.to_tensor([3]), label_length=paddle.to_tensor([3]),
        ),
        "gather_tree": lambda x: paddle.nn.functional.gather_tree(
            paddle.to_tensor([[[2, 2]], [[3, 9]]]), paddle.to_tensor([[[0, 0]], [[1, 1]]])
        ),
        "viterbi": lambda x: paddle.text.viterbi_decode(
            x.reshape([1, 3, 4]), paddle.ones([4, 4]), paddle.to_tensor([3]), False
        ),
    }  # fmt: skip
    for name, call in simple.items():
        yield Case(name, call, [x], name in ("argsort", "sort", "topk", "kthvalue", "mode"))


def _creation() -> Iterator[Case]:
    import paddle

    calls: dict[str, Callable[[], Any]] = {
        "zeros": lambda: paddle.zeros([2, 3]),
        "full": lambda: paddle.full([2], 3.0),
        "full tensor": lambda: paddle.full(paddle.to_tensor([2, 3]), paddle.to_tensor(2.0)),
        "full_like": lambda: paddle.full_like(paddle.ones([2]), 3),
        "arange": lambda: paddle.arange(5),
        "arange tensor": lambda: paddle.arange(paddle.to_tensor(0), paddle.to_tensor(5), paddle.to_tensor(2)),
        "linspace": lambda: paddle.linspace(0, 1, 5),
        "logspace": lambda: paddle.logspace(0, 1, 5),
        "eye": lambda: paddle.eye(3),
        "tril_indices": lambda: paddle.tril_indices(3, 3, 0),
        "triu_indices": lambda: paddle.triu_indices(3, 3, 0),
        "empty": lambda: paddle.empty([2]).shape,
        "empty_like": lambda: paddle.empty_like(paddle.ones([2])).shape,
        "uniform": lambda: paddle.uniform([8]),
        "uniform_": lambda: paddle.ones([8]).uniform_(),
        "normal": lambda: paddle.randn([8]),
        "normal_": lambda: paddle.ones([8]).normal_(),
        "standard_gamma": lambda: paddle.standard_gamma(paddle.ones([8])),
        "randint": lambda: paddle.randint(0, 9, [8]),
        "randperm": lambda: paddle.randperm(8),
        "random_": lambda: paddle.ones([8]).random_(0, 5),
        "bernoulli": lambda: paddle.bernoulli(paddle.full([8], 0.5)),
        "binomial": lambda: paddle.binomial(paddle.to_tensor([5, 6]), paddle.to_tensor([0.5, 0.5])),
        "poisson": lambda: paddle.poisson(paddle.full([8], 2.0)),
        "multinomial": lambda: paddle.multinomial(paddle.to_tensor([0.2, 0.3, 0.5]), 2),
        "exponential": lambda: paddle.ones([8]).exponential_(),
        "cauchy": lambda: paddle.ones([8]).cauchy_(),
        "geometric": lambda: paddle.ones([8]).geometric_(0.5),
        "dirichlet": lambda: paddle.distribution.Dirichlet(paddle.to_tensor([1.0, 2.0])).sample([3]),
        "truncated": lambda: paddle._C_ops.truncated_gaussian_random(
            [8], 0.0, 1.0, 0, -2.0, 2.0, paddle.float32, paddle.framework._current_expected_place()
        ),
        "assign_value": lambda: paddle.assign(np.array([1.0, 2.0], "float32")),
        "dropout": lambda: paddle.nn.functional.dropout(paddle.ones([4, 8]), 0.5),
        "dropout axis": lambda: paddle.nn.functional.dropout(paddle.ones([4, 8]), 0.5, axis=0),
        "alpha_dropout": lambda: paddle.nn.functional.alpha_dropout(paddle.ones([8]), 0.5),
        # These two take no seed on the CPU either: only what doesn't depend on chance is compared.
        "class_center_sample": lambda: paddle.nn.functional.class_center_sample(
            paddle.to_tensor([1, 3, 5]), 20, 6
        )[0],
        "shuffle_batch": lambda: paddle.sort(paddle._C_ops.shuffle_batch(
            paddle.arange(4).astype("float32").reshape([4, 1]), paddle.to_tensor([1]), 3
        )[0].reshape([4])),
    }  # fmt: skip
    for name, call in calls.items():
        yield Case(name, call, [], False)


def _linear_algebra() -> Iterator[Case]:
    import paddle

    L, s, x = paddle.linalg, positive(4), real(4, 4)
    loose = 1e-4
    yield Case("cholesky", L.cholesky, [s], tolerance=loose)
    yield Case(
        "cholesky_solve", lambda b, s: L.cholesky_solve(b, L.cholesky(s)), [x, s], tolerance=loose
    )
    yield Case(
        "cholesky_inverse", lambda s: L.cholesky_inverse(L.cholesky(s)), [s], tolerance=loose
    )
    yield Case("inverse", L.inv, [s], tolerance=loose)
    yield Case("det", L.det, [s], tolerance=1e-3)
    yield Case("slogdet", L.slogdet, [s], tolerance=loose)
    yield Case("solve", L.solve, [s, x], tolerance=loose)
    yield Case("triangular_solve", lambda s, x: L.triangular_solve(paddle.tril(s), x, False), [s, x],
               tolerance=loose)  # fmt: skip
    yield Case("qr", L.qr, [s], tolerance=1e-3)
    yield Case("svd", lambda x: L.svd(x)[1], [x], tolerance=1e-3)
    yield Case("svdvals", L.svdvals, [x], False, loose)
    yield Case("eigh", lambda s: L.eigh(s)[0], [s], tolerance=1e-3)
    yield Case("eigvalsh", L.eigvalsh, [s], tolerance=1e-3)
    yield Case("eig", lambda s: paddle.sort(paddle.real(L.eig(s)[0])), [s], False, 1e-3)
    yield Case("eigvals", L.eigvals, [s], False, 1e-3)
    yield Case("lu", lambda s: L.lu(s)[0], [s], tolerance=loose)
    yield Case("lu_unpack", lambda s: L.lu_unpack(*L.lu(s)), [s], tolerance=loose)
    yield Case("lu_solve", lambda b, s: L.lu_solve(b, *L.lu(s)), [x, s], False, loose)
    yield Case("lstsq", lambda s, x: L.lstsq(s, x, driver="gelsd")[0], [s, x], False, 1e-3)
    yield Case("matrix_power", lambda x: L.matrix_power(x, 3), [x], tolerance=loose)
    yield Case("matrix_rank", L.matrix_rank, [s], False)
    yield Case("matrix_rank tol", lambda s: L.matrix_rank(s, tol=0.1), [s], False)
    yield Case("matrix_rank tolerances", lambda s: L.matrix_rank(s, atol=0.1, rtol=0.1), [s], False)
    yield Case("pinv", L.pinv, [s], tolerance=1e-3)
    yield Case("cond", L.cond, [s], False, 1e-2)
    yield Case("cov", L.cov, [x], tolerance=loose)
    yield Case(
        "householder", lambda x: L.householder_product(x, x[0]), [real(4, 4)], tolerance=loose
    )
    for name in ("fft", "rfft", "hfft"):
        yield Case(name, getattr(paddle.fft, name), [real(3, 8)], tolerance=loose)
    yield Case(
        "irfft", lambda x: paddle.fft.irfft(paddle.fft.rfft(x)), [real(3, 8)], tolerance=loose
    )
    yield Case("stft", lambda x: paddle.signal.stft(x, 16), [real(1, 64)], tolerance=loose)
    yield Case("istft", lambda x: paddle.signal.istft(paddle.signal.stft(x, 16), 16), [real(1, 64)],
               tolerance=loose)  # fmt: skip


def _layers() -> Iterator[Case]:
    import paddle.nn.functional as F

    image, volume, text = real(2, 4, 8, 8), real(1, 2, 4, 4, 4), real(2, 4, 8)
    loose = 1e-4
    yield Case("conv1d", F.conv1d, [text, real(3, 4, 3)], tolerance=loose)
    yield Case(
        "conv2d", lambda x, w: F.conv2d(x, w, padding=1), [image, real(6, 4, 3, 3)], tolerance=loose
    )
    yield Case("conv2d 1x1", F.conv2d, [image, real(6, 4, 1, 1)], tolerance=loose)
    yield Case("conv2d grouped", lambda x, w: F.conv2d(x, w, stride=2, groups=2),
               [image, real(6, 2, 3, 3)], tolerance=loose)  # fmt: skip
    yield Case("conv2d same", lambda x, w: F.conv2d(x, w, padding="same"), [image, real(6, 4, 3, 3)],
               tolerance=loose)  # fmt: skip
    yield Case("conv2d uneven", lambda x, w: F.conv2d(x, w, padding=[1, 0, 2, 1], dilation=2),
               [image, real(6, 4, 3, 3)], tolerance=loose)  # fmt: skip
    yield Case("conv2d channels last", lambda x, w: F.conv2d(x, w, data_format="NHWC"),
               [real(2, 8, 8, 4), real(6, 4, 3, 3)], tolerance=loose)  # fmt: skip
    yield Case("depthwise conv2d", lambda x, w: F.conv2d(x, w, groups=4, dilation=[2, 1]),
               [image, real(4, 1, 3, 3)], tolerance=loose)  # fmt: skip
    yield Case("conv3d", F.conv3d, [volume, real(3, 2, 2, 2, 2)], tolerance=loose)
    yield Case("conv2d_transpose", F.conv2d_transpose, [image, real(4, 3, 3, 3)], tolerance=loose)
    yield Case("depthwise conv2d_transpose", lambda x, w: F.conv2d_transpose(x, w, groups=4),
               [image, real(4, 1, 3, 3)], tolerance=loose)  # fmt: skip
    yield Case(
        "conv3d_transpose", F.conv3d_transpose, [volume, real(2, 3, 2, 2, 2)], tolerance=loose
    )
    yield Case("deform_conv2d", lambda x, o, w: __import__("paddle").vision.ops.deform_conv2d(x, o, w),
               [image, real(2, 18, 6, 6), real(3, 4, 3, 3)], tolerance=loose)  # fmt: skip
    yield Case("linear", F.linear, [real(3, 4), real(4, 5), real(5)])
    yield Case("bilinear", F.bilinear, [real(3, 4), real(3, 5), real(2, 4, 5)])
    yield Case("embedding", F.embedding, [whole(3, 2, high=5), real(5, 4)])
    pools: dict[str, Callable[[Any], Any]] = {
        "max_pool2d": lambda x: F.max_pool2d(x, 2),
        "max_pool2d padded": lambda x: F.max_pool2d(x, 3, 2, 1),
        "max_pool2d mask": lambda x: F.max_pool2d(x, 2, return_mask=True),
        "avg_pool2d": lambda x: F.avg_pool2d(x, 3, 2, 1),
        "lp_pool2d": lambda x: F.lp_pool2d(x, 2.0, 2),
        "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 3),
        "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 3),
        "fractional_max_pool2d": lambda x: F.fractional_max_pool2d(x, 3, random_u=0.3),
        "max_unpool2d": lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_mask=True), 2),
        "interpolate nearest": lambda x: F.interpolate(x, scale_factor=2),
        "interpolate bilinear": lambda x: F.interpolate(x, [5, 7], mode="bilinear"),
        "interpolate bicubic": lambda x: F.interpolate(x, [5, 7], mode="bicubic"),
        "local_response_norm": lambda x: F.local_response_norm(x, 3),
        "zeropad2d": lambda x: F.zeropad2d(x, [1, 1, 1, 1]),
        "lrn": lambda x: F.local_response_norm(x, 5),
    }
    for name, call in pools.items():
        yield Case(name, call, [image], tolerance=loose)
    volumes: dict[str, Callable[[Any], Any]] = {
        "max_pool3d": lambda x: F.max_pool3d(x, 2),
        "max_pool3d mask": lambda x: F.max_pool3d(x, 2, return_mask=True),
        "avg_pool3d": lambda x: F.avg_pool3d(x, 2),
        "fractional_max_pool3d": lambda x: F.fractional_max_pool3d(x, 2, random_u=0.3),
        "max_unpool3d": lambda x: F.max_unpool3d(*F.max_pool3d(x, 2, return_mask=True), 2),
        "interpolate trilinear": lambda x: F.interpolate(x, [3, 5, 6], mode="trilinear",
                                                         data_format="NCDHW"),
    }  # fmt: skip
    for name, call in volumes.items():
        yield Case(name, call, [volume], tolerance=loose)
    yield Case("interpolate linear",
               lambda x: F.interpolate(x, [5], mode="linear", data_format="NCW"), [text])  # fmt: skip
    yield Case("grid_sample", F.grid_sample, [image, real(2, 3, 3, 2)], tolerance=loose)
    yield Case("affine_grid", lambda t: F.affine_grid(t, [2, 3, 4, 4]), [real(2, 2, 3)])
    yield Case("affine_channel", lambda x, s, b: __import__("paddle")._C_ops.affine_channel(x, s, b, "NCHW"),
               [image, real(4), real(4, low=0)])  # fmt: skip
    yield Case("batch_norm training",
               lambda x, m, v, w, b: F.batch_norm(x, m.detach(), v.detach(), w, b, training=True),
               [image, real(4), real(4, low=0.5), real(4, low=0), real(4, low=-2)], tolerance=loose)  # fmt: skip
    yield Case("batch_norm", lambda x, m, v: F.batch_norm(x, m, v), [image, real(4), real(4, low=0.5)],
               False)  # fmt: skip
    yield Case("layer_norm", lambda x, w, b: F.layer_norm(x, [8], w, b), [text, real(8), real(8, low=0)],
               tolerance=loose)  # fmt: skip
    yield Case("group_norm", lambda x: F.group_norm(x, 2), [image], tolerance=loose)
    yield Case("instance_norm", F.instance_norm, [image], tolerance=loose)
    yield Case("normalize", F.normalize, [text])
    yield Case("spectral_norm", lambda w: __import__("paddle").nn.SpectralNorm(w.shape)(w), [real(4, 3)],
               tolerance=loose)  # fmt: skip
    yield Case("weight_norm", lambda x: F.normalize(x, p=3), [text], tolerance=loose)
    yield Case("attention", lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
               [real(2, 5, 2, 8)], tolerance=loose)  # fmt: skip
    yield Case("softmax_mask_fuse", lambda x, m: __import__("paddle").incubate.softmax_mask_fuse(x, m),
               [real(1, 1, 8, 32), real(1, 1, 8, 32, low=0)], tolerance=loose)  # fmt: skip
    for name in ("LSTM", "GRU", "SimpleRNN"):
        yield Case(name, lambda x, n=name: getattr(__import__("paddle").nn, n)(8, 5, 2)(x)[0], [text],
                   tolerance=loose)  # fmt: skip


def _losses() -> Iterator[Case]:
    import paddle
    import paddle.nn.functional as F

    x, y, label = real(4, 6), real(4, 6, low=0.1, high=0.9), whole(4, high=6)
    yield Case("cross_entropy", F.cross_entropy, [x, label])
    yield Case(
        "cross_entropy soft",
        lambda x, y: F.cross_entropy(x, F.softmax(y.detach()), soft_label=True),
        [x, y],
    )
    yield Case("nll_loss", lambda x, i: F.nll_loss(F.log_softmax(x), i), [x, label])
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "square_error_cost"):
        yield Case(name, getattr(F, name), [x, y])
    yield Case("huber", lambda x, y: F.smooth_l1_loss(x, y, delta=0.3), [x, y])
    yield Case("kl_div", lambda x, y: F.kl_div(F.log_softmax(x), y.detach()), [x, y])
    yield Case("bce", lambda x, y: F.binary_cross_entropy(F.sigmoid(x), y.detach()), [x, y])
    yield Case("bce logits", lambda x, y: F.binary_cross_entropy_with_logits(x, y.detach()), [x, y])
    yield Case("log_loss", lambda x, y: F.log_loss(x, y.detach()), [y[:, :1], y[:, 1:2]])
    yield Case("hinge_embedding", lambda x: F.hinge_embedding_loss(x, paddle.sign(x.detach())), [x])
    yield Case(
        "hinge_loss",
        lambda x, i: paddle._C_ops.hinge_loss(x, i),
        [x[:, :1], np.ones((4, 1), "float32")],
    )
    yield Case(
        "margin_ranking", lambda x, y: F.margin_ranking_loss(x, y, paddle.sign(x.detach())), [x, y]
    )
    yield Case("cosine_similarity", F.cosine_similarity, [x, y])
    yield Case("label_smooth", F.label_smooth, [y])
    yield Case(
        "sigmoid_focal_loss", lambda x, y: F.sigmoid_focal_loss(x, paddle.round(y.detach())), [x, y]
    )
    yield Case("dice_loss", lambda y, i: F.dice_loss(y, i), [y, whole(4, 1, high=6)])
    yield Case("npair", lambda x, y: F.npair_loss(x, y, paddle.to_tensor([0, 1, 2, 3])), [x, y])
    yield Case("hsigmoid", lambda x, w, i: F.hsigmoid_loss(x, i, 6, w), [x, real(5, 6), whole(4, 1, high=6)],
               tolerance=1e-4)  # fmt: skip
    yield Case("ctc", lambda x: F.ctc_loss(x, *map(paddle.to_tensor, _ctc_labels())), [real(5, 2, 6)],
               tolerance=1e-4)  # fmt: skip
    yield Case("rnnt", lambda x: F.rnnt_loss(x, *map(paddle.to_tensor, _rnnt_labels()), fastemit_lambda=0.0),
               [real(1, 3, 3, 4)], tolerance=1e-4)  # fmt: skip
    yield Case("identity_loss", lambda x: paddle.incubate.identity_loss(x, 1), [x])


def _ctc_labels() -> tuple[np.ndarray, ...]:
    return np.array([[1, 2], [2, 3]], "int32"), np.array([5, 5]), np.array([2, 2])


def _rnnt_labels() -> tuple[np.ndarray, ...]:
    return np.array([[1, 2]], "int32"), np.array([3], "int32"), np.array([2], "int32")


def _vision() -> Iterator[Case]:
    import paddle
    import paddle.vision.ops as V

    image = real(1, 4, 8, 8)
    boxes = np.array([[0, 0, 4, 4], [1, 1, 5, 6]], "float32")
    count = np.array([2], "int32")
    yield Case("nms", lambda b: V.nms(b, 0.5), [boxes], False)
    yield Case(
        "roi_align", lambda x: V.roi_align(x, *map(paddle.to_tensor, (boxes, count)), 2), [image]
    )
    yield Case(
        "roi_pool", lambda x: V.roi_pool(x, *map(paddle.to_tensor, (boxes, count)), 2), [image]
    )
    yield Case(
        "psroi_pool",
        lambda x: V.psroi_pool(x, *map(paddle.to_tensor, (boxes, count)), 2),
        [real(1, 8, 8, 8)],
    )
    yield Case("yolo_box", lambda x: V.yolo_box(x, paddle.to_tensor([[64, 64]], dtype="int32"), [10, 13], 2, 0.01, 8),
               [real(1, 7, 4, 4)], False)  # fmt: skip
    yield Case("yolo_loss", lambda x: V.yolo_loss(
        x, paddle.to_tensor([[[0.5, 0.5, 0.3, 0.3]]]), paddle.to_tensor([[1]], dtype="int32"),
        [10, 13], [0], 2, 0.5, 8), [real(1, 7, 4, 4)], tolerance=1e-4)  # fmt: skip
    yield Case(
        "prior_box", lambda x: V.prior_box(x, paddle.ones([1, 3, 32, 32]), [4.0]), [image], False
    )
    yield Case("box_coder", lambda b: V.box_coder(b, [0.1, 0.1, 0.2, 0.2], b), [boxes], False)
    yield Case("matrix_nms", lambda b, s: V.matrix_nms(b, s, 0.01, 0.0, 2, 2),
               [boxes[None], real(1, 3, 2, low=0)], False)  # fmt: skip
    yield Case("generate_proposals", lambda s, d: V.generate_proposals(
        s, d, paddle.to_tensor([[32.0, 32.0]]), paddle.rand([4, 4, 1, 4]) * 10, paddle.ones([4, 4, 1, 4]), return_rois_num=True),
        [real(1, 1, 4, 4, low=0), real(1, 4, 4, 4)], False)  # fmt: skip
    yield Case("distribute_fpn_proposals",
               lambda b: V.distribute_fpn_proposals(b, 2, 5, 4, 224, rois_num=paddle.to_tensor(count)), [boxes * 40],
               False)  # fmt: skip
    yield Case("multiclass_nms3", lambda b, s: paddle._C_ops.multiclass_nms3(
        b, s, None, 0.01, 4, 4, 0.5, True, 1.0, 0), [boxes[None], real(1, 3, 2, low=0)], False)  # fmt: skip
    yield Case("send_u_recv", lambda x: paddle.geometric.send_u_recv(
        x, *map(paddle.to_tensor, ([0, 1, 2], [1, 2, 0]))), [real(3, 4)])  # fmt: skip
    yield Case("send_ue_recv", lambda x, e: paddle.geometric.send_ue_recv(
        x, e, *map(paddle.to_tensor, ([0, 1, 2], [1, 2, 0]))), [real(3, 4), real(3, 4, low=0)])  # fmt: skip
    yield Case("send_uv", lambda x, y: paddle.geometric.send_uv(
        x, y, *map(paddle.to_tensor, ([0, 1, 2], [1, 2, 0]))), [real(3, 4), real(3, 4, low=0)])  # fmt: skip
    for way in ("sum", "mean", "min", "max"):
        yield Case(f"segment_{way}", lambda x, w=way: getattr(paddle.geometric, f"segment_{w}")(
            x, paddle.to_tensor([0, 0, 1])), [real(3, 4)])  # fmt: skip
    yield Case("reindex_graph", lambda: paddle.geometric.reindex_graph(*map(paddle.to_tensor, (
        [0, 1], [8, 9, 0], np.array([2, 1], "int32")))), [], False)  # fmt: skip


def _optimizers() -> Iterator[Case]:
    import paddle

    names = "SGD Momentum Adam AdamW Adamax RMSProp Lamb Adagrad Adadelta NAdam RAdam Rprop ASGD"
    for name in names.split():
        make = getattr(paddle.optimizer, name)
        yield Case(f"optimizer {name}", lambda x, m=make: _train(x, m), [real(3, 4)], False)
    for name in ("SGD", "Adam", "Momentum", "Adagrad", "RMSProp", "Lamb"):
        make = getattr(paddle.optimizer, name)
        yield Case(f"sparse {name}", lambda m=make: _train_embedding(m), [], False)
    yield Case("clip global norm", lambda x: _train(x, paddle.optimizer.SGD, paddle.nn.ClipGradByGlobalNorm(0.1)),
               [real(3, 4)], False)  # fmt: skip
    yield Case("clip norm", lambda x: _train(x, paddle.optimizer.SGD, paddle.nn.ClipGradByNorm(0.1)),
               [real(3, 4)], False)  # fmt: skip
    yield Case("clip value", lambda x: _train(x, paddle.optimizer.SGD, paddle.nn.ClipGradByValue(0.1)),
               [real(3, 4)], False)  # fmt: skip
    yield Case("merged momentum", lambda x: _train(x, paddle.optimizer.Momentum, None, use_multi_tensor=True),
               [real(3, 4)], False)  # fmt: skip
    yield Case("merged adam", lambda x: _train(x, paddle.optimizer.Adam, None, use_multi_tensor=True),
               [real(3, 4)], False)  # fmt: skip
    yield Case("model average", _average, [real(3, 4)], False)
    yield Case("scaler", lambda x: paddle._C_ops.check_finite_and_unscale_([x + 0], paddle.to_tensor([2.0])),
               [real(3, 4)], False)  # fmt: skip
    yield Case("update_loss_scaling", lambda x: paddle._C_ops.update_loss_scaling_(
        [x + 0], paddle.to_tensor([False]), paddle.to_tensor([2.0]), paddle.to_tensor([1], dtype="int32"),
        paddle.to_tensor([1], dtype="int32"), 2, 2, 2.0, 0.5, False), [real(3, 4)], False)  # fmt: skip


def _linear(clip: Any = None) -> Any:
    import paddle

    layer = paddle.nn.Linear(4, 2)
    layer.weight.set_value(real(4, 2))
    return layer


def _train(x: Any, make: Any, clip: Any = None, **more: Any) -> list[Any]:
    layer = _linear()
    optimizer = make(0.01, parameters=layer.parameters(), grad_clip=clip, **more)
    for _ in range(3):
        (layer(x) ** 2).mean().backward()
        optimizer.step()
        optimizer.clear_grad()
    return list(layer.parameters())


def _train_embedding(make: Any) -> Any:
    import paddle

    layer = paddle.nn.Embedding(10, 4, sparse=True)
    layer.weight.set_value(real(10, 4))
    optimizer = make(0.1, parameters=layer.parameters())
    for _ in range(2):
        (layer(paddle.to_tensor([1, 2, 2])) ** 2).sum().backward()
        optimizer.step()
        optimizer.clear_grad()
    return layer.weight


def _average(x: Any) -> list[Any]:
    import paddle

    layer = _linear()
    average = paddle.incubate.ModelAverage(0.15, parameters=layer.parameters(), min_average_window=1,
                                           max_average_window=4)  # fmt: skip
    optimizer = paddle.optimizer.SGD(0.1, parameters=layer.parameters())
    for _ in range(3):
        (layer(x) ** 2).mean().backward()
        optimizer.step()
        average.step()
        optimizer.clear_grad()
    with average.apply():
        return [p + 0 for p in layer.parameters()]


def _coo(x: Any) -> Any:
    return x.to_sparse_coo(2)


def _csr(x: Any) -> Any:
    return x.to_sparse_csr()


def _sparse() -> Iterator[Case]:
    import paddle

    S = paddle.sparse
    dense = (real(3, 4, low=0.1, high=0.9) * truth(3, 4)).astype("float32")
    other = (real(3, 4, low=0.2, high=0.8) * truth(3, 4)).astype("float32")
    for form, to in (("coo", _coo), ("csr", _csr)):
        for name in _SPARSE_UNARY.split():
            yield Case(
                f"sparse {name} {form}",
                lambda x, n=name, t=to: getattr(S, n)(t(x)).to_dense(),
                [dense],
            )
        for name in ("relu", "relu6", "leaky_relu", "softmax"):
            yield Case(f"sparse {name} {form}",
                       lambda x, n=name, t=to: getattr(S.nn.functional, n)(t(x)).to_dense(), [dense])  # fmt: skip
        for name in ("add", "subtract", "multiply", "divide"):
            yield Case(f"sparse {name} {form}",
                       lambda x, y, n=name, t=to: getattr(S, n)(t(x), t(y)).to_dense(), [dense, other],
                       name != "divide")  # fmt: skip
        yield Case(f"sparse pow {form}", lambda x, t=to: S.pow(t(x), 2).to_dense(), [dense])
        yield Case(
            f"sparse divide scalar {form}",
            lambda x, t=to: paddle._C_ops.sparse_divide_scalar(t(x), 2.0).to_dense(),
            [dense],
        )
        yield Case(
            f"sparse cast {form}",
            lambda x, t=to: S.cast(t(x), value_dtype="float64").to_dense(),
            [dense],
        )
        yield Case(f"sparse sum {form}", lambda x, t=to: S.sum(t(x), -1 if t is _csr else 0).to_dense(), [dense],
                   form == "coo")  # fmt: skip
        yield Case(
            f"sparse transpose {form}",
            lambda x, t=to: S.transpose(t(x), [1, 0]).to_dense(),
            [dense],
        )
        yield Case(
            f"sparse reshape {form}", lambda x, t=to: S.reshape(t(x), [4, 3]).to_dense(), [dense]
        )
        yield Case(
            f"sparse slice {form}",
            lambda x, t=to: S.slice(t(x), [0, 1], [0, 1], [2, 3]).to_dense(),
            [dense],
        )
        yield Case(f"sparse values {form}", lambda x, t=to: t(x).values(), [dense])
        yield Case(
            f"sparse mask_as {form}",
            lambda x, y, t=to: S.mask_as(x, t(y)).to_dense(),
            [real(3, 4), dense],
        )
    yield Case("sparse coalesce", lambda: S.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], [2, 2]).coalesce().values(),
               [], False)  # fmt: skip
    yield Case(
        "sparse coo_tensor",
        lambda v: S.sparse_coo_tensor([[0, 1], [1, 0]], v, [2, 2]).to_dense(),
        [real(2)],
    )
    yield Case("sparse indices", lambda x: _coo(x).indices(), [dense], False)
    yield Case("sparse coo to csr", lambda x: _coo(x).to_sparse_csr().to_dense(), [dense], False)
    yield Case("sparse csr to coo", lambda x: _csr(x).to_sparse_coo(2).to_dense(), [dense], False)
    voxels = np.zeros((1, 4, 4, 4, 2), "float32")
    voxels[0, 1:3, 1:3, 1] = real(2, 2, 2, low=0.5)
    yield Case("sparse conv3d", lambda x, w: S.nn.functional.conv3d(x.to_sparse_coo(4), w).to_dense(),
               [voxels, real(2, 2, 2, 2, 3)], tolerance=1e-4)  # fmt: skip
    yield Case("sparse subm_conv3d", lambda x, w: S.nn.functional.subm_conv3d(x.to_sparse_coo(4), w).to_dense(),
               [voxels, real(3, 3, 3, 2, 3)], tolerance=1e-4)  # fmt: skip
    yield Case(
        "sparse max_pool3d",
        lambda x: S.nn.functional.max_pool3d(x.to_sparse_coo(4), 2).to_dense(),
        [voxels],
    )
    yield Case("sparse batch_norm", lambda x: S.nn.BatchNorm(2)(x.to_sparse_coo(4)).to_dense(), [voxels],
               tolerance=1e-4)  # fmt: skip


# Ops that have no function of their own in Paddle's API, by their internal interface.
def _direct() -> Iterator[Case]:
    import paddle

    ops = paddle._C_ops
    x, y, above = real(3, 4), real(3, 4, low=0), real(3, 4, low=0.5, high=2)
    image, place = real(2, 4, 8, 8), paddle.CPUPlace()
    ints = [whole(3, 4, low=1, high=9), whole(3, 4, low=1, high=4)]
    boxes = np.array([[[0, 0, 4, 40], [1, 1, 5, 6]]], "float32")
    calls: dict[str, tuple[Callable[..., Any], list[Any]]] = {
        "l1_norm": (ops.l1_norm, [x]),
        "rint": (ops.rint, [x]),
        "trunc_divide": (ops.trunc_divide, ints),
        "norm": (lambda x: ops.norm(x, 1, 1e-10, False), [x]),
        "reverse": (lambda x: ops.reverse(x, [0]), [x]),
        "index_select_strided": (lambda x: ops.index_select_strided(x, 1, 0) * 2, [x]),
        "nansum": (lambda x: ops.nansum(x, [1], paddle.float32, False), [x]),
        "full_with_tensor": (lambda v: ops.full_with_tensor(v, [2, 3], paddle.float32), [real(1)]),
        "full_batch_size_like": (
            lambda x: ops.full_batch_size_like(x, [1, 2], paddle.float32, 2.0, 0, 0, place), [x]),
        "embedding_with_scaled_gradient": (
            lambda i, w: ops.embedding_with_scaled_gradient(i, w, -1), [whole(3, 2), real(5, 4)]),
        "shuffle_channel": (lambda x: ops.shuffle_channel(x, 2), [image]),
        "linear_v2": (lambda x, w, b: ops.linear_v2(x, w, b, False), [x, real(4, 5), real(5)]),
        "view_slice": (lambda x: ops.view_slice(x, 0, 2) * 2, [x]),
        "gammaincc": (ops.gammaincc, [above, above + 1]),
        "svdvals": (ops.svdvals, [real(4, 4)]),
        "slogdet_v2": (ops.slogdet_v2, [positive(4)]),
        "lu_solve": (lambda b, s: ops.lu_solve(b, *paddle.linalg.lu(s.detach()), "N"),
                     [real(4, 4), positive(4)]),
        "shape": (ops.shape, [x]),
        "collect_fpn_proposals": (lambda b, s: ops.collect_fpn_proposals(
            [b], [s], [paddle.to_tensor([2], dtype="int32")], 2),
            [boxes[0], real(2, 1, low=0)]),
        "accuracy_check": (lambda x: ops.accuracy_check(x, x, "x", 1e-5, 1e-8, False), [x]),
        "clip_by_norm": (lambda x: ops.clip_by_norm(x, 0.5), [x]),
        "check_numerics": (lambda x: ops.check_numerics(x, "op", "x", 0, -1, ""), [x]),
        "partial_concat": (lambda x, y: ops.partial_concat([x, y], 1, 2), [x, y]),
        "partial_sum": (lambda x, y: ops.partial_sum([x, y], 1, 2), [x, y]),
        "add_position_encoding": (lambda x: ops.add_position_encoding(x, 1.0, 1.0), [real(2, 3, 4)]),
        "ctc_align": (lambda i, n: ops.ctc_align(i, n, 0, True, 0),
                      [whole(2, 4, high=3, kind="int32"), np.array([[4], [3]], "int32")]),
        "crf_decoding": (lambda e, t, n: ops.crf_decoding(e, t, None, n),
                         [real(1, 3, 4), real(6, 4), np.array([3])]),
        "cvm": (lambda x, c: ops.cvm(x, c, True), [above, above[:, :2]]),
        "im2sequence": (lambda x: ops.im2sequence(x, None, [2, 2], [1, 1], [0, 0, 0, 0], [1, 1]), [image]),
        "bipartite_match": (lambda d: ops.bipartite_match(d, "bipartite", 0.5), [y]),
        "fake_quantize_abs_max": (lambda x: ops.fake_quantize_abs_max(x, 8, 1), [x]),
        "fake_quantize_dequantize_abs_max": (
            lambda x: ops.fake_quantize_dequantize_abs_max(x, 8, 1), [x]),
        "fake_channel_wise_quantize_abs_max": (
            lambda x: ops.fake_channel_wise_quantize_abs_max(x, 8, 1, 0, False), [x]),
        "fake_channel_wise_quantize_dequantize_abs_max": (
            lambda x: ops.fake_channel_wise_quantize_dequantize_abs_max(x, 8, 1, 0), [x]),
        "fake_dequantize_max_abs": (lambda x, s: ops.fake_dequantize_max_abs(x, s, 127.0),
                                    [x, real(1, low=0.5)]),
        "npu_identity": (lambda x: ops.npu_identity(x, -1), [x]),
        "merge_selected_rows": (lambda: _train_embedding(paddle.optimizer.Adagrad), []),
        "ftrl": (lambda p, g, a: ops.ftrl(p + 0, a + 0, a + 1, g, paddle.to_tensor([0.1]), 0.1, 0.1, -0.5),
                 [x, y, above]),
        "decayed_adagrad": (lambda p, g, a: ops.decayed_adagrad(
            p + 0, g, a + 0, paddle.to_tensor([0.1]), 0.95, 1e-6), [x, y, above]),
        "fused_softmax_mask": (ops.fused_softmax_mask, [real(1, 1, 8, 32), real(1, 1, 8, 32, low=0)]),
        "remainder": (paddle.remainder, [x, above]),
        "poisson": (paddle.poisson, [above]),
        "fft complex": (lambda x: paddle.fft.fft(paddle.complex(x, x)), [real(3, 8)]),
        "eig": (lambda s: paddle.linalg.eig(s)[0], [positive(3)]),
        "dropout gradient": (lambda x: paddle.nn.functional.dropout(x, 0.5), [x]),
        "dropout_nd": (lambda x: ops.dropout(x, None, 0.5, False, "upscale_in_train", 1, True), [x]),
        "view_dtype": (lambda x: x.view("int32").view("float32") * 2, [x]),
        "uniform_ gradient": (lambda x: (x * 1).uniform_(), [x]),
        "normal_ gradient": (lambda x: (x * 1).normal_(), [x]),
        "random_ gradient": (lambda x: (x * 1).random_(0, 5), [x]),
    }  # fmt: skip
    for name, (call, inputs) in calls.items():
        yield Case(f"op {name}", call, inputs, name not in ("ftrl", "decayed_adagrad"), 1e-4)
    for name in ("LSTM", "GRU", "SimpleRNN"):
        yield Case(
            f"{name} training",
            lambda x, n=name: _train_recurrent(x, n),
            [real(2, 4, 8)],
            False,
            1e-4,
        )
    dense = (real(3, 4, low=0.1, high=0.9) * truth(3, 4)).astype("float32")
    for name in _SPARSE_UNARY.split():
        if name not in ("isnan", "neg", "deg2rad"):
            yield Case(f"csr gradient {name}",
                       lambda x, n=name: _csr_gradient(x, getattr(paddle.sparse, n)), [dense], False)  # fmt: skip
    of_csr: dict[str, Callable[[Any], Any]] = {
        "relu": paddle.sparse.nn.functional.relu,
        "relu6": paddle.sparse.nn.functional.relu6,
        "leaky_relu": paddle.sparse.nn.functional.leaky_relu,
        "softmax": paddle.sparse.nn.functional.softmax,
        "pow": lambda s: paddle.sparse.pow(s, 2),
        "cast": lambda s: paddle.sparse.cast(s, value_dtype="float64"),
        "transpose": lambda s: paddle.sparse.transpose(s, [1, 0]),
        "reshape": lambda s: paddle.sparse.reshape(s, [4, 3]),
        "slice": lambda s: paddle.sparse.slice(s, [0, 1], [0, 1], [2, 3]),
        "sum": lambda s: paddle.sparse.sum(s, -1),
    }
    for name, call in of_csr.items():
        yield Case(f"csr gradient {name}", lambda x, c=call: _csr_gradient(x, c), [dense], False)


def _csr_gradient(x: Any, call: Callable[[Any], Any]) -> list[Any]:
    """to_sparse_csr passes no gradients on, so they are taken at the sparse tensor itself."""
    leaf = x.detach().to_sparse_csr()
    leaf.stop_gradient = False
    result = call(leaf)
    result.backward(result.detach())
    return [result.to_dense(), leaf.grad.to_dense()]


def _train_recurrent(x: Any, name: str) -> list[Any]:
    import paddle

    layer = getattr(paddle.nn, name)(8, 5, 2)
    output, _ = layer(x)
    output.sum().backward()
    return [output, *(p.grad for p in layer.parameters())]


def all_cases() -> list[Case]:
    import op_cases_gradients

    kinds = (_elementwise, _arithmetic, _shapes, _search, _creation, _linear_algebra, _layers, _losses,
             _vision, _optimizers, _sparse, _direct)  # fmt: skip
    return [case for kind in kinds for case in kind()] + list(op_cases_gradients.cases())
