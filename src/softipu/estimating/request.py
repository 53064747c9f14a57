"""What `softipu estimate` is asked, and how its numbers are read: as options, and in sweeps."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from softipu.errors import OptionsContradict
from softipu.tools.cli import whole_number


@dataclass(frozen=True)
class Request:
    """Numbers by the names that users write. None: not said, so the target decides."""

    target: str
    training: bool = False
    micro_batch: int | None = None
    accumulation: int | None = None
    iterations: int | None = None
    replicas: int | None = None
    proportion: float | None = None
    half_partials: bool = False
    recompute: bool | None = None
    length: int | None = None
    io_tiles: int | None = None

    def changed(self, **changes: Any) -> Request:
        return replace(self, **changes)

    def refuse_training_options(self, training: bool) -> None:
        """What only a backward pass has, for a program without one."""
        if training:
            return
        asked = {"--accumulation": (self.accumulation or 1) > 1, "--recompute": self.recompute}
        for option in (name for name, given in asked.items() if given):
            raise OptionsContradict(
                f"{option} is about training, and {self.target} is asked about inference.",
                remedy=f"Add --training where the model has its loss, or leave {option} out.",
            )


def count(text: str) -> int:
    value = whole_number(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is no whole number from 1")
    return value


def proportion(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!a} is no number above 0 and up to 1")
    return value


def io_tiles(text: str) -> int:
    """None of them, or as many as the real stack takes."""
    value = whole_number(text)
    if value and (value % 2 or not 32 <= value <= 192):
        raise argparse.ArgumentTypeError(f"{text} is neither 0 nor an even number from 32 to 192")
    return value


#: Names that can be swept over, and how their values are read: as those of the options are.
SWEPT: dict[str, Callable[[str], Any]] = {
    "micro_batch": count, "accumulation": count, "iterations": count, "replicas": count,
    "proportion": proportion, "length": count, "io_tiles": io_tiles,
}  # fmt: skip
