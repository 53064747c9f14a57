"""Single convolutions and matrix products that others measured, each beside the model's price.

No input of the prediction comes from these figures, so all of them are validations. Convolutions
are those of Jia et al. on a GC2 with SDK 1.0.49: forward, in half precision with sums in single,
timed on the chip. Products are those of the PopSparse paper's dense baseline, with PopLibs of 2023,
read off its figure to about 2 %; its benchmark counts cycles of compute and exchange, not of sync.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median

from softipu.graph import Op, Tensor
from softipu.machine import Settings
from softipu.machine.chip import machine
from softipu.machine.cost import Cost
from softipu.machine.multiply import convolution, matmul

_HERE = Path(__file__).parent
CONVOLUTIONS = (
    "Jia et al., arXiv:1912.03413, tables 5.3 and 5.5 (text in bojieli/ai-infra-book "
    "references/text/graphcore-microbench.txt)"
)
PRODUCTS = (
    "graphcore-research/sparsity-benchmarks analysis/Analysis.ipynb, figure dense_ipu_gpu; which "
    "chip is not stated there: Bow, as on a GC200 they would reach 97 % of the peak"
)


@dataclass(frozen=True)
class Single:
    """One multiplication: what it is, and its teraflops a second, measured and predicted."""

    #: Which of `KINDS` it is, the row and the column that it has in its table.
    kind: str
    row: str
    column: int
    figure: float
    predicted: float

    @property
    def ratio(self) -> float:
        return self.predicted / self.figure

    @property
    def error(self) -> float:
        return abs(self.ratio - 1)


#: Kinds of multiplications, in words, as tables and summaries have them.
DENSE, GROUPED, STEM = "convolutions", "grouped convolutions", "convolutions of 3 channels"
HALF, SINGLE = "products, half precision", "products, single precision"
KINDS = {
    DENSE: "GC2, PopLibs of November 2019",
    GROUPED: "GC2, PopLibs of November 2019, which had no SLIC vertex yet",
    STEM: "GC2, PopLibs of November 2019",
    HALF: "Bow, half partial sums",
    SINGLE: "Bow",
}


@lru_cache(maxsize=1)
def singles() -> tuple[Single, ...]:
    """All of them, priced."""
    return tuple(
        [_convolved(line) for line in _lines("convolutions.csv")]
        + [_multiplied(line) for line in _lines("products.csv")]
    )


def _lines(name: str) -> list[dict[str, str]]:
    with (_HERE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _convolved(line: dict[str, str]) -> Single:
    kernel, side, ins, outs, stride, groups, batch = (
        int(line[name])
        for name in ("kernel", "side", "inputs", "outputs", "stride", "groups", "batch")
    )
    # Borders are not stated: as wide as keeps a field's size at stride 1.
    border = kernel // 2
    made = (side + 2 * border - kernel) // stride + 1
    x = Tensor("x", (batch, ins, side, side), "float16")
    weights = Tensor("w", (outs, ins // groups, kernel, kernel), "float16")
    y = Tensor("y", (batch, outs, made, made), "float16")
    op = Op(
        "y", "convolution", ("x", "w"), ("y",),
        {"kernel": (kernel, kernel), "stride": (stride, stride), "dilation": (1, 1),
         "padding": (border, border), "groups": groups},
    )  # fmt: skip
    settings = Settings(chip="mk1", convolution_partials="float32")
    chip = machine(settings)
    cost = convolution(op, [x, weights], [y], chip, settings, 0)
    flops = 2.0 * y.elements * (ins // groups) * kernel**2
    kind = STEM if ins < 16 else DENSE if groups == 1 else GROUPED
    predicted = flops / cost.cycles(chip).total * chip.clock / 1e12
    name = f"{line['network']} {line['layer']}, {kernel}×{kernel}, {ins} to {outs}"
    name += f" in {groups} groups" if groups > 1 else ""
    return Single(kind, name, batch, float(line["tflops"]), predicted)


def _multiplied(line: dict[str, str]) -> Single:
    size, columns, dtype = int(line["size"]), int(line["columns"]), line["dtype"]
    settings = Settings(chip="bow", matmul_partials="float16")
    chip = machine(settings)
    a, b, y = (
        Tensor(name, (1, *shape), dtype)
        for name, shape in (("a", (size, size)), ("b", (size, columns)), ("y", (size, columns)))
    )
    cost: Cost = matmul(Op("y", "matmul", ("a", "b"), ("y",)), [a, b], [y], chip, settings, 0)
    cycles = cost.cycles(chip)
    predicted = 2.0 * size * y.elements / (cycles.compute + cycles.exchange) * chip.clock / 1e12
    kind = HALF if dtype == "float16" else SINGLE
    return Single(kind, f"{size} × {size}", columns, float(line["tflops"]), predicted)


@dataclass(frozen=True)
class Summary:
    """How a kind of them comes out."""

    count: int
    error: float
    bias: float
    within_tenth: int
    within_1_3: int
    worst: float


def summary(found: Sequence[Single]) -> Summary:
    apart = [max(one.ratio, 1 / one.ratio) for one in found]
    return Summary(
        len(found), median(one.error for one in found), median(one.ratio for one in found) - 1,
        sum(one.error <= 0.1 for one in found), sum(size <= 1.3 for size in apart), max(apart),
    )  # fmt: skip
