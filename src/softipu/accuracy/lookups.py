"""Rows read by index and added by index that others measured on a Bow, beside the model's price.

They are a tenth of those of a benchmark of message passing, with all kinds of sizes: each op runs
128 times in a loop on the chip. Its library is of 2023, its available memory proportion 0.1. No
input of the prediction comes from it.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median

from softipu.machine import Settings
from softipu.machine.chip import machine
from softipu.machine.cost import Cost
from softipu.machine.lookup import Lookup, planned
from softipu.machine.vector import apply

SOURCE = "graphcore-research/hydronet-gnn experiments/bow_amp_0.1"
READ, ADDED = "rows read", "rows added"
_PROPORTION = 0.1


@dataclass(frozen=True)
class Looked:
    """One of them: cycles, measured and predicted."""

    kind: str
    #: Rows of the table, numbers in a row, indices.
    rows: int
    width: int
    indices: int
    figure: float
    predicted: float

    @property
    def ratio(self) -> float:
        return self.predicted / self.figure


@lru_cache(maxsize=1)
def lookups() -> tuple[Looked, ...]:
    """All of them, priced."""
    with Path(__file__).with_name("lookups.csv").open(encoding="utf-8", newline="") as file:
        return tuple(_looked(line) for line in csv.DictReader(file))


def _looked(line: dict[str, str]) -> Looked:
    inputs, width, outputs = (int(line[name]) for name in ("inputs", "features", "outputs"))
    chip = machine(Settings(chip="bow"))
    read = line["kind"] == "gather"
    rows, indices = (inputs, outputs) if read else (outputs, inputs)
    asked = Lookup(rows, width, 4, indices, "float32", "" if read else "add")
    # Rows are added to zeros, which are made first.
    zeros = Cost() if read else apply("fill", rows * width, "float32", chip)
    cycles = (planned(asked, chip, _PROPORTION) + zeros).cycles(chip).total
    return Looked(READ if read else ADDED, rows, width, indices, float(line["cycles"]), cycles)


def told() -> str:
    """The same in a line."""
    read = [one for one in lookups() if one.kind == READ]
    error = median(abs(one.ratio - 1) for one in read)
    return f"- {len(read)} gathers that others measured, all validations: median error {error:.1%}."


def section() -> str:
    """What the page says of them."""
    lines = [
        "## Rows by index", "",
        "Rows of a table read by index (gather, embeddings) and added by index (scatter, gradients "
        "of embeddings) on a Bow, in single precision, all validations: a tenth of the sizes of "
        f"{SOURCE}. The benchmark's loop also copies results from one round to the next, and what "
        "its scatter does with a large result besides is not known: neither is in the prediction, "
        "so those of large results come out too fast.", "",
        "| | points | median error | bias | within 1.3 × | within 1.5 × |",
        "|---|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    for kind in (READ, ADDED):
        lines.append(f"| {kind} | {_cells([one for one in lookups() if one.kind == kind])} |")
    few = [one for one in lookups() if one.kind == ADDED and one.rows * one.width <= 1 << 18]
    lines.append(f"| rows added to at most 1 MiB | {_cells(few)} |")
    return "\n".join(lines) + "\n"


def _cells(found: Sequence[Looked]) -> str:
    apart = [max(one.ratio, 1 / one.ratio) for one in found]
    error = median(abs(one.ratio - 1) for one in found)
    bias = median(one.ratio for one in found) - 1
    return (
        f"{len(found)} | {error:.1%} | {bias:+.1%} | {sum(each <= 1.3 for each in apart)} | "
        f"{sum(each <= 1.5 for each in apart)}"
    )
