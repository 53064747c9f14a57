"""The operators of PopTorch that models call by name, gathered from the files that define them."""

from __future__ import annotations

from ._blocks import (
    BeginBlock,
    Block,
    BlockFunction,
    LegacyBeginBlockFn,
    NameScope,
    removeBlocks,
)
from ._ops_control import cond, for_loop
from ._ops_ctc import ctc_beam_search_decoder
from ._ops_custom import accessAttributes, custom_op, register_custom_op
from ._ops_geometric import fps, nearest
from ._ops_hints import (
    getIpuTensorId,
    identity_loss,
    nop,
    recomputationCheckpoint,
    serializedMatMul,
    set_available_memory,
)
from ._ops_host import CPU
from ._ops_multiconv import MultiConv
from ._ops_native import register as _register_native_operators
from ._ops_overlap import set_overlap_for_input, set_overlap_for_output
from ._ops_print import ipu_print_tensor
from ._ops_slice import dynamic_slice, dynamic_update

_register_native_operators()

__all__ = [
    "CPU",
    "BeginBlock",
    "Block",
    "BlockFunction",
    "LegacyBeginBlockFn",
    "MultiConv",
    "NameScope",
    "accessAttributes",
    "cond",
    "ctc_beam_search_decoder",
    "custom_op",
    "dynamic_slice",
    "dynamic_update",
    "for_loop",
    "fps",
    "getIpuTensorId",
    "identity_loss",
    "ipu_print_tensor",
    "nearest",
    "nop",
    "recomputationCheckpoint",
    "register_custom_op",
    "removeBlocks",
    "serializedMatMul",
    "set_available_memory",
    "set_overlap_for_input",
    "set_overlap_for_output",
]
