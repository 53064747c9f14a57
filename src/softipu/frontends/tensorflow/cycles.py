"""Cycles of the modelled IPU: counted with what runs, and logged where --log_cycle_count asks."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tensorflow.python.platform import tf_logging

from . import flags, system

if TYPE_CHECKING:
    from softipu.estimating.modelled import Call

#: What was asked for by a flag is shown, though TensorFlow's own lines of this level are not.
_logger = logging.getLogger("tensorflow.cycles")
_logger.setLevel(logging.INFO)


def asked() -> bool:
    """Whether the cycles of each call are to be logged; the IPU model has no counter."""
    return flags.get().log_cycle_count >= 0 and not system.uses_model()


def count(call: Call | None, ordinal: int = 0, iterations: int | None = None) -> None:
    """A call has run on a device, with so many iterations where calls differ in length."""
    cycles = 0 if call is None else call.cycles(iterations)
    if not cycles:
        return
    system.account(0.0, ordinal=ordinal, cycles=cycles)
    if asked():
        tf_logging.get_logger()  # whose handler shows the line
        _logger.info("Cycle count: %d (modelled, the same for every tile)", cycles)
