"""Micro-benchmarks: single steps of real chips, each beside what the model says of the same step.

Where an input of the prediction comes from the same source as the figure, the row shows only that
the model keeps to its inputs (`shared` says which); a row without such an input is a validation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from softipu.machine import Settings, calibration, links
from softipu.machine.chip import Machine, machine
from softipu.machine.cost import exchange
from softipu.machine.move import moved
from softipu.machine.problem import Problem, methods
from softipu.machine.vector import apply

_IPU_STACK = "osmarks/ipu-stack"
_PLANNER = f"{_IPU_STACK} docs/PLANNER_SUGGESTIONS.md"
_COSTS = f"{_IPU_STACK} crates/ipu-codegen/src/cost.rs"
_TUTORIAL = "graphcore/examples tutorials/tutorials/poplar/tut6_matrix_vector_opt/README.md"
_JIA = "Jia et al., arXiv:1912.03413"


@dataclass(frozen=True)
class Micro:
    name: str
    chip: str
    unit: str
    predict: Callable[[Machine], float]
    published: float
    source: str
    #: The input that comes from the figure's own source; empty: none, so the row is a validation.
    shared: str = ""

    @property
    def predicted(self) -> float:
        return self.predict(machine(Settings(chip=self.chip)))

    @property
    def ratio(self) -> float:
        return self.predicted / self.published


def _scheduled(words: int) -> Callable[[Machine], float]:
    """An exchange whose schedule is known: a word each cycle, and no constant for its disorder."""
    return lambda chip: exchange(4.0 * words, chip).exchange


#: What tiles of an M2000 took on average to exchange a matrix–vector product in seven parts.
_MEASURED = 8743.1


def _ideal_matrix_exchange(chip: Machine) -> float:
    """10,000 × 1,000 floats go where they are multiplied; a seventh of the vector goes there too,
    and seven partial sums of each row (the tutorial prints 143 and 49 words)."""
    matrix = moved(4 * 10_000 * 1_000, chip, rearranged=False).exchange
    return matrix + exchange(4.0 * 143, chip).exchange + exchange(4.0 * 49, chip).exchange


def _matrix_exchange(chip: Machine) -> float:
    return _ideal_matrix_exchange(chip) * calibration.constants().exchange


def measured_exchange() -> float:
    """An exchange as Poplar compiled it over the same with every tile receiving all the time."""
    return _MEASURED / _ideal_matrix_exchange(machine(Settings(chip="mk2")))


def _panel(chip: Machine) -> float:
    return moved(8192 * chip.tiles, chip, rearranged=False).compute


def _host(chip: Machine) -> float:
    return links.host(4 * (10_000 * 1_000 + 1_000), chip, prefetched=True).host


def _peak(dtype: str) -> Callable[[Machine], float]:
    """Flops of the matrix units in a cycle, for a product that is large enough for them."""

    def predict(chip: Machine) -> float:
        problem = Problem(1, 1, (4096,), 4096, 4096, dtype, False)
        return 2 * max(method.macs_per_cycle for method in methods(problem, chip))

    return predict


def _everywhere(sharing: bool) -> Callable[[Machine], float]:
    """Bytes a second that all tiles receive together, in pieces of 100 KiB."""

    def predict(chip: Machine) -> float:
        received = 100 * 1024
        cycles = exchange(float(received), chip, sharing=sharing).exchange
        return received * chip.tiles / cycles * chip.clock / 1e12

    return predict


def _links(target: int) -> Callable[[Machine], float]:
    """From the first IPU to another; links of an IPU-M2000 stand for those of a C2 card."""

    def predict(chip: Machine) -> float:
        data = 1e9
        (cycles,) = links.between_ipus({(0, target): data}, chip).values()
        return data / cycles.links * chip.clock / 1e9

    return predict


def _random_numbers(chip: Machine) -> float:
    count = 2**24
    return count / apply("uniform", count, "float32", chip).cycles(chip).total * chip.clock / 1e9


def _memory(chip: Machine) -> float:
    """Two loads a cycle on all tiles."""
    return 2 * chip.load * chip.tiles * chip.clock / 1e12


_SCHEDULE = (
    "the cycles that its own scheduler gives are put in: what is left is that scheduler's error"
)
_RATE = "the chip data have the rate from it"

MICRO: tuple[Micro, ...] = (
    Micro("exchange of a SigLIP MLP, columns first", "c600", "cycles", _scheduled(472_282), 484_530,
          _PLANNER, _SCHEDULE),
    Micro("exchange of a SigLIP MLP, rows first", "c600", "cycles", _scheduled(728_710), 741_414,
          _PLANNER, _SCHEDULE),
    Micro("exchange of a matrix–vector product, 10,000 × 1,000", "mk2", "cycles", _matrix_exchange,
          _MEASURED, _TUTORIAL, "mean of the tiles; the constant `exchange` is taken from it"),
    Micro("host exchange of the same", "mk2", "cycles", _host, 2_641_488.4, _TUTORIAL,
          "the model's rate is taken from it"),
    Micro("8 KiB from standard to interleaved memory", "c600", "cycles", _panel, 1308, _COSTS,
          "rate and overhead of a copy are from the same file"),
    Micro("matrix units, half precision", "c600", "flop/cycle", _peak("float16"), 128, _COSTS,
          _RATE),
    Micro("matrix units, single precision", "c600", "flop/cycle", _peak("float32"), 32, _COSTS,
          _RATE),
    Micro("matrix units, FP8", "c600", "flop/cycle", _peak("float8"), 256, _COSTS, _RATE),
    Micro("reading tile memory in assembly", "mk1", "TB/s", _memory, 30.7, _JIA,
          "a theoretical rate; the clock follows from the peak that the same paper states"),
    Micro("each tile sends to another", "mk1", "TB/s", _everywhere(False), 7.679, _JIA),
    Micro("one tile sends to all", "mk1", "TB/s", _everywhere(True), 15.1348, _JIA),
    Micro("an IPU sends to its partner", "mk1", "GB/s", _links(1), 55.00, _JIA),
    Micro("an IPU sends to one of the next pair", "mk1", "GB/s", _links(2), 27.72, _JIA),
    Micro("uniform random numbers", "mk1", "billion/s", _random_numbers, 944, _JIA),
)  # fmt: skip
