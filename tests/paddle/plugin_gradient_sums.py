"""Gradients that Paddle's autograd finishes without kernels: sums of sparse ones, real parts.

    python tests/paddle/plugin_gradient_sums.py DEVICE

Prints one line of JSON for each program: its name, the result's place and values. A program of its own,
as a mistake here ends the process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import paddle

_WEIGHTS = np.arange(40, dtype="float32").reshape(10, 4) / 40
_MATRIX = np.random.RandomState(0).uniform(0, 1, (3, 3)).astype("float32")
_COMPLEX = (_MATRIX.T + 1j * _MATRIX).astype("complex64")


def _at(layer: Any, *rows: int) -> Any:
    return layer(paddle.to_tensor(np.array(rows)))


#: Ways to use one embedding so that its gradients must be added.
USES: dict[str, Callable[[Any], Any]] = {
    "twice": lambda e: _at(e, 1, 2, 1).square().sum() + _at(e, 3, 1).sum(),
    "other rows": lambda e: _at(e, 1, 2).square().sum() + _at(e, 3, 4).sum(),
    "three times": lambda e: _at(e, 1, 2).sum() + _at(e, 3).square().sum() + _at(e, 2, 3).sum() * 3,
    "sparse, then dense": lambda e: paddle.matmul(_at(e, 1, 2, 1), e.weight.T).square().sum(),
    "dense, then sparse": lambda e: (e.weight * e.weight).sum() + _at(e, 1, 2, 1).square().sum(),
}
_OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "SGD": paddle.optimizer.SGD,
    "Momentum": paddle.optimizer.Momentum,
    "Adam": paddle.optimizer.Adam,
    "lazy Adam": lambda *a, **k: paddle.optimizer.Adam(*a, lazy_mode=True, **k),
    "Adagrad": paddle.optimizer.Adagrad,
}
_CLIPS: dict[str, Callable[[], Any]] = {
    "no clip": lambda: None,
    "clip by norm": lambda: paddle.nn.ClipGradByNorm(0.5),
    "clip by global norm": lambda: paddle.nn.ClipGradByGlobalNorm(0.5),
}
_REAL_OF_COMPLEX: dict[str, Callable[[Any, Any], Any]] = {
    "eig values": lambda a, b: paddle.linalg.eig(a)[0],
    "eig vectors": lambda a, b: paddle.linalg.eig(a)[1],
    "matmul": paddle.matmul,
    "kron": paddle.kron,
    "inner": paddle.inner,
    "tensordot": lambda a, b: paddle.tensordot(a, b, 1),
}


def _embedding(kind: str) -> Any:
    values = paddle.nn.initializer.Assign(_WEIGHTS)
    layer = paddle.nn.Embedding(
        10, 4, sparse=True, weight_attr=paddle.ParamAttr(initializer=values)
    )
    return layer.to(dtype=kind)


def _gradient(use: Callable[[Any], Any], kind: str) -> Any:
    layer = _embedding(kind)
    for _ in range(2):  # the second time adds to what the first left
        use(layer).backward()
    return layer.weight.grad


def _trained(use: Callable[[Any], Any], optimizer: str, clip: str) -> Any:
    layer = _embedding("float32")
    update = _OPTIMIZERS[optimizer](0.1, parameters=layer.parameters(), grad_clip=_CLIPS[clip]())
    for _ in range(2):
        use(layer).backward()
        update.step()
        update.clear_grad()
    return layer.weight


def _real_part(call: Callable[[Any, Any], Any], wide: bool) -> Any:
    real = paddle.to_tensor(_MATRIX.astype("float64") if wide else _MATRIX, stop_gradient=False)
    other = paddle.to_tensor(_COMPLEX.astype("complex128") if wide else _COMPLEX)
    call(real, other).abs().sum().backward()
    return real.grad


def programs() -> Iterator[tuple[str, Callable[[], Any]]]:
    for use, body in USES.items():
        for kind in ("float32", "float64"):
            yield f"{use}: gradient in {kind}", lambda b=body, k=kind: _gradient(b, k)
        for optimizer in _OPTIMIZERS:
            for clip in _CLIPS:
                name = f"{use}: {optimizer}, {clip}"
                yield name, lambda b=body, o=optimizer, c=clip: _trained(b, o, c)
    for name, call in _REAL_OF_COMPLEX.items():
        yield f"{name}: real part", lambda c=call: _real_part(c, False)
        yield f"{name}: real part in float64", lambda c=call: _real_part(c, True)


def main() -> None:
    paddle.set_device(sys.argv[1])
    for name, program in programs():
        result = program()
        row = [name, str(result.place), str(result.dtype), result.numpy().tolist()]
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
