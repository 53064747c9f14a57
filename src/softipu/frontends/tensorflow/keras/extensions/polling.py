"""Callbacks that are told of each step while the IPUs go on with the next ones."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Any

from tf_keras.src import callbacks as callbacks_module
from tf_keras.src.engine import training

from softipu.frontends.tensorflow import system

from .execution import Execution
from .step_queue import StepQueue

_WAIT_SECONDS = 0.001
#: What Keras's loop calls around an execution; here these say nothing, the thread speaks instead.
_BATCH_METHODS = tuple(
    f"on_{mode}_batch_{end}" for mode in ("train", "test", "predict") for end in ("begin", "end")
)


class StepwiseCallbacks(callbacks_module.CallbackList):
    """Callbacks that hear of batches from the polling thread only."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._step = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._step = 0
        super().on_epoch_begin(epoch, logs)

    def on_test_begin(self, logs: Any = None) -> None:
        self._train_step, self._step = self._step, 0
        super().on_test_begin(logs)

    def on_test_end(self, logs: Any = None) -> None:
        self._step = self._train_step
        super().on_test_end(logs)

    def tell(self, mode: str, each: list[Any]) -> None:
        """One step is done; `each` are its results in each replica."""
        for results in each:
            logs = {"outputs": results} if mode == "predict" else results
            speak = callbacks_module.CallbackList
            getattr(speak, f"on_{mode}_batch_begin")(self, self._step)
            getattr(speak, f"on_{mode}_batch_end")(self, self._step, logs)
        self._step += 1


def _silent(self: Any, batch: int, logs: Any = None) -> None:
    """Keras's loop knows of whole executions, not of steps."""


for _name in _BATCH_METHODS:
    setattr(StepwiseCallbacks, _name, _silent)


class PollingThread(threading.Thread):
    """Takes results of steps from a queue and tells the callbacks."""

    def __init__(self, queue: StepQueue, steps: int, tell: Callable[[list[Any]], None]) -> None:
        super().__init__(daemon=True)
        self._queue, self._steps, self._tell = queue, steps, tell
        self._cancelled = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            told = 0
            while told < self._steps and not self._cancelled.is_set():
                each = self._queue.take()
                if each is None:
                    self._cancelled.wait(_WAIT_SECONDS)
                    continue
                self._tell(each)
                told += 1
        except BaseException as error:  # noqa: BLE001  (raised again where the user waits)
            self._error = error

    def cancel(self) -> None:
        self._cancelled.set()
        self.join()

    def finish(self) -> None:
        self.join()
        if self._error is not None:
            raise self._error


def polled(model: Any, execution: Execution, mode: str) -> Callable[[Any], Any]:
    """The execution, with callbacks for each of its steps."""
    if execution.queue is None:
        execution.tell_every_step(StepQueue(model._get_replication_factor()))
    queue = execution.queue
    assert queue is not None

    def run(iterator: Any) -> Any:
        if system.pre_compiling():  # no step runs, so there is nothing to hear of
            return execution(iterator)
        steps = int(model._steps_per_execution.numpy())
        callbacks = model._ipu_run.stepwise  # the caller's, not the polling thread's
        thread = PollingThread(queue, steps, lambda each: callbacks.tell(mode, each))
        thread.start()
        try:
            results = execution(iterator)
            thread.finish()
        except BaseException:
            thread.cancel()
            queue.clear()  # what steps said before, and no callback heard
            raise
        return results

    return run


def with_stepwise_callbacks(model: Any, name: str, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments of fit, evaluate or predict, with callbacks that are told of each step."""
    signature = inspect.signature(getattr(training.Model, name))
    bound = signature.bind(model, *args, **kwargs)
    bound.apply_defaults()
    given = dict(bound.arguments)
    given.pop("self")
    given.update(given.pop("kwargs", {}))
    callbacks = given["callbacks"]
    if not isinstance(callbacks, StepwiseCallbacks):
        verbose = training._get_verbosity(given["verbose"], model.distribute_strategy)
        # Keras adds nothing to a list that the user made, but gives its history back.
        listed = isinstance(callbacks, callbacks_module.CallbackList)
        given["callbacks"] = StepwiseCallbacks(
            callbacks.callbacks if listed else callbacks, add_history=True,
            add_progbar=verbose != 0 and not listed, model=model,
            verbose=verbose, epochs=given.get("epochs", 1), steps=None,
        )  # fmt: skip
    return given


def know_steps(callbacks: Any, steps: int) -> None:
    """The number of steps is known once the data is."""
    callbacks.params["steps"] = steps
    callbacks.set_params(callbacks.params)
