"""TensorFlow's executor or XLA: whichever was measured faster runs an execution's steps.

On a CPU the executor mostly wins, because its convolutions and products are oneDNN's; XLA may win
where a step has many small operations. So the executor begins; after SOFTIPU_COMPILE_AFTER seconds
a compiled form is built and timed on the next executions.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import compiler_ir, concrete_function
from tensorflow.python.platform import tf_logging

from softipu import settings
from softipu.frontends.tensorflow import executable_cache

_TRIALS = 3
#: Compiled code has to win by this much: three trials on an idle machine were 7 % in favour of code
#: that lost by 8 % beside other processes, and a draw is not worth other rounding.
_GAIN = 0.9
#: Numbers drawn by XLA are others than the executor's, so random steps stay as they are.
_RANDOM = ("Random", "Rng", "Multinomial", "TruncatedNormal", "Stateful", "ParameterizedTrunc")

Run = Callable[[Any], Any]


class Choice:
    """Runs executions, first in one form and then in the faster of two."""

    def __init__(self, executor: Run, compiled: Callable[[], Run | None]) -> None:
        self._executor = executor
        self._make_compiled = compiled
        self._compiled: Run | None = None
        self._seconds = 0.0
        self._patience: float = settings.get("SOFTIPU_COMPILE_AFTER")
        self._settled: Run | None = executor if settings.get("SOFTIPU_DETERMINISTIC") else None
        #: Seconds for each step in the executions that were trials, of the executor and of XLA.
        self._trials: tuple[list[float], list[float]] = ([], [])

    @property
    def form(self) -> str:
        if self._settled is None:
            return "trying"
        return "executor" if self._settled is self._executor else "XLA"

    def __call__(self, iterator: Any, steps: int) -> Any:
        if self._settled is not None:
            return self._settled(iterator)
        if self._compiled is not None:
            return self._trial(self._compiled, iterator, steps)
        if self._seconds < self._patience:
            results, seconds = _timed(self._executor, iterator)
            self._seconds += seconds
            return results
        self._compiled = self._make_compiled()
        if self._compiled is None:
            self._settled = self._executor
            return self._executor(iterator)
        results = self._compiled(iterator)  # no trial yet: XLA compiles it in this call
        executable_cache.seal()
        return results

    def _trial(self, compiled: Run, iterator: Any, steps: int) -> Any:
        """In turns, so that a busy machine hurts both alike."""
        of_executor, of_compiled = self._trials
        executors_turn = len(of_executor) == len(of_compiled)
        results, seconds = _timed(self._executor if executors_turn else compiled, iterator)
        (of_executor if executors_turn else of_compiled).append(seconds / steps)
        if len(of_compiled) == _TRIALS:
            executor, xla = statistics.median(of_executor), statistics.median(of_compiled)
            self._settled = compiled if xla < _GAIN * executor else self._executor
            tf_logging.info(
                f"A step took {executor * 1e3:.3f} ms on TensorFlow's executor and "
                f"{xla * 1e3:.3f} ms compiled by XLA: {self.form} runs from now on."
            )
        return results


def _timed(run: Run, iterator: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    results = run(iterator)
    tf.nest.map_structure(_wait, results)
    return results, time.perf_counter() - start


def _wait(result: Any) -> Any:
    """Executions may return before their results exist; times shall not."""
    return result.numpy() if hasattr(result, "numpy") else result


def compiled_step(step: Any) -> Any:
    """The traced step as XLA compiles it, or None where it can't or would give other numbers."""
    graph = step.graph
    if any(op.type.startswith(_RANDOM) for op in _operations(graph)):
        return None
    made = concrete_function.ConcreteFunction.from_func_graph(
        graph, step.function_type, attrs={"_XlaMustCompile": True}
    )
    try:
        compiler_ir.from_concrete_function(made)(stage="hlo", platform_name="CPU")
    except (tf.errors.OpError, ValueError, TypeError) as error:
        tf_logging.info(f"XLA does not compile {step.name}: {str(error).splitlines()[0]}")
        return None
    return made


def _operations(graph: Any) -> list[Any]:
    inner = [f.graph for f in graph._functions.values() if getattr(f, "graph", None) is not None]
    return [*graph.get_operations(), *(op for g in inner for op in _operations(g))]
