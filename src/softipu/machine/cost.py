"""What one op costs on one IPU, as data that add up: work, bytes, and what the program needs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil

from . import calibration
from .chip import Machine
from .result import Cycles


@dataclass(frozen=True)
class Terms:
    """Cycles before the fitted constants come in: sums of these are all that a fit has to price."""

    #: Cycles that no constant changes.
    fixed: Cycles = field(default_factory=Cycles)
    #: Cycles of exchange at its full rate, and how often all tiles meet.
    exchange: float = 0.0
    steps: float = 0.0

    def __add__(self, other: Terms) -> Terms:
        return Terms(
            self.fixed + other.fixed, self.exchange + other.exchange, self.steps + other.steps
        )

    def cycles(self, machine: Machine) -> Cycles:
        """With the constants in use."""
        constants = calibration.constants()
        return self.fixed + Cycles(
            exchange=self.exchange * constants.exchange,
            sync=self.steps * (machine.sync + constants.step_overhead),
        )


@dataclass(frozen=True)
class Cost:
    """Cycles on the slowest tile, and what the code that does it takes on the fullest."""

    compute: float = 0.0
    exchange: float = 0.0
    #: Times that all tiles meet: each compute set, each exchange.
    steps: int = 0
    flops: float = 0.0
    tiles: int = 0
    plan: str = ""
    #: Bytes on the fullest tile that only exist while the op runs.
    temporary: int = 0
    #: Kinds of vertices, whose code is shared by all ops that use them.
    vertices: frozenset[str] = frozenset()
    #: Vertex instances on a tile, and messages that a tile receives.
    instances: int = 0
    messages: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.compute + other.compute, self.exchange + other.exchange,
            self.steps + other.steps, self.flops + other.flops, max(self.tiles, other.tiles),
            "; ".join(dict.fromkeys(filter(None, (self.plan, other.plan)))),
            max(self.temporary, other.temporary), self.vertices | other.vertices,
            self.instances + other.instances, self.messages + other.messages,
        )  # fmt: skip

    def times(self, count: int) -> Cost:
        """The same code run `count` times: cycles grow, code does not."""
        return Cost(
            self.compute * count, self.exchange * count, self.steps * count, self.flops * count,
            self.tiles, f"{count} × ({self.plan})" if self.plan else "", self.temporary,
            self.vertices, self.instances, self.messages,
        )  # fmt: skip

    def at_most(self, other: Cost, machine: Machine) -> Cost:
        """With the time of another way to do the same, if that is faster; memory is its own."""
        if other.taken(machine) >= self.taken(machine):
            return self
        return replace(self, compute=other.compute, exchange=other.exchange, steps=other.steps)

    @property
    def terms(self) -> Terms:
        return Terms(Cycles(compute=self.compute), self.exchange, self.steps)

    def cycles(self, machine: Machine) -> Cycles:
        return self.terms.cycles(machine)

    def planned(self, machine: Machine) -> float:
        """What a planner compares, which knows no fitted constants: so none changes a plan."""
        return self.compute + self.exchange + self.steps * machine.sync

    def taken(self, machine: Machine) -> float:
        """Cycles with the fitted constants, also while a fit tries others: what it tries changes
        no choice between costs."""
        fitted = calibration.FITTED
        met = self.steps * (machine.sync + fitted.step_overhead)
        return self.compute + self.exchange * fitted.exchange + met


FREE = Cost(plan="no data moves")


def spread(elements: int, machine: Machine, grain: int = 8) -> tuple[int, int]:
    """Elements on the fullest tile, and tiles with any, when whole grains are dealt out."""
    grains = ceil(elements / grain)
    each = ceil(grains / machine.tiles)
    return each * grain, (ceil(grains / each) if each else 0)


def exchange(received: float, machine: Machine, *, sharing: bool = False) -> Cost:
    """An exchange in which each tile receives that many bytes."""
    if received <= 0:
        return Cost()
    rate = machine.exchange * (machine.bus if sharing else 1)
    return Cost(exchange=ceil(received / rate), steps=1, messages=messages(received))


#: Assumption: n bytes reach a tile in √n / 4 pieces. Only the size of exchange code depends on it.
_PIECES = 4


def messages(received: float) -> int:
    """Pieces in which data arrive: longer the more there is, as neighbours send runs."""
    return ceil(received**0.5 / _PIECES) if received > 0 else 0


def vertex(name: str, cycles: float, flops: float = 0.0, *, tiles: int = 0, plan: str = "") -> Cost:
    """A compute set of one kind of vertex."""
    return Cost(
        compute=cycles, steps=1, flops=flops, tiles=tiles, plan=plan,
        vertices=frozenset((name,)), instances=1,
    )  # fmt: skip
