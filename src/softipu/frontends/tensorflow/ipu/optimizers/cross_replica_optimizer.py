"""The optimizer that averages gradients over replicas."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from softipu.frontends.tensorflow import replicas

from .ipu_optimizer import IpuOptimizer


def apply_cross_replica_op_single(grad: Any, var: Any) -> tuple[Any, Any]:
    return apply_cross_replica_op([(grad, var)])[0]


def apply_cross_replica_op(grads_and_vars: Any) -> list[tuple[Any, Any]]:
    """Each gradient as its mean over the replicas."""
    pairs = list(grads_and_vars)
    if replicas.total() == 1:
        return pairs
    means = iter(replicas.in_one_message([g for g, _ in pairs if g is not None], _mean))
    return [(grad if grad is None else next(means), var) for grad, var in pairs]


def _mean(values: tf.Tensor) -> tf.Tensor:
    return replicas.reduced("sum", values, tf.add_n) / tf.cast(replicas.total(), values.dtype)


class CrossReplicaOptimizer(IpuOptimizer):
    """Averages gradients over the replicas before they are applied."""

    def __init__(self, opt: Any, name: str = "CrossReplicaOptimizer") -> None:
        super().__init__(opt, name=name)

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: Any = None
    ) -> Any:
        return self._opt.apply_gradients(apply_cross_replica_op(grads_and_vars), global_step, name)
