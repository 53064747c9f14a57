"""Chooses the variant that does the next step: by measuring, and never by faith.

Work on faster variants starts when enough time was spent running, so that short programs never pay
for it. Trials are real steps: nothing is computed twice.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from softipu import settings

from .._logging import logger
from .coalesce import CannotCoalesce
from .compiled import CannotCompile
from .memory import DeviceMemory
from .plan import Plan
from .variants import Coalesced, Loop, Variant, compiled_form

_TRIALS = 5
_WARM_UPS = 1
#: A newcomer must beat the present best by this much, or noise decides.
_MARGIN = 0.97


@dataclass
class _Measured:
    variant: Variant
    warm: int = 0
    samples: list[float] = field(default_factory=list)

    @property
    def settled(self) -> bool:
        return len(self.samples) >= _TRIALS

    @property
    def cost(self) -> float:
        """Seconds per micro-batch."""
        return statistics.median(self.samples)

    def add(self, seconds: float) -> None:
        if self.warm < _WARM_UPS:
            self.warm += 1
        else:
            self.samples.append(seconds / self.variant.size)


@dataclass(frozen=True)
class _Idea:
    """A variant that may be built once `after` seconds were spent running."""

    name: str
    after: float
    build: Callable[[], Variant]


class Tuner:
    """Holds the variants of one executable and their measured costs."""

    def __init__(self, plan: Plan, memory: DeviceMemory, capture_seconds: float) -> None:
        self._plan = plan
        self._memory = memory
        self._loop = _Measured(Loop(plan, memory))
        self._best = self._loop
        self._rival: _Measured | None = None
        self._spent = 0.0
        self._ideas = self._plan_ideas(capture_seconds)
        self.refused: dict[str, str] = {}

    def _plan_ideas(self, capture_seconds: float) -> list[_Idea]:
        if settings.get("SOFTIPU_DETERMINISTIC"):
            return []
        ideas = []
        plan, memory = self._plan, self._memory
        if plan.batching.runs > 1 and not plan.sharded:
            ideas.append(_Idea("coalesced", capture_seconds, lambda: Coalesced(plan, memory)))
        if plan.program.random:
            # Random numbers depend on the variant: take the same one in every run of the program.
            for idea in ideas:
                self._take(idea)
            return []
        patience = settings.get("SOFTIPU_COMPILE_AFTER")
        ideas.append(_Idea("compiled", patience, lambda: compiled_form(self.best)))
        return ideas

    def _take(self, idea: _Idea) -> None:
        try:
            self._best = _Measured(idea.build())
        except (CannotCoalesce, CannotCompile) as error:
            self._refuse(idea, error)

    def _refuse(self, idea: _Idea, error: Exception) -> None:
        self.refused[idea.name] = str(error)
        logger.debug("No %s variant: %s", idea.name, error)

    @property
    def settled(self) -> bool:
        """Whether no further variant will be tried."""
        return not self._ideas and self._rival is None

    @property
    def best(self) -> Variant:
        return self._best.variant

    def choose(self, remaining: int) -> _Measured:
        """The variant for the next step, when so many micro-batches remain in the call."""
        if self._rival is None and self._ideas:
            self._consider()
        chosen = self._next()
        return chosen if chosen.variant.size <= remaining else self._loop

    def _next(self) -> _Measured:
        rival = self._rival
        if rival is None:
            return self._best
        if rival.settled and self._best.settled:
            if rival.cost < self._best.cost * _MARGIN:
                logger.debug(
                    "Variant %s replaces %s: %.3f ms instead of %.3f ms per micro-batch",
                    rival.variant.name, self._best.variant.name,
                    rival.cost * 1e3, self._best.cost * 1e3,
                )  # fmt: skip
                self._best = rival
            self._rival = None
            return self._best
        # Alternate, so that a noisy moment of the machine hits both.
        return min((rival, self._best), key=lambda m: len(m.samples) + m.warm)

    def _consider(self) -> None:
        idea = self._ideas[0]
        if self._spent < idea.after:
            return
        self._ideas.pop(0)
        try:
            self._rival = _Measured(idea.build())
        except (CannotCoalesce, CannotCompile) as error:
            self._refuse(idea, error)
        else:
            self._best.samples.clear()

    def run(self, chosen: _Measured, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """One step of the chosen variant, timed."""
        start = time.perf_counter()
        try:
            results = chosen.variant.step(inputs)
        except CannotCompile as error:
            # Raised before anything ran, so the step can be done by the variant that is proven.
            self.refused[chosen.variant.name] = str(error)
            logger.info("%s can't be built: %s", chosen.variant.name, error)
            self._rival = None
            return self.run(self._best, inputs)
        seconds = time.perf_counter() - start
        self._spent += seconds
        if self._rival is not None or not chosen.settled:
            chosen.add(seconds)
        return results
