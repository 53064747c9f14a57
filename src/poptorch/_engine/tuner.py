"""Chooses the variant that does the next step: by measuring, and never by faith.

Work on faster variants starts when enough time was spent running, so that short programs never pay
for it. Trials are real steps: nothing is computed twice.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from softipu import settings

from .._logging import logger
from .coalesce import CannotCoalesce
from .compiled import CannotCompile
from .freeze import CannotFreeze, Frozen, freeze
from .memory import DeviceMemory
from .plan import Plan
from .variants import Coalesced, Loop, Variant, checked, compiled_form

REFUSALS = (CannotCoalesce, CannotCompile, CannotFreeze)
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
        self._loop = _Measured(
            checked(Loop(plan, memory)) if plan.checks_floats else Loop(plan, memory)
        )
        self._best = self._loop
        self._rival: _Measured | None = None
        self._spent = 0.0
        self._frozen: dict[bool, Frozen] = {}
        self.refused: dict[str, str] = {}
        self._ideas = self._plan_ideas(capture_seconds)

    def _plan_ideas(self, capture_seconds: float) -> list[_Idea]:
        if settings.get("SOFTIPU_DETERMINISTIC") or self._plan.checks_floats:
            return []
        plan, memory = self._plan, self._memory
        many = plan.batching.runs > 1 and not plan.sharded
        if plan.program.random:
            # Random numbers depend on the variant: take the same one in every run of the program.
            if many:
                self._take(_Idea("coalesced", 0.0, lambda: Coalesced(plan, memory)))
            return []
        ideas = []
        if not plan.program.training and not plan.sharded:
            ideas += self._frozen_ideas(capture_seconds, many)
        elif many:
            ideas.append(_Idea("coalesced", capture_seconds, lambda: Coalesced(plan, memory)))
        patience = settings.get("SOFTIPU_COMPILE_AFTER")
        ideas.append(_Idea("compiled", patience, lambda: compiled_form(self.best)))
        return ideas

    def _frozen_ideas(self, capture_seconds: float, many: bool) -> list[_Idea]:
        """Inference: weights prepared once; half products also by way of float32."""
        ideas = []
        halves = any(spec.dtype == torch.float16 for spec in self._plan.program.parameters)
        for widen in (False, True) if halves else (False,):
            name = "widened " if widen else "frozen "
            ideas.append(_Idea(name + "loop", 0.0, self._on_frozen(Loop, name, widen)))
            if many:
                build = self._on_frozen(Coalesced, name, widen)
                ideas.append(_Idea(name + "coalesced", capture_seconds, build))
        return ideas

    def _on_frozen(
        self, kind: type[Loop] | type[Coalesced], name: str, widen: bool
    ) -> Callable[[], Variant]:
        def build() -> Variant:
            frozen = self._frozen.get(widen)
            if frozen is None:
                frozen = freeze(self._plan.program, self._memory, widen=widen)
                self._frozen[widen] = frozen
            variant = kind(replace(self._plan, program=frozen.program), frozen.memory)
            variant.name = name + variant.name
            return variant

        return build

    def weights_changed(self) -> None:
        """The host wrote new weights: what was prepared from the old ones is stale."""
        for frozen in self._frozen.values():
            frozen.refresh()

    def _take(self, idea: _Idea) -> None:
        try:
            self._best = _Measured(idea.build())
        except REFUSALS as error:
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

    def choose(self, remaining: int) -> Variant:
        """The variant for the next step, when so many micro-batches remain in the call."""
        if self._rival is None and self._ideas:
            self._consider()
        chosen = self._next()
        return (chosen if chosen.variant.size <= remaining else self._loop).variant

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
        # Not before the first step either: the first result must not wait for a second variant.
        if self._spent <= idea.after:
            return
        self._ideas.pop(0)
        try:
            self._rival = _Measured(idea.build())
        except REFUSALS as error:
            self._refuse(idea, error)
        else:
            self._best.samples.clear()

    def run(self, variant: Variant, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """One step of the chosen variant, timed."""
        chosen = next(
            m for m in (self._best, self._rival, self._loop) if m and m.variant is variant
        )
        start = time.perf_counter()
        try:
            results = variant.step(inputs)
        except (CannotCompile, RuntimeError) as error:
            # An unproven variant may fail where nothing was changed yet: when it can't be compiled,
            # or in inference, which changes nothing. The proven one then does the step.
            program = self._plan.program
            pure = not (program.training or program.written_buffers or program.calls_host)
            harmless = isinstance(error, CannotCompile) or pure
            if chosen is not self._rival or not harmless:
                raise
            self.refused[chosen.variant.name] = str(error)
            logger.info("The variant %s is not used: %s", chosen.variant.name, error)
            self._rival = None
            return self.run(self.best, inputs)
        seconds = time.perf_counter() - start
        self._spent += seconds
        if self._rival is not None or not chosen.settled:
            chosen.add(seconds)
        return results
