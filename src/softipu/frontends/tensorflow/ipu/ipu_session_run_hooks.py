"""Hooks for monitored sessions of TensorFlow 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import basic_session_run_hooks, session_run_hook

from . import ipu_outfeed_queue


class IPULoggingTensorHook(session_run_hook.SessionRunHook):
    """Logs tensors from inside a compiled function: every so often, or at the end."""

    LoggingMode = ipu_outfeed_queue.IPUOutfeedMode

    def __init__(
        self,
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[dict[str, Any]], str] | None = None,
        logging_mode: ipu_outfeed_queue.IPUOutfeedMode = LoggingMode.LAST,
    ) -> None:
        if every_n_iter is not None and every_n_secs is not None:
            raise ValueError("Cannot provide both every_n_iter and every_n_secs")
        periodic = every_n_iter is not None or every_n_secs is not None
        if not periodic and not at_end:
            raise ValueError("Either every_n_iter, every_n_secs or at_end should be provided")
        self._timer = (
            basic_session_run_hooks.SecondOrStepTimer(
                every_secs=every_n_secs, every_steps=every_n_iter
            )
            if periodic
            else basic_session_run_hooks.NeverTriggerTimer()
        )
        self._log_at_end = at_end
        self._formatter = formatter
        self._outfeed = ipu_outfeed_queue.IPUOutfeedQueue(outfeed_mode=logging_mode)
        self._dequeue_op: Any = None
        self._deleter_op: Any = None
        self._iter_count = 0

    def log(self, tensors: Any) -> Any:
        """The operation that logs: a tensor, a list of them, or a dict from name to tensor."""
        if self._outfeed.enqueued:
            raise RuntimeError(
                "Cannot use this hook object's log function more than once. Either enqueue all "
                "tensors in a single log call using a list or dict, or create another hook."
            )
        return self._outfeed.enqueue(_by_name(tensors))

    def begin(self) -> None:
        if not self._outfeed.enqueued:
            raise RuntimeError(
                "This logging hook's outfeed was not enqueued. Did you forget to call the log "
                "function?"
            )
        with tf.device("/device:CPU:0"):
            self._dequeue_op = self._outfeed.dequeue()
            self._deleter_op = self._outfeed.deleter
        self._iter_count = 0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        del run_values
        if self._timer.should_trigger_for_step(self._iter_count):
            self._log_values(run_context.session.run(self._dequeue_op))
        self._iter_count += 1

    def end(self, session: Any) -> None:
        if self._log_at_end:
            self._log_values(session.run(self._dequeue_op))
        session.run(self._deleter_op)
        self._dequeue_op = self._deleter_op = None
        self._timer.reset()

    def _log_values(self, values: dict[str, Any]) -> None:
        seconds, _ = self._timer.update_last_triggered_step(self._iter_count)
        # Scalars as plain numbers: what loggers and formatters print is read by people and tools.
        with np.printoptions(suppress=True, legacy="1.25"):
            if self._formatter is not None:
                logging.info(self._formatter(values))
                return
            text = ", ".join(f"{name} = {value}" for name, value in values.items())
            if seconds is None:
                logging.info("%s", text)
            else:
                logging.info("%s (%.3f sec)", text, seconds)


def _by_name(tensors: Any) -> dict[str, Any]:
    if isinstance(tensors, dict):
        return tensors
    tensors = tensors if isinstance(tensors, list | tuple) else [tensors]
    for tensor in tensors:
        if not tf.is_tensor(tensor):
            raise TypeError(f"Expected `tf.Tensor`, got {type(tensor)}")
    return {tensor.name: tensor for tensor in tensors}
