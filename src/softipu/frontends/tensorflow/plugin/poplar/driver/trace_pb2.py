"""Seen as tensorflow.compiler.plugin.poplar.driver.trace_pb2: the events of Graphcore's compiler.

Programs that read them can be imported; softipu has no such compiler and emits no events.
"""

from __future__ import annotations

from ._schema import build

_NAMED = {"module_name": "bytes"}
_names = build(
    "softipu/trace.proto",
    messages={
        "IpuTraceCompileBeginEvent": _NAMED,
        "IpuTraceCompileEndEvent": {
            "duration": "int",
            **_NAMED,
            "tensor_map": "bytes",
            "instruction_info": "bytes",
        },
        "IpuTraceDataTransferEvent": {"data_transfer": "bytes"},
        "IpuTraceLoadEngineEvent": _NAMED,
        "IpuTraceExecuteEvent": {"activity_trace": "bytes", **_NAMED},
        "IpuTraceEvent": {
            "timestamp": "float",
            "ordinal": "int",
            "type": "IpuTraceEvent.Type",
            "compile_begin": "IpuTraceCompileBeginEvent",
            "compile_end": "IpuTraceCompileEndEvent",
            "data_transfer": "IpuTraceDataTransferEvent",
            "load_engine": "IpuTraceLoadEngineEvent",
            "execute": "IpuTraceExecuteEvent",
        },
    },
    enums={
        "IpuTraceEvent.Type": (
            "COMPILE_BEGIN", "COMPILE_END", "HOST_TO_DEVICE_TRANSFER", "DEVICE_TO_HOST_TRANSFER",
            "LOAD_ENGINE", "EXECUTE",
        )
    },
)  # fmt: skip
IpuTraceCompileBeginEvent = _names["IpuTraceCompileBeginEvent"]
IpuTraceCompileEndEvent = _names["IpuTraceCompileEndEvent"]
IpuTraceDataTransferEvent = _names["IpuTraceDataTransferEvent"]
IpuTraceLoadEngineEvent = _names["IpuTraceLoadEngineEvent"]
IpuTraceExecuteEvent = _names["IpuTraceExecuteEvent"]
IpuTraceEvent = _names["IpuTraceEvent"]
