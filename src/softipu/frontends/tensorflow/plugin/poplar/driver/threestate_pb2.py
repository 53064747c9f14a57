"""Seen as tensorflow.compiler.plugin.poplar.driver.threestate_pb2: off, on, or not said."""

from __future__ import annotations

from ._schema import build

_names = build(
    "softipu/threestate.proto",
    enums={"ThreeState": ("THREESTATE_OFF", "THREESTATE_ON", "THREESTATE_UNDEFINED")},
)
ThreeState = _names["ThreeState"]
THREESTATE_OFF = _names["THREESTATE_OFF"]
THREESTATE_ON = _names["THREESTATE_ON"]
THREESTATE_UNDEFINED = _names["THREESTATE_UNDEFINED"]
