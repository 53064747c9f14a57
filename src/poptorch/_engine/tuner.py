"""Chooses the variant that does the next step: by measuring, and never by faith.

Work on faster variants starts when enough time was spent running, so that short programs never pay
for it. Trials are real steps: nothing is computed twice.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from weakref import WeakValueDictionary

import torch

from softipu import settings

from .._logging import logger
from .._threads import IfNobodyTraces
from .chunks import chunk_sizes
from .coalesce import CannotCoalesce
from .compiled import CannotCompile
from .freeze import CannotFreeze, Frozen, freeze
from .layouts import has_convolutions
from .memory import DeviceMemory
from .packing import CannotPack, packed_form
from .plan import Plan
from .variants import Coalesced, Loop, Variant, checked, compiled_form

REFUSALS = (CannotCoalesce, CannotCompile, CannotFreeze, CannotPack)
_WARM_UPS = 1
_TRIALS = 5
#: Two variants that are so close after that many trials take turns for longer.
_CLOSE, _LONG_TRIALS = 0.85, 12
#: Of steps that take this many seconds, one trial tells variants apart that differ by this factor.
_LONG_STEP, _FAR_APART = 0.1, 4.0
#: A newcomer must beat the present best by this much, or noise decides.
_MARGIN = 0.97
#: What torch's machinery of capture takes to import.
_IMPORT_SECONDS = 2.0
#: Compiling starts after so many times the patience; only variants so close to the best get it.
_COMPILE_TURNS, _WORTH_A_FORM = (1, 4), 1.6
#: Who sets the patience to this many seconds or more wants no compiled form, ever.
_NEVER = 1e9


def _widenings(device: torch.device) -> tuple[bool, bool]:
    """Half products as they are and by way of float32, first what is likely to be faster: without
    instructions for halves, a processor's convolutions take some twenty times as long."""
    if device.type == "cpu" and not _computes_halves():
        return True, False
    return False, True


def _computes_halves() -> bool:
    known = torch._C._has_mkldnn  # else torch has no such question
    return known and bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())


@dataclass
class _Measured:
    variant: Variant
    #: The ideas that it stands for; see `_Idea`.
    family: str = ""
    warm: int = 0
    samples: list[float] = field(default_factory=list)

    def settled(self, trials: int = _TRIALS) -> bool:
        return len(self.samples) >= trials

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
    """A variant that may be built once `after` seconds were spent running.

    `build` is given the tuner instead of holding it: in a circle, weights would outlive the model
    until Python looks for circles.
    """

    name: str
    after: float
    build: Callable[[Tuner], Variant | None]
    #: Ideas that are given up together, when one of them is far too slow.
    family: str = ""


