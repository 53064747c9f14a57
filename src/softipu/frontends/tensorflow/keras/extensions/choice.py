"""TensorFlow's executor, steps on one thread each, or XLA: what was measured faster runs the steps.

The executor hands operations from thread to thread, which for small ones takes longer than they do;
large ones may run beside each other there. XLA may win where a step has many small operations, but
on a CPU it lacks oneDNN's convolutions and products. So the executor begins; after
SOFTIPU_COMPILE_AFTER seconds the other forms are built and timed on the next executions.
"""

from __future__ import annotations

import re
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import compiler_ir, concrete_function
from tensorflow.python.platform import tf_logging

from softipu import settings
from softipu.frontends.tensorflow import executable_cache

_TRIALS = 3
#: What a form's time must be below, as a part of the executor's. Compiled code has to win by more:
#: three trials on an idle machine were 7 % in favour of code that lost by 8 % beside other
#: processes, and a draw is not worth other rounding.
_ENOUGH = {"executor": 1.0, "one thread": 0.98, "XLA": 0.9}
#: Each form draws numbers of its own, so random steps stay as they are.
_RANDOM = ("Random", "Rng", "Multinomial", "TruncatedNormal", "Stateful", "ParameterizedTrunc")
_CALL = "StatefulPartitionedCall"
_ONE_THREAD = "SINGLE_THREADED_EXECUTOR"
#: Loops and conditions that were taken apart: this executor does not take them.
_CONTROL_FLOW = ("Switch", "RefSwitch", "Merge", "RefMerge", "Enter", "RefEnter", "Exit", "RefExit")
#: Of what has state, only variables never keep anybody waiting.
_OF_VARIABLES = re.compile(
    r"VarHandleOp|ReadVariableOp|VarIsInitializedOp|Assign(Add|Sub)?VariableOp|"
    r"Resource(Sparse)?Apply\w+|ResourceGather(Nd)?|ResourceScatter\w+|ResourceStridedSliceAssign"
)

Run = Callable[[Any], Any]


@dataclass
class Form:
    """A way to run an execution. `name` is a key of `_ENOUGH`."""

    name: str
    run: Run
    #: For each step, in the executions that were trials.
    seconds: list[float] = field(default_factory=list)

    @property
    def milliseconds(self) -> float:
        return statistics.median(self.seconds) * 1e3


class Choice:
    """Runs executions, first in one form and then in the fastest."""

    def __init__(self, executor: Run, rivals: Callable[[], list[Form]]) -> None:
        """`rivals` builds the other forms there are."""
        self._executor = Form("executor", executor)
        self._make_rivals = rivals
        self._seconds = 0.0
        self._patience: float = settings.get("SOFTIPU_COMPILE_AFTER")
        #: All of them, once they are built; and those that have not run yet.
        self._forms: list[Form] = []
        self._new: list[Form] = []
        self._settled = self._executor if settings.get("SOFTIPU_DETERMINISTIC") else None
        #: Held by the thread whose execution is measured, or builds or warms a form.
        self._trying = threading.Lock()

    @property
    def form(self) -> str:
        return "trying" if self._settled is None else self._settled.name

    def __call__(self, iterator: Any, steps: int) -> Any:
        if self._settled is not None:
            return self._settled.run(iterator)
        if not self._trying.acquire(blocking=False):  # its time would tell nothing
            return self._executor.run(iterator)
        try:
            return self._try(iterator, steps)
        finally:
            self._trying.release()

    def _try(self, iterator: Any, steps: int) -> Any:
        if self._seconds < self._patience:
            results, seconds = _timed(self._executor, iterator)
            self._seconds += seconds
            return results
        if not self._forms:
            self._new = self._make_rivals()
            self._forms = [self._executor, *self._new]
        if self._new:  # no trial yet: XLA compiles in this call
            results = self._new.pop(0).run(iterator)
            executable_cache.seal()
            return results
        return self._trial(iterator, steps)

    def _trial(self, iterator: Any, steps: int) -> Any:
        """In turns, so that a busy machine hurts all alike."""
        form = min(self._forms, key=lambda form: len(form.seconds))
        results, seconds = _timed(form, iterator)
        form.seconds.append(seconds / steps)
        if all(len(form.seconds) == _TRIALS for form in self._forms):
            self._settle()
        return results

    def _settle(self) -> None:
        self._settled = min(self._forms, key=lambda form: form.milliseconds / _ENOUGH[form.name])
        times = ", ".join(f"{form.milliseconds:.3f} ms ({form.name})" for form in self._forms)
        tf_logging.info(f"A step took {times}: {self.form} runs from now on.")


def _timed(form: Form, iterator: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    results = form.run(iterator)
    tf.nest.map_structure(_wait, results)
    return results, time.perf_counter() - start


def _wait(result: Any) -> Any:
    """Executions may return before their results exist; times shall not."""
    return result.numpy() if hasattr(result, "numpy") else result


def draws_numbers(function: Any) -> bool:
    """Whether a traced function, or one that it calls, does."""
    operations = _operations(function.graph)
    return any(op.type.startswith(_RANDOM) and op.type != _CALL for op in operations)


class OnOneThread:
    """A traced step whose operations run one after the other on a thread of their own.

    Only the step: a loop there would hold a thread while it waits for data or for another function,
    and if all threads are held like that nothing goes on any more.
    """

    def __init__(self, step: Any) -> None:
        self._step = concrete_function.ConcreteFunction.from_func_graph(
            step.graph, step.function_type, attrs={"_noinline": True}
        )
        self.structured_outputs = step.structured_outputs

    def __call__(self, data: Any) -> Any:
        """While the loop is traced; the call keeps what the context says."""
        with context.function_executor_type(_ONE_THREAD):
            return self._step(data)


def fits_one_thread(step: Any) -> bool:
    """Whether nothing in a traced step waits for something that may need its thread."""
    return not any(_may_wait(op) for op in step.graph.get_operations())


def _may_wait(op: Any) -> bool:
    if op.type in _CONTROL_FLOW or op.type.startswith("PyFunc"):
        return True
    if any(attr.type == "func" or attr.type == "list(func)" for attr in op.op_def.attr):
        return True
    return op.op_def.is_stateful and not _OF_VARIABLES.fullmatch(op.type)


def compiled_step(step: Any) -> Any:
    """The traced step as XLA compiles it, or None where it can't."""
    made = concrete_function.ConcreteFunction.from_func_graph(
        step.graph, step.function_type, attrs={"_XlaMustCompile": True}
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
