"""Every op that Paddle's CPU has, on the plugin's device against the CPU.

    python tests/paddle/op_coverage.py [--write docs/conformance-paddle-ops.md] [--only TEXT] [--exact]

Cases are calls of Paddle's API on small inputs; each runs on both devices, gradients included, to
the highest order that the CPU has. Which kernels a case ran on the device is not written down but
read from the plugin's counters, so an op counts as tested only if its kernel really ran there.
"""

from __future__ import annotations

import argparse
import ctypes
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import op_cases
from op_reasons import reason_of

_MOST_ORDERS = 3
_SEED = 7


@dataclass
class Outcome:
    name: str
    kernels: frozenset[str] = frozenset()
    problem: str = ""


@dataclass
class Coverage:
    outcomes: list[Outcome] = field(default_factory=list)
    kernels: frozenset[str] = frozenset()

    @property
    def passed(self) -> set[str]:
        return {k for o in self.outcomes if not o.problem for k in o.kernels}

    @property
    def failed(self) -> set[str]:
        """Kernels of failed cases that no other case shows to be right."""
        return {k for o in self.outcomes if o.problem for k in o.kernels} - self.passed

    @property
    def untested(self) -> set[str]:
        return set(self.kernels) - self.passed - self.failed


class Counters:
    """The plugin's counters, read from the library that Paddle has loaded."""

    def __init__(self) -> None:
        maps = Path("/proc/self/maps").read_text()
        paths = sorted(
            set(re.findall(r"/\S*(?:softipu-paddle-kernels|paddle-custom-ipu)\S*\.so", maps))
        )
        for path in paths:
            self._read = getattr(ctypes.CDLL(path), "SoftipuKernelCounts", None)
            if self._read is not None:
                self._read.restype = ctypes.c_char_p
                return
        raise RuntimeError("the plugin's kernels are not loaded")

    def __call__(self) -> dict[str, tuple[int, int, int]]:
        """Calls by kernel: native, wrapped, and of both with casts."""
        lines = self._read().decode().splitlines()
        return {name: (int(n), int(w), int(c)) for name, n, w, c in map(str.split, lines)}

    def ran_since(self, before: dict[str, tuple[int, int, int]]) -> frozenset[str]:
        return frozenset(k for k, v in self().items() if v != before.get(k, (0, 0, 0)))


