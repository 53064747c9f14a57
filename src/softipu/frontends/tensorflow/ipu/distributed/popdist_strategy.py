"""The strategy for programs that PopDist starts: gradients are means over all replicas.

Unlike IPUStrategy it tells Keras how many replicas there are, so that losses are scaled by it.
"""

from __future__ import annotations

from typing import Any

from tensorflow.python.distribute import device_util, distribute_lib
from tensorflow.python.framework import device as tf_device

from softipu.frontends.tensorflow import replicas, system

from .. import ipu_strategy
from . import _instances, host_collective_ops


class PopDistStrategy(ipu_strategy.IPUStrategyV1):
    """Replicas over all IPUs of all instances, of which there is one for now."""

    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        add_ipu_cross_replica_reductions: bool = True,
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ) -> None:
        _instances.start()
        super().__init__(
            ipu_device,
            enable_dataset_iterators=enable_dataset_iterators,
            enable_keras_extensions=enable_keras_extensions,
        )
        extended = PopDistExtendedV1(self, ipu_device, add_ipu_cross_replica_reductions)
        distribute_lib.StrategyV1.__init__(self, extended)

    def update_ipu_config(self, config: Any) -> None:
        """Tells the configuration which of the instances this is."""
        distribution = config.experimental.multi_replica_distribution
        distribution.process_count = _instances.count()
        distribution.process_index = _instances.index()


class PopDistExtendedV1(ipu_strategy.IPUExtendedV1):
    def __init__(self, container: Any, ipu_device: str, add_reductions: bool) -> None:
        super().__init__(container, ipu_device, "/device:CPU:0")
        self._add_ipu_cross_replica_reductions = add_reductions

    @property
    def _num_replicas_in_sync(self) -> int:
        return replicas.count() if replicas.tracing() is not None else system.ipus()

    def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
        on_ipu = tf_device.DeviceSpec.from_string(device_util.current()).device_type == "IPU"
        if not on_ipu:
            return host_collective_ops.allreduce(value, reduce_op)
        if not self._add_ipu_cross_replica_reductions:
            return value
        return super()._reduce_to(reduce_op, value, destinations, options)
