"""What a real IPU would do with a program that a front end has built: asked, warned, reported.

A front end says how its program becomes a graph, how large it is at most, and as what its users
catch errors. The estimate is made at the first question, or by a background thread where somebody
may have to be warned; a run neither waits for it nor fails with it, unless it was asked to.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from softipu import arch, devices, settings
from softipu.errors import EstimateFailed, OutOfMemory, SoftIPUError
from softipu.graph import Graph
from softipu.machine import Estimate, Settings
from softipu.machine import estimate as price
from softipu.machine.result import kib

from . import idle_options

#: Name of the threads, for those who want to wait for all warnings.
THREAD = "softipu-estimate"
#: Share of one IPU's memory below which all that a program makes has room, wherever it lies: a
#: program over several IPUs may have nearly everything on one of them.
_LARGE = 0.25
#: Suggestions that a warning has room for.
_HINTS = 3


class Call:
    """Modelled cycles of a program's calls, as far as known; holds nothing of the program."""

    def __init__(self) -> None:
        self._cycles = 0.0
        self._iterations = 1

    def note(self, found: Estimate) -> None:
        self._cycles = found.cycles.total
        self._iterations = max(1, int(found.schedule.get("device_iterations", 1)))

    def cycles(self, iterations: int | None = None) -> int:
        """Of a call, or of one with so many iterations, where calls differ in length; 0 while
        nobody has asked for an estimate: none is made for this."""
        share = 1.0 if iterations is None else iterations / self._iterations
        return round(self._cycles * share)


class Modelled:
    """The estimate of one program, made once."""

    def __init__(
        self,
        name: str,
        describe: Callable[[], tuple[Graph, Settings]],
        *,
        large: Callable[[], bool],
        log: logging.Logger,
        raised: Callable[[SoftIPUError], Exception] = lambda problem: problem,
        prepare: Callable[[], object] = lambda: None,
    ) -> None:
        """`large`: whether the program might have no room, found out without a graph. `raised`:
        an error as users of the front end catch it. `prepare`: what `describe` needs to have been
        done before the program runs on, where it is called in the background."""
        self.name = name
        self._describe = describe
        self._large = large
        self._log = log
        self._raised = raised
        self._prepare = prepare
        self._lock = threading.Lock()
        self._found: Estimate | None = None
        self._problem: SoftIPUError | None = None
        self._training = False
        self._told = False
        self.call = Call()

    @property
    def known(self) -> bool:
        """Whether somebody has asked already."""
        return self._found is not None or self._problem is not None

    def estimate(self, hints: bool = False) -> Estimate:
        """The estimate; what went wrong with it is raised to whoever asks. `hints`: changes have
        been tried, also for a program that fits, which takes seconds for a large one."""
        with self._lock:
            untried = self._found is not None and hints and not self._found.hints_tried
            if not self.known or untried:
                self._attempt(lambda: self._make(hints))
        if self._problem is not None:
            raise self._problem
        assert self._found is not None
        return self._found

    def _make(self, hints: bool) -> None:
        graph, options = self._describe()
        self._training = graph.training
        schedule = graph.schedule
        placed = on_the_system_here(options, schedule.ipus * schedule.replicas)
        self._found = price(graph, placed, hints=True if hints else None)
        self.call.note(self._found)

    def _attempt(self, action: Callable[[], object]) -> None:
        try:
            action()
        except SoftIPUError as problem:
            self._problem = problem
        except Exception as error:  # noqa: BLE001 - told as a warning: no run ends with it
            said = str(error).strip().partition("\n")[0]
            self._problem = EstimateFailed(f"{self.name}: {type(error).__name__}: {said}")
            self._problem.__cause__ = error

    # --- what happens unasked when a program has been built --------------------------------------

    def check(self) -> None:
        """Refuse, or warn about, a program that has no room on the real IPU.

        With SOFTIPU_STRICT=1 the answer is waited for; otherwise it comes in the background, and
        only for a program that is large enough for the question to arise."""
        if settings.get("SOFTIPU_STRICT"):
            found = self._strictly()
            if not found.fits:
                raise self._raised(OutOfMemory(out_of_memory(found)))
        elif self._large():
            with self._lock:
                self._attempt(self._prepare)
            threading.Thread(target=self._warn, name=THREAD).start()

    def settle(self) -> None:
        """Make the estimate now; what is wrong with it is told once, and no run ends with it."""
        try:
            self.estimate()
        except SoftIPUError as problem:
            self._tell_problem(problem)

    def report(
        self,
        engine_options: Mapping[str, object] | None = None,
        folder: str | None = None,
        kind: str | None = None,
    ) -> Path | None:
        """Write a report where engine options, the environment or `softipu run` ask for one.

        It goes to `folder`, or else to a folder for the `kind` of program, one for each program.
        Returns its page. A directory that can't be written is an error; other engine options than
        those of reports are named in a warning."""
        from softipu import report

        try:
            asked = report.destination(engine_options)
        except SoftIPUError as problem:
            raise self._raised(problem) from problem
        idle_options.warn(engine_options, self._log)
        if asked is None:
            return None
        if settings.get("SOFTIPU_STRICT"):
            self._strictly()
        try:
            found = self.estimate(hints=True)
        except SoftIPUError as problem:
            self._tell_problem(problem)
            return None
        kind = kind or ("training" if self._training else "inference")
        place = asked / folder if folder else report.folder_of_its_own(asked, kind)
        try:
            return report.write(found, place)[report.PAGE]
        except SoftIPUError as problem:
            raise self._raised(problem) from problem

    def _strictly(self) -> Estimate:
        try:
            return self.estimate()
        except SoftIPUError as problem:
            raise self._raised(problem) from problem

    def _warn(self) -> None:
        try:
            found = self.estimate()
        except SoftIPUError as problem:
            self._tell_problem(problem)
            return
        self._log.info(
            "Modelled: %.0f cycles, %.1f samples/s on %s", found.cycles.total, found.throughput,
            found.settings.chip,
        )  # fmt: skip
        if not found.fits:
            self._log.warning("%s\nThe program runs here nevertheless.", out_of_memory(found))

    def _tell_problem(self, problem: SoftIPUError) -> None:
        if not self._told:
            self._told = True
            self._log.warning(
                "No estimate of %s, so that nobody knows whether it would have room on a real IPU, "
                "and there is no report of it: %s The program runs nevertheless.",
                self.name, problem,
            )  # fmt: skip


