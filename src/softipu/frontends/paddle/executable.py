"""What IpuCompiledProgram.compile makes and Executor.run runs: programs, batching, IPUs."""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import paddle
from paddle.base import core

from softipu.errors import PaddleNotFinite, UnknownFetch

from . import engine, graphs, lowering
from . import feeds as feeding
from .lowering import Lowered
from .plan import Plan
from .strategy import IpuStrategy

if TYPE_CHECKING:
    from softipu.estimating.modelled import Call

#: IPUs have no 64-bit numbers.
_NARROWED = {np.dtype("int64"): np.dtype("int32"), np.dtype("float64"): np.dtype("float32")}


class Executable:
    """A compiled program in its scope."""

    def __init__(
        self,
        lowered: Lowered,
        plan: Plan,
        feeds: list[feeding.Feed],
        fetches: list[str],
        scope: Any,
        options: IpuStrategy,
        source: Any,
    ) -> None:
        self.lowered = lowered
        self.plan = plan
        self.feeds = feeds
        self.fetches = fetches
        self.scope = scope
        self.options = options
        self.source = source
        #: Modelled cycles of a run, once the machine model was asked.
        self.modelled: Call | None = None
        self._executor = paddle.static.Executor(paddle.CPUPlace())
        self._engine: engine.InferenceEngine | None = None
        looks_at_numbers = options["enable_floating_point_checks"]  # only the executor can
        if engine.prefers_onednn(lowered.micro_batch) and not looks_at_numbers:
            self._choose_engine()
        lowering.clear(scope, lowered.micro_batch, lowered.accumulators)

    def _choose_engine(self) -> None:
        program = self.lowered.micro_batch
        if self.plan.training:
            engine.use_onednn(program)
        elif engine.suits_inference_engine(program) and not any(f.is_open for f in self.feeds):
            self._engine = engine.InferenceEngine(program, self.feeds, self.fetches, self.scope)

    @property
    def weight_bytes(self) -> int:
        """What weights and optimiser states take on each IPU, spread evenly."""
        block = self.lowered.micro_batch.global_block()
        total = 0
        for var in block.vars.values():
            if var.persistable and graphs.dtype_of(block, var.name) is not None:
                shape = graphs.shape_of(block, var.name)
                width = feeding.numpy_type(graphs.dtype_of(block, var.name)).itemsize
                total += math.prod(shape) * width if min(shape, default=0) >= 0 else 0
        return total // self.plan.ipus_per_replica

    def fetched(self, feed: Any, fetch_list: Any, numpy: bool) -> list[Any]:
        """What `Executor.run` returns."""
        from .backend import IpuBackend

        outputs = self.run(feed, fetch_list, IpuBackend.get_instance())
        return outputs if numpy else [as_tensor(array) for array in outputs]

    @graphs.in_static_mode
    def run(self, feed: Any, fetch_list: Any, backend: Any) -> list[Any]:
        """One step: every micro-batch of it, and the weight updates between."""
        names = self._wanted(fetch_list)
        batches, short = feeding.divide(self.feeds, feed, self.plan)
        attachment = backend.attached(self)
        begun = time.perf_counter()
        with _checking_numbers(self.options["enable_floating_point_checks"]):
            results = self._steps(batches, names)
        outputs = [self._gathered(parts, short) for parts in zip(*results, strict=True)]
        attachment.account(
            time.perf_counter() - begun,
            sum(array.nbytes for batch in batches for array in batch.values()),
            sum(array.nbytes for array in outputs),
            # A training program that only evaluates does less than was estimated.
            0 if self.modelled is None or self._evaluates else self.modelled.cycles(),
        )
        return outputs

    @property
    def _evaluates(self) -> bool:
        return self.plan.training and bool(self.options["runtime_options.enable_eval"])

    def _wanted(self, fetch_list: Any) -> list[str]:
        names = names_of(fetch_list) if fetch_list is not None else self.fetches
        unknown = [name for name in names if name not in self.fetches]
        if unknown:
            raise UnknownFetch(
                f"{', '.join(unknown)} was not given to compile(), whose fetch_list is "
                f"{self.fetches}."
            )
        return names

    def _steps(self, batches: list[dict[str, Any]], names: list[str]) -> list[list[Any]]:
        lowered, plan = self.lowered, self.plan
        self._set_learning_rate()
        evaluates = self._evaluates
        program = lowered.evaluation if evaluates else lowered.micro_batch
        results = []
        try:
            for index, batch in enumerate(batches):
                results.append(self._run(program, batch, names))
                last = (index + 1) % plan.micro_batches_per_update == 0
                if last and lowered.update is not None and not evaluates:
                    self._run(lowered.update, {}, [])
        except BaseException:
            lowering.clear(self.scope, lowered.micro_batch, lowered.accumulators)
            raise
        return results

    def _run(self, program: Any, feed: dict[str, Any], names: list[str]) -> list[Any]:
        if self._engine is not None:
            return self._engine.run(feed, names)
        found: list[Any] = self._executor.run(
            program, feed=feed, fetch_list=names, scope=self.scope, return_numpy=True
        )
        return found

    def _set_learning_rate(self) -> None:
        scheduler = getattr(self.source, "lr_scheduler", None)
        if scheduler is not None:
            tensor = graphs.tensor_of(self.scope, scheduler._var_name)
            tensor.set(np.array([scheduler()], dtype=np.array(tensor).dtype), paddle.CPUPlace())
        elif self.options["is_dynamic"] and self.plan.training:
            for name in _learning_rates(self.lowered):
                tensor = graphs.tensor_of(self.scope, name)
                if tensor is not None:
                    rate = np.full_like(np.array(tensor), self.options["lr"])
                    tensor.set(rate, paddle.CPUPlace())

    def _gathered(self, parts: Sequence[Any], short: feeding.Short | None) -> np.ndarray[Any, Any]:
        """Results of all micro-batches as Paddle returns them from an IPU."""
        arrays = [np.asarray(part) for part in parts]
        shape = arrays[0].shape
        stacked = arrays[0] if len(arrays) == 1 else np.stack(arrays)
        stacked = stacked.astype(_NARROWED.get(stacked.dtype, stacked.dtype), copy=False)
        if short is not None and shape[:1] == (short.of,):  # as many rows as were fed
            return stacked.reshape(-1, *shape[1:])[: short.rows]
        # The order of data is PopART's (step, accumulation, replica); the shape is Paddle's.
        return stacked.reshape((*self.plan.leading, *shape) or (1,))


