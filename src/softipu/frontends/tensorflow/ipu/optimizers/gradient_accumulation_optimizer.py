"""Optimizers that add up the gradients of several mini-batches, and then update once."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from softipu.frontends.tensorflow import descriptions, replicas

from .. import _run, loops
from .. import gradient_accumulation as ga
from ..gradient_accumulation import GradientAccumulationReductionMethod
from ..ops import _pipeline_trace
from ..ops._pipeline_checks import check_state_sharding
from .cross_replica_optimizer import CrossReplicaOptimizer
from .ipu_optimizer import IpuOptimizer

_SUM = GradientAccumulationReductionMethod.SUM


class GradientAccumulationOptimizerV2(IpuOptimizer):
    """Each `num_mini_batches`-th call of `apply_gradients` updates, with what all of them gave.

    Options about where state is kept are checked, and change no result. `dtype` is the type of the
    accumulators: None for that of the variable, a type, or a function from a variable to a type.
    """

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        offload_weight_update_variables: bool | None = None,
        replicated_optimizer_state_sharding: bool | None = False,
        dtype: Any = None,
        reduction_method: Any = _SUM,
        name: str = "GradientAccumulationOptimizerV2",
    ) -> None:
        super().__init__(opt, name=name)
        _check_mini_batches(num_mini_batches)
        self._num_mini_batches = num_mini_batches
        self._offload_weight_update_variables = offload_weight_update_variables
        self._replicated_optimizer_state_sharding = replicated_optimizer_state_sharding
        self._dtype = dtype
        self._reduction_method = GradientAccumulationReductionMethod.parse(reduction_method)
        self._eager_windows: dict[Any, _Window] = {}

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: Any = None
    ) -> Any:
        check_state_sharding(
            self._replicated_optimizer_state_sharding, self._offload_weight_update_variables
        )
        check_loop(self._num_mini_batches)
        pairs = list(grads_and_vars)
        asked = descriptions.current()
        if asked is not None:
            asked.accumulation = self._num_mini_batches
            return self._opt.apply_gradients(pairs, global_step, name)
        window = self._window(pairs)

        def accumulate() -> None:
            window.add([g for g, _ in pairs if g is not None], update)

        def update(totals: list[tf.Tensor]) -> None:
            ready = iter(totals)
            reduced = [(grad if grad is None else next(ready), var) for grad, var in pairs]
            self._opt.apply_gradients(reduced, global_step, name)

        if tf.executing_eagerly():
            return accumulate()
        return _pipeline_trace.run_as_one_op(self._opt.get_name() + "_WU", accumulate, [])

    def _window(self, pairs: list[tuple[Any, Any]]) -> _Window:
        variables = [var for grad, var in pairs if grad is not None]
        dtypes = [ga.accumulator_dtype(var, self._dtype) for var in variables]
        new = _Window(dtypes, variables, self._reduction_method, self._num_mini_batches)
        if not tf.executing_eagerly():
            return new  # each place in a graph has its own
        return self._eager_windows.setdefault(tuple(v.ref() for v in variables), new)


class _Window:
    """Totals of the mini-batches since the last update, each replica its own.

    They wait in a queue, which is empty before the first mini-batch: unlike variables they need no
    initialisation by the program, and no saver sees them.
    """

    def __init__(
        self,
        dtypes: list[tf.DType],
        variables: list[Any],
        method: GradientAccumulationReductionMethod,
        count: int,
    ) -> None:
        self._dtypes = [tf.int32, *dtypes]
        self._shapes = [tf.TensorShape([]), *(v.shape for v in variables)]
        self._method = method
        self._count = count
        self._queue = replicas.per_replica(
            [replicas.make_queue(self._dtypes, self._shapes) for _ in range(replicas.count())]
        )

    def add(self, gradients: list[Any], update: Any) -> None:
        """Takes the gradients of one mini-batch; the last one calls `update` with totals."""
        done, *totals = self._take()
        factors = ga.scales(self._method, done, self._count)
        totals = [ga.add(t, g, *factors) for t, g in zip(totals, gradients, strict=True)]

        def last() -> tf.Tensor:
            update(totals)
            return tf.constant(True)

        tf.cond(tf.equal(done + 1, self._count), last, lambda: self._put([done + 1, *totals]))

    def _take(self) -> list[tf.Tensor]:
        waiting = tf.raw_ops.QueueSizeV2(handle=self._queue)
        taken = list(tf.cond(waiting > 0, self._dequeue, self._zeros))
        for tensor, shape in zip(taken, self._shapes, strict=True):
            tensor.set_shape(shape)
        return taken

    def _dequeue(self) -> list[tf.Tensor]:
        return list(tf.raw_ops.QueueDequeueV2(handle=self._queue, component_types=self._dtypes))

    def _zeros(self) -> list[tf.Tensor]:
        return [tf.zeros(s, d) for s, d in zip(self._shapes, self._dtypes, strict=True)]

    def _put(self, values: list[tf.Tensor]) -> tf.Tensor:
        tf.raw_ops.QueueEnqueueV2(handle=self._queue, components=values)
        return tf.constant(False)


class CrossReplicaGradientAccumulationOptimizerV2(IpuOptimizer):
    """The same; the totals are averaged over the replicas, once for each update."""

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        offload_weight_update_variables: bool | None = None,
        replicated_optimizer_state_sharding: bool | None = False,
        dtype: Any = None,
        reduction_method: Any = _SUM,
        name: str = "CrossReplicaGradientAccumulationOptimizerV2",
    ) -> None:
        _check_mini_batches(num_mini_batches)
        accumulating = GradientAccumulationOptimizerV2(
            CrossReplicaOptimizer(opt),
            num_mini_batches,
            offload_weight_update_variables,
            replicated_optimizer_state_sharding,
            dtype,
            reduction_method,
            name,
        )
        super().__init__(accumulating, name)


class GradientAccumulationOptimizer(GradientAccumulationOptimizerV2):
    """The older one, which adds, for gradient descent and momentum only."""

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        verify_usage: bool = True,
        name: str = "GradientAccumulationOptimizer",
    ) -> None:
        super().__init__(opt, num_mini_batches, name=name)
        if verify_usage:
            _check_plain(opt)


class CrossReplicaGradientAccumulationOptimizer(IpuOptimizer):
    """The older one, with totals averaged over the replicas."""

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        verify_usage: bool = True,
        name: str = "CrossReplicaGradientAccumulationOptimizer",
    ) -> None:
        _check_mini_batches(num_mini_batches)
        accumulating = GradientAccumulationOptimizer(
            CrossReplicaOptimizer(opt), num_mini_batches, verify_usage
        )
        super().__init__(accumulating, name)


def check_loop(mini_batches: int) -> None:
    """The loop around the optimizer must end with an update; sessions say so when they run it."""
    iterations = loops.iterations()
    if iterations is None or iterations % mini_batches == 0:
        return

    def refuse(_: int) -> None:
        raise tf.errors.FailedPreconditionError(
            None, None,
            f"Detected a gradient accumulation operation with {mini_batches} number of mini "
            f"batches inside a loop with {iterations} iterations.\nIt is required that the number "
            "of mini batches to accumulate evenly divides the number of loop iterations.",
        )  # fmt: skip

    with tf.init_scope():
        eagerly = tf.executing_eagerly()
    if eagerly:
        refuse(1)
    _run.when_settled(refuse)


def _check_mini_batches(count: int) -> None:
    if count < 1:
        raise ValueError("num_mini_batches must be a positive number.")


def _check_plain(opt: Any) -> None:
    inner = opt
    while isinstance(inner, IpuOptimizer):
        inner = inner._opt
    train = tf.compat.v1.train
    if not isinstance(inner, train.GradientDescentOptimizer | train.MomentumOptimizer):
        raise ValueError(
            "GradientAccumulationOptimizer supports GradientDescentOptimizer and MomentumOptimizer"
            f" only, not {type(inner).__name__}. Use GradientAccumulationOptimizerV2, or disable"
            " this check with verify_usage=False."
        )