def flat(value: Any) -> Iterator[Any]:
    """Tensors and plain values of a nested result, in order."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from flat(item)
    elif isinstance(value, dict):
        yield from flat(list(value.values()))
    elif value is not None:
        yield value


def as_array(value: Any) -> Any:
    if hasattr(value, "is_sparse") and (value.is_sparse_coo() or value.is_sparse_csr()):
        value = value.to_dense()
    if hasattr(value, "numpy"):
        value = value.astype("float32") if str(value.dtype).endswith("bfloat16") else value
        return value.numpy()
    return np.asarray(value)


def _differentiable(tensors: list[Any]) -> list[Any]:
    return [
        t for t in tensors
        if hasattr(t, "stop_gradient") and not t.stop_gradient and t.is_floating_point()
    ]  # fmt: skip


def _gradients(outputs: list[Any], inputs: list[Any], orders: int) -> list[list[Any]]:
    """Gradients of the first order, the second, and so on."""
    import paddle

    found: list[list[Any]] = []
    wanted = _differentiable(inputs)
    current = _differentiable(outputs)
    for order in range(1, orders + 1):
        if not current or not wanted:
            break
        seeds = [paddle.cos(t.detach()) for t in current]
        current = paddle.grad(
            current, wanted, seeds, create_graph=order < orders, allow_unused=True
        )
        found.append(list(current))
        current = _differentiable([t for t in current if t is not None])
    return found


def run(case: op_cases.Case, device: str, orders: int) -> list[Any]:
    """All results of a case on one device: outputs, then gradients order by order."""
    import paddle

    paddle.set_device(device)
    paddle.seed(_SEED)
    inputs = [op_cases.tensor(a, orders > 0) for a in case.inputs]
    result = case.call(*inputs)
    outputs = list(flat(result))
    values = [as_array(v) for v in outputs]
    for gradients in _gradients(outputs, inputs, orders):
        values += [None if g is None else as_array(g) for g in gradients]
    return values


def run_on_cpu(case: op_cases.Case) -> tuple[list[Any], int]:
    """The results, and the highest order of gradients that the CPU has for the case."""
    for orders in range(_MOST_ORDERS if case.gradients else 0, 0, -1):
        try:
            return run(case, "cpu", orders), orders
        except (RuntimeError, ValueError, NotImplementedError) as error:
            if "grad" not in str(error) and "Hint: tensor should not be null" not in str(error):
                raise
    return run(case, "cpu", 0), 0


def _same(ours: Any, theirs: Any, tolerance: float) -> bool:
    if ours is None or theirs is None:
        return ours is None and theirs is None
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return False
    if ours.dtype.kind in "fc":
        return bool(np.allclose(ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True))
    return bool(np.array_equal(ours, theirs))


def differential(case: op_cases.Case, counters: Counters, exact: bool = False) -> Outcome:
    """Runs a case on both devices. What fails on the CPU itself is a wrong case: it raises."""
    tolerance = 0.0 if exact else case.tolerance
    theirs, orders = run_on_cpu(case)
    before = counters()
    try:
        ours = run(case, "ipu", orders)
    except Exception as error:  # noqa: BLE001  (whatever it is, it is the finding)
        first = str(error).strip().splitlines()
        what = next((line for line in reversed(first) if line.strip()), type(error).__name__)
        return Outcome(
            case.name, counters.ran_since(before), f"{type(error).__name__}: {what}"[:200]
        )
    ran = counters.ran_since(before)
    if len(ours) != len(theirs):
        return Outcome(case.name, ran, f"{len(ours)} results, CPU has {len(theirs)}")
    wrong = [
        i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if not _same(a, b, tolerance)
    ]
    return Outcome(case.name, ran, f"results {wrong} differ" if wrong else "")


def measure(only: str = "", exact: bool = False) -> Coverage:
    import paddle

    warnings.simplefilter("ignore")
    paddle.set_device("ipu")
    counters = Counters()
    coverage = Coverage(kernels=frozenset(counters()))
    for case in op_cases.all_cases():
        if only not in case.name:
            continue
        coverage.outcomes.append(differential(case, counters, exact))
    paddle.set_device("cpu")
    return coverage


def document(coverage: Coverage) -> str:
    passed, failed, untested = coverage.passed, coverage.failed, coverage.untested
    tested = len(passed) + len(failed)
    agreeing = sum(not o.problem for o in coverage.outcomes)
    lines = [
        "# Paddle's ops on the plugin's device",
        "",
        "Generated by `python tests/paddle/op_coverage.py --write docs/conformance-paddle-ops.md`.",
        "Each case runs on `ipu` and on the CPU, in dynamic graphs, with gradients to the highest",
        "order that the CPU has; an op counts when its kernel ran on `ipu` in a case whose results",
        "agree.",
        "",
        "| | |",
        "|---|---|",
        f"| kernels that Paddle's CPU has and `ipu` gets | {len(coverage.kernels)} |",
        f"| cases, of these equal to the CPU | {len(coverage.outcomes)}, {agreeing} |",
        f"| kernels tested | {tested} |",
        f"| of these, equal to the CPU | {len(passed)} ({100 * len(passed) / max(tested, 1):.1f} %) |",
        f"| not tested, with the reason | {len(untested)} |",
        "",
        "## Not equal",
        "",
    ]
    lines += [f"- `{o.name}`: {o.problem}" for o in coverage.outcomes if o.problem] or ["None."]
    lines += ["", "## Not tested", ""]
    reasons: dict[str, list[str]] = {}
    for kernel in sorted(untested):
        reasons.setdefault(reason_of(kernel), []).append(kernel)
    for reason, kernels in sorted(reasons.items()):
        lines += [f"- {reason} ({len(kernels)}): " + ", ".join(f"`{k}`" for k in kernels)]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Every op of Paddle's CPU on ipu, against the CPU")
    parser.add_argument("--write", type=Path, help="write the document here")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--exact", action="store_true", help="equal to the last bit")
    args = parser.parse_args()
    coverage = measure(args.only, args.exact)
    text = document(coverage)
    if args.write:
        args.write.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