def names_of(fetch_list: Any) -> list[str]:
    """Names in a list of names and variables, which may be nested."""
    if isinstance(fetch_list, str):
        return [fetch_list]
    if isinstance(fetch_list, list | tuple):
        return [name for item in fetch_list for name in names_of(item)]
    if not isinstance(getattr(fetch_list, "name", None), str):
        raise TypeError(
            "feed_list and fetch_list take names and variables of the program, but got "
            f"{fetch_list!r} ({type(fetch_list).__name__})."
        )
    return [fetch_list.name]


def as_tensor(array: np.ndarray[Any, Any]) -> Any:
    tensor = core.DenseTensor()
    tensor.set(array, paddle.CPUPlace())
    return tensor


def _learning_rates(lowered: Lowered) -> set[str]:
    program = lowered.update or lowered.micro_batch
    return {
        name
        for op in program.global_block().ops
        if "LearningRate" in op.input_names
        for name in op.input("LearningRate")
    }


@contextlib.contextmanager
def _checking_numbers(wanted: bool) -> Iterator[None]:
    """Paddle's own check of every operation's results, for the time of a run."""
    if not wanted:
        yield
        return
    before = paddle.get_flags(["FLAGS_check_nan_inf"])
    paddle.set_flags({"FLAGS_check_nan_inf": True})
    try:
        yield
    except Exception as error:
        found = _NOT_FINITE.search(str(error))
        if found is None:
            raise
        raise PaddleNotFinite(
            f"The operation {found['op']} made {found['nan']} NaN and {found['inf']} infinite "
            f"numbers."
        ) from error
    finally:
        paddle.set_flags(before)


#: What Paddle's check says.
_NOT_FINITE = re.compile(r"num_nan=(?P<nan>\d+), num_inf=(?P<inf>\d+).*?op=(?P<op>\w+)", re.DOTALL)