def chip_here() -> str:
    """The chip of the IPUs that programs find."""
    return arch.system(devices.active_partition().system).chip.name


def on_the_system_here(options: Settings, ipus: int) -> Settings:
    """Settings with the system whose IPUs the program runs on, so that links and host are its own.

    Left open where that system can't be the one: the program is modelled on another chip, or takes
    more IPUs in all than the system has (instances on other hosts, the IPU model)."""
    if options.system is not None:
        return options
    here = arch.system(devices.active_partition().system)
    if here.chip.name != options.chip or here.ipus < ipus:
        return options
    return replace(options, system=here.name)


def is_large(most_bytes: int, chip: str) -> bool:
    """Whether a program that makes so many bytes might have no room."""
    known = arch.chip(chip)
    return most_bytes > _LARGE * known.tiles * known.tile_memory


def out_of_memory(found: Estimate) -> str:
    """Which tile has too much, of what, and what to change first: a line for each thing."""
    worst = max(found.memory, key=lambda memory: memory.used - memory.capacity)
    parts = sorted(worst.fullest_tile.items(), key=lambda item: -item[1])
    told = ", ".join(f"{name} {kib(size)}" for name, size in parts[:4] if size)
    lines = [
        f"{found.name} would be out of memory on a real {found.settings.chip} IPU: the fullest "
        f"tile of IPU {worst.ipu} needs {kib(worst.used)} of {kib(worst.capacity)} KiB ({told})."
    ]
    lines += [f"  - Change {hint.option}: {hint.text}." for hint in found.hints[:_HINTS]]
    if found.hints_tried and not found.hints:
        lines.append(
            "  - No change of batch, memory proportion, recomputation, split or precision saves "
            "enough on paper: make the largest layers smaller, or divide them over IPUs yourself."
        )
    return "\n".join(lines)
