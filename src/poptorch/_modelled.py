"""What a real IPU would have done with a compiled model: asked for when needed, never in the way.

The estimate is made at the first question, or by a background thread once a model has compiled and
somebody has to be warned; a run neither waits for it nor fails with it.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import torch

from softipu import arch, devices, settings
from softipu.errors import OutOfMemory, SoftIPUError
from softipu.machine import Estimate
from softipu.machine import estimate as price
from softipu.machine.result import kib

from ._errors import failure
from ._logging import logger, native

#: Share of the IPUs' memory below which all that a program makes has room, whatever its layout.
_LARGE = 0.25
#: Suggestions that a warning has room for.
_HINTS = 3


class Modelled:
    """The estimate of one compiled model, made once."""

    def __init__(self, program: Any, options: Any, chip: str, name: str) -> None:
        self._source = (program, options, chip, name)
        self._lock = threading.Lock()
        self._found: Estimate | None = None
        self._problem: SoftIPUError | None = None

    def estimate(self) -> Estimate:
        """The estimate; what went wrong with it is raised to whoever asks."""
        with self._lock:
            if self._found is None and self._problem is None:
                self._make()
        if self._problem is not None:
            raise self._problem
        assert self._found is not None
        return self._found

    def _make(self) -> None:
        from ._neutral import neutral_graph
        from ._neutral_options import settings_of

        program, options, chip, name = self._source
        try:
            graph = neutral_graph(program, options, name)
            self._found = price(graph, settings_of(options, chip, program.training))
        except SoftIPUError as problem:
            self._problem = problem

    def check(self) -> None:
        """Refuse, or warn about, a model that has no room on the real IPU.

        With SOFTIPU_STRICT=1 the answer is waited for; otherwise it comes in the background, and
        only for a model that is large enough for the question to arise."""
        if settings.get("SOFTIPU_STRICT"):
            found = self.estimate()
            if not found.fits:
                raise failure(OutOfMemory, out_of_memory(found))
        elif self._is_large():
            threading.Thread(target=self._warn, name="softipu-estimate").start()

    def report(self, options: Any, kind: str) -> None:
        """Write a report where options, environment or `softipu run` ask for one."""
        from softipu import report

        asked = report.destination(options._Popart.options.get("engineOptions"))
        if asked is None:
            return
        named = options.model_name if options.exists("model_name") else ""
        try:
            written = report.write(self.estimate(), asked / (named or kind))
        except SoftIPUError as problem:
            raise failure(type(problem), problem.what) from problem
        native.info("Report written to %s", written[report.PAGE])

    def _is_large(self) -> bool:
        program, _, chip, _ = self._source
        known = arch.chip(chip)
        ipus = 1 + max(
            (node.meta.get("softipu", {}).get("ipu") or 0 for node in program.nodes), default=0
        )
        return bytes_at_most(program) > _LARGE * ipus * known.tiles * known.tile_memory

    def _warn(self) -> None:
        try:
            found = self.estimate()
        except SoftIPUError as problem:
            logger.debug("No estimate: %s", problem)
            return
        logger.info(
            "Modelled: %.0f cycles, %.1f samples/s on %s", found.cycles.total, found.throughput,
            found.settings.chip,
        )  # fmt: skip
        if not found.fits:
            logger.warning("%s\nThe program runs here nevertheless.", out_of_memory(found))


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
    return "\n".join(lines)


def bytes_at_most(program: Any) -> int:
    """All weights, states and results of a program, as if they were in memory at once."""
    specs = [*program.parameters, *program.buffers, *program.state]
    held = sum(_bytes(spec.shape, spec.dtype) for spec in specs)
    return held + sum(_made(node) for node in program.nodes)


def _made(node: Any) -> int:
    """What a node puts into memory that wasn't there before."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or any(result.alias_info is not None for result in schema.returns):
        return 0
    value = node.meta.get("val")
    several = value if isinstance(value, list | tuple) else [value]
    return sum(_bytes(v.shape, v.dtype) for v in several if isinstance(v, torch.Tensor))


def _bytes(shape: Any, dtype: torch.dtype) -> int:
    return int(math.prod(shape)) * min(dtype.itemsize, 4)


def chip_here() -> str:
    """The chip of the system that programs find."""
    return arch.system(devices.active_partition().system).chip.name