class Tuner:
    """Holds the variants of one executable and their measured costs."""

    def __init__(
        self,
        plan: Plan,
        memory: DeviceMemory,
        capture_seconds: float,
        frozen: WeakValueDictionary[bool, Frozen] | None = None,
    ) -> None:
        self._plan = plan
        self._memory = memory
        self._loop = _Measured(
            checked(Loop(plan, memory)) if plan.checks_floats else Loop(plan, memory)
        )
        self._best = self._loop
        #: What forms may yet be made of; forgotten when there is nothing left to try.
        self._measured = [self._loop]
        self._rival: _Measured | None = None
        self._spent = 0.0
        self._calls = 0
        #: Prepared weights, widened or not, for as long as variants have them or may come to have
        #: them; tuners of the same program and memory may share them.
        self._frozen = WeakValueDictionary() if frozen is None else frozen
        #: Those that ideas yet to come are for, by their families.
        self._awaited: dict[str, Frozen] = {}
        self.refused: dict[str, str] = {}
        self._ideas = self._plan_ideas(capture_seconds)

    def _plan_ideas(self, capture_seconds: float) -> list[_Idea]:
        if settings.get("SOFTIPU_DETERMINISTIC") or self._plan.checks_floats:
            return []
        if "torch._dynamo" not in sys.modules:
            # After a warm start, the machinery of capture has yet to be imported.
            capture_seconds = max(capture_seconds, _IMPORT_SECONDS)
        plan, memory = self._plan, self._memory
        chunks = [] if plan.sharded else chunk_sizes(plan, memory)
        patience = settings.get("SOFTIPU_COMPILE_AFTER")
        compiles = patience < _NEVER
        if plan.program.random:
            # Random numbers depend on the variant: take the same one in every run of the program.
            if chunks:
                build = partial(Tuner._coalesced, chunk=chunks[-1])
                self._take(_Idea("coalesced", 0.0, build))
            idea = _Idea("compiled", patience, lambda tuner: compiled_form(tuner.best))
            return [idea] if compiles else []
        ideas: list[_Idea] = []
        if not plan.program.training and not plan.sharded:
            ideas += self._frozen_ideas(capture_seconds, chunks)
        else:
            for turn, chunk in enumerate(chunks):
                build = partial(Tuner._coalesced, chunk=chunk)
                after = capture_seconds * (turn + 1)
                ideas.append(_Idea(f"coalesced {chunk}", after, build))
        compiled: list[Variant] = []
        for turn in _COMPILE_TURNS if compiles else ():
            form = partial(Tuner._next_form, form=compiled_form, made=compiled)
            ideas.append(_Idea(f"compiled {turn}", patience * turn, form))
        return ideas

    def _frozen_ideas(self, capture_seconds: float, chunks: list[int]) -> list[_Idea]:
        """Inference: weights prepared once; half products also by way of float32."""
        ideas = []
        halves = any(spec.dtype == torch.float16 for spec in self._plan.program.parameters)
        for widen in _widenings(self._memory.device) if halves else (False,):
            name = "widened" if widen else "frozen"
            build = partial(Tuner._on_frozen, name=name, widen=widen, chunk=None)
            ideas.append(_Idea(f"{name} loop", 0.0, build, name))
            for chunk in chunks:
                build = partial(Tuner._on_frozen, name=name, widen=widen, chunk=chunk)
                ideas.append(_Idea(f"{name} coalesced {chunk}", capture_seconds, build, name))
        if has_convolutions(self._plan.program.micro.graph):
            packed: list[Variant] = []
            form = partial(Tuner._next_form, form=packed_form, made=packed)
            ideas += [_Idea(f"packed {turn}", capture_seconds, form) for turn in (1, 2)]
        return ideas

    def _coalesced(self, chunk: int) -> Variant:
        return Coalesced(self._plan, self._memory, chunk)

    def _on_frozen(self, name: str, widen: bool, chunk: int | None) -> Variant:
        frozen = self._frozen.get(widen)
        if frozen is None:
            frozen = freeze(self._plan.program, self._memory, widen=widen)
            self._frozen[widen] = frozen
        self._awaited[name] = frozen
        plan = replace(self._plan, program=frozen.program)
        variant = (
            Loop(plan, frozen.memory) if chunk is None else Coalesced(plan, frozen.memory, chunk)
        )
        variant.name = f"{name} {variant.name}"
        variant.prepared = frozen
        return variant

    def _next_form(self, form: Callable[[Variant], Variant], made: list[Variant]) -> Variant | None:
        """The fastest plain variant that has no such form yet, in that form; None if no other is
        close to the fastest."""
        plain = [m for m in self._measured if m.samples and m.variant.plain]
        fastest = min((m.cost for m in plain), default=0.0)
        rest = [m for m in plain if m.variant not in made]
        rest = [m for m in rest if m.cost <= fastest * _WORTH_A_FORM]
        if not rest and made:
            return None
        chosen = min(rest, key=lambda m: m.cost).variant if rest else self.best
        made.append(chosen)
        return form(chosen)

    def weights_changed(self) -> None:
        """The host wrote new weights: what was prepared from the old ones is stale."""
        for frozen in self._frozen.values():
            frozen.refresh()

    def _take(self, idea: _Idea) -> None:
        built = self._built(idea)
        if built is not None:
            self._best = built

    def _built(self, idea: _Idea) -> _Measured | None:
        try:
            variant = idea.build(self)
        except REFUSALS as error:
            self.refused[idea.name] = str(error)
            logger.debug("No %s variant: %s", idea.name, error)
            return None
        return None if variant is None else _Measured(variant, idea.family or idea.name)

    @property
    def settled(self) -> bool:
        """Whether no further variant will be tried."""
        return not self._ideas and self._rival is None

    @property
    def best(self) -> Variant:
        return self._best.variant

    def begin_call(self) -> None:
        self._calls += 1

    def choose(self, remaining: int) -> Variant:
        """The variant for the next step, when so many micro-batches remain in the call."""
        # Not in the first call: the first result must not wait for a second variant.
        if self._rival is None and self._ideas and self._calls > 1:
            with IfNobodyTraces() as free:
                if free:
                    self._consider()
        # What is left of a call may be too little for the one whose turn it is.
        turns = (self._next(), self._best, self._rival, self._loop)
        return next(m.variant for m in turns if m is not None and m.variant.size <= remaining)

    def _next(self) -> _Measured:
        rival = self._rival
        if rival is None:
            return self._best
        if self._far_apart(rival):
            return self._decide(rival, rival.cost / self._best.cost)
        if rival.settled() and self._best.settled():
            ratio = rival.cost / self._best.cost
            long = rival.settled(_LONG_TRIALS) and self._best.settled(_LONG_TRIALS)
            if long or not _CLOSE < ratio < 1 / _CLOSE:
                return self._decide(rival, ratio)
        # Alternate, so that a noisy moment of the machine hits both.
        return min((rival, self._best), key=lambda m: len(m.samples) + m.warm)

    def _far_apart(self, rival: _Measured) -> bool:
        """Whether further trials would take long and tell nothing new."""
        best = self._best
        if not rival.samples or not best.samples:
            return False
        fast, slow = sorted((rival, best), key=lambda m: m.cost)
        takes_long = slow.cost * slow.variant.size >= _LONG_STEP
        return takes_long and slow.cost > fast.cost * _FAR_APART

    def _decide(self, rival: _Measured, ratio: float) -> _Measured:
        if ratio < _MARGIN:
            logger.debug(
                "Variant %s replaces %s: %.3f ms instead of %.3f ms per micro-batch",
                rival.variant.name, self._best.variant.name,
                rival.cost * 1e3, self._best.cost * 1e3,
            )  # fmt: skip
            self._best = rival
        elif self._far_apart(rival):
            self._ideas = [idea for idea in self._ideas if idea.family != rival.family]
            # It is worth no other form, either.
            self._measured = [known for known in self._measured if known is not rival]
        self._rival = None
        self._forget()
        return self._best

    def _forget(self) -> None:
        """What can't be used any more; much of it holds weights of its own."""
        if self.settled:
            self._measured.clear()
        coming = {idea.family for idea in self._ideas}
        self._awaited = {name: kept for name, kept in self._awaited.items() if name in coming}

    def _consider(self) -> None:
        idea = self._ideas[0]
        if self._spent <= idea.after:
            return
        self._ideas.pop(0)
        self._rival = self._built(idea)
        if self._rival is not None:
            # Another form that loses has weights of its own, which nobody needs any more.
            if self._rival.variant.plain:
                self._measured.append(self._rival)
            self._best.samples.clear()
        self._forget()

    def run(self, variant: Variant, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """One step of the chosen variant, timed."""
        chosen = next(
            m for m in (self._best, self._rival, self._loop) if m and m.variant is variant
        )
        waited = self._waited()
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
            self._forget()
            return self._by_proven(inputs, variant.size)
        # What other processes take says nothing about the variant.
        seconds = time.perf_counter() - start - (self._waited() - waited)
        self._spent += seconds
        if self._rival is not None or not chosen.settled():
            chosen.add(seconds)
        return results

    def _waited(self) -> float:
        together = self._memory.together
        return 0.0 if together is None else together.waited

    def _by_proven(self, inputs: list[torch.Tensor], count: int) -> list[torch.Tensor]:
        """The work of a variant that failed, in steps of the size of one that does not."""
        proven = self.best if count % self.best.size == 0 else self._loop.variant
        size = proven.size
        parts = [
            self.run(proven, [tensor[start : start + size] for tensor in inputs])
            for start in range(0, count, size)
        ]
        return [torch.cat(column) for column in zip(*parts, strict=True)]
