"""Seen as tensorflow.compiler.plugin.poplar.driver.config_pb2: an IPUConfig as a message.

The fields of IpuOptions come from the table of IPUConfig.
"""

from __future__ import annotations

from enum import Enum

from softipu.frontends.tensorflow import ipu_options
from softipu.frontends.tensorflow.ipu_options import OPTIONS, Option

from ._schema import build


def _values(kind: type[Enum], prefix: str = "") -> tuple[str, ...]:
    return tuple(prefix + member.name for member in kind)


_ENUMS = {
    "IpuSelectionOrder": _values(ipu_options.SelectionOrder),
    "IpuDeviceConnectionType": _values(ipu_options.DeviceConnectionType),
    "IpuOptionsCreator": ("INVALID", "IPU_UTILS"),
    "IpuExecutionProfileType": _values(ipu_options.ExecutionProfileType),
    "IpuSchedulingAlgorithm": _values(ipu_options.SchedulingAlgorithm),
    "SyntheticDataCategory": (
        "Seed", "Infeed", "Outfeed", "HostEmbedding", "Parameters", "Unknown",
    ),
    "StochasticRoundingBehaviour": (
        "StochasticRounding_Off", "StochasticRounding_On",
        "StochasticRounding_ReplicaIdenticalOnly",
    ),
    "ThreeState": ("THREESTATE_OFF", "THREESTATE_ON", "THREESTATE_UNDEFINED"),
}  # fmt: skip
_MESSAGES: dict[str, dict[str, str]] = {
    "PoplarOptionFlag": {"option": "str", "value": "str"},
    "DeviceConfig": {"auto_count": "int", "cfg_index": "int"},
    "Profiling": {
        "enable_compilation_trace": "bool",
        "enable_io_trace": "bool",
        "execution_trace_type": "IpuExecutionProfileType",
        "enable_ipu_trace_events": "bool",
        "report_directory": "str",
        "max_report_size": "int",
        "graph_options": "PoplarOptionFlag*",
    },
    "IpuOptions": {
        "creator_id": "IpuOptionsCreator",
        "device_config": "DeviceConfig*",
        "profiling": "Profiling",
    },
}
_ENUM_NAMES = {
    ipu_options.SelectionOrder: "IpuSelectionOrder",
    ipu_options.DeviceConnectionType: "IpuDeviceConnectionType",
    ipu_options.SchedulingAlgorithm: "IpuSchedulingAlgorithm",
    ipu_options.StochasticRoundingBehaviour: "StochasticRoundingBehaviour",
    ipu_options.MergeRemoteBuffersBehaviour: "ThreeState",
}


def _kind(option: Option) -> str:
    kind = type(option.default)
    if kind is dict:
        return "PoplarOptionFlag*"
    return _ENUM_NAMES.get(kind, kind.__name__)


def _add_to_messages(option: Option) -> None:
    group, _, name = option.field.removeprefix("!").rpartition(".")
    owner = "IpuOptions"
    if group:
        owner = group.title().replace("_", "")
        _MESSAGES.setdefault(owner, {})
        _MESSAGES["IpuOptions"][group] = owner
    _MESSAGES[owner][name] = _kind(option)


for _option in OPTIONS:
    if _option.field:
        _add_to_messages(_option)

_names = build("softipu/config.proto", _MESSAGES, _ENUMS, oneofs={"DeviceConfig": "selection"})
IpuOptions = _names["IpuOptions"]
IpuSelectionOrder = _names["IpuSelectionOrder"]
IpuDeviceConnectionType = _names["IpuDeviceConnectionType"]
IpuOptionsCreator = _names["IpuOptionsCreator"]
IpuExecutionProfileType = _names["IpuExecutionProfileType"]
IpuSchedulingAlgorithm = _names["IpuSchedulingAlgorithm"]
SyntheticDataCategory = _names["SyntheticDataCategory"]
StochasticRoundingBehaviour = _names["StochasticRoundingBehaviour"]
# Programs also write config_pb2.ALWAYS.
globals().update({value: _names[value] for values in _ENUMS.values() for value in values})
