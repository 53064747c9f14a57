"""Seen as tensorflow.python.ipu.utils: helpers around configuration, seeds and TensorFlow 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.compiler.plugin.poplar.driver.config_pb2 import IpuOptions, SyntheticDataCategory
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.distribute import values
from tensorflow.python.framework import device as tf_device
from tensorflow.python.framework import ops

from softipu.errors import PoplarFilesUnsupported
from softipu.frontends.tensorflow import flags, system

from .config import (
    DeviceConnectionType,
    ExecutionProfileType,
    IPUConfig,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    configure_ipu_system,
    get_ipu_config,
    running_on_ipu_model,
)

__all__ = [
    "DeviceConnectionType",
    "ExecutionProfileType",
    "IPUConfig",
    "IpuOptions",
    "MergeRemoteBuffersBehaviour",
    "SchedulingAlgorithm",
    "SelectionOrder",
    "SyntheticDataCategory",
    "configure_ipu_system",
    "export_dataset_to_file",
    "export_inputs_to_file",
    "export_variables_from_live_model",
    "export_variables_from_live_session",
    "get_ipu_config",
    "get_num_of_ipus_in_device",
    "import_data_in_live_model",
    "import_data_in_live_session",
    "move_variable_initialization_to_cpu",
    "reset_ipu_seed",
    "running_on_ipu_model",
    "use_synthetic_data_for",
]


def get_num_of_ipus_in_device(ipu_device: str, device: str = "cpu") -> int:
    """How many IPUs a TensorFlow device such as "/device:IPU:0" has, in all instances together."""
    del device  # each instance knows its own
    return system.ipus(_ordinal(ipu_device)) * system.instance()[1]


def _ordinal(ipu_device: str) -> int:
    spec = tf_device.DeviceSpec.from_string(ipu_device)
    if spec.device_type != "IPU" or spec.device_index is None:
        raise ValueError(f'{ipu_device!r} is not an IPU device: expected "/device:IPU:0" or so.')
    return int(spec.device_index)


def reset_ipu_seed(
    seed: int,
    device: str = "/device:IPU:0",
    cpu_device: str = "cpu",
    experimental_identical_replicas: bool = False,
) -> None:
    """Begin the sequence of random numbers anew, from `seed`.

    TensorFlow keeps one such sequence for all devices. In graphs of TensorFlow 1 it counts for
    operations that are added from now on.
    """
    del cpu_device, experimental_identical_replicas  # replicas draw the same numbers in any case
    _ordinal(device)
    tf.random.set_seed(seed)


def move_variable_initialization_to_cpu(graph: Any = None) -> None:
    """Place what computes the initial values of a graph's variables on the CPU.

    Operations that read other variables stay where those are.
    """
    graph = graph or ops.get_default_graph()
    with graph.as_default(), ops.device("/device:CPU:0"):
        tf.no_op(name="cpu")
    waiting = [
        variable.initializer.inputs[1].op
        for variable in graph.get_collection("variables")
        if not isinstance(variable, values.DistributedVariable)  # they place themselves
    ]
    seen = set()
    while waiting:
        op = waiting.pop()
        if op in seen or any(tensor.dtype == tf.resource for tensor in op.inputs):
            continue
        seen.add(op)
        _move_to_cpu(op)
        waiting += [tensor.op for tensor in op.inputs]


def _move_to_cpu(op: Any) -> None:
    op._set_device("/device:CPU:0")
    beside_cpu = attr_value_pb2.AttrValue(list=attr_value_pb2.AttrValue.ListValue(s=[b"loc:@cpu"]))
    op._set_attr("_class", beside_cpu)
    op._set_attr("_XlaCompile", attr_value_pb2.AttrValue(b=False))
    op._set_attr("_XlaScope", attr_value_pb2.AttrValue(s=b""))


def use_synthetic_data_for(synthetic_data_category: int) -> bool:
    """Whether TF_POPLAR_FLAGS says that data of that SyntheticDataCategory is not transferred."""
    return flags.synthetic(SyntheticDataCategory.Name(synthetic_data_category).lower())


def _unsupported(name: str) -> Callable[..., None]:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise PoplarFilesUnsupported(f"ipu.utils.{name} writes or reads files for Poplar programs.")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "Raises an error: the files are for Graphcore's own run time."
    return refuse


export_dataset_to_file = _unsupported("export_dataset_to_file")
export_inputs_to_file = _unsupported("export_inputs_to_file")
export_variables_from_live_session = _unsupported("export_variables_from_live_session")
export_variables_from_live_model = _unsupported("export_variables_from_live_model")
import_data_in_live_session = _unsupported("import_data_in_live_session")
import_data_in_live_model = _unsupported("import_data_in_live_model")
