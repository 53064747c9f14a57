"""Seen as tensorflow.compiler.plugin.poplar.driver.option_flag_pb2: Poplar options by name."""

from __future__ import annotations

from ._schema import build

_names = build(
    "softipu/option_flag.proto",
    messages={
        "PoplarOptionFlag": {"option": "str", "value": "str"},
        "PoplarOptionFlags": {"flags": "PoplarOptionFlag*"},
    },
)
PoplarOptionFlag = _names["PoplarOptionFlag"]
PoplarOptionFlags = _names["PoplarOptionFlags"]
