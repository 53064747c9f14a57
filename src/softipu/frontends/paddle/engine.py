"""Which of Paddle's CPU engines runs a program: its executor, or its inference engine.

Inference programs with enough work go to the inference engine, with oneDNN and all fusions; their
weights are then those of the time of compilation, as on an IPU. Training stays with the executor,
with convolutions on oneDNN.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import paddle

from softipu import settings

from . import graphs
from .feeds import Feed

#: Multiplications in a micro-batch below which no engine is worth its preparation.
_WORTH = 10_000_000
#: Operations that the inference engine would turn to another meaning or can't have.
_MODES = ("batch_norm", "sync_batch_norm", "dropout", "data_norm", "rnn")
_NOT_THERE = ("py_func", "print", "while", "conditional_block")
#: Operations that draw random numbers, and have no attribute `seed` to be known by. The engine
#: computes what depends on no input once and for all, random numbers too.
_RANDOM = (
    "bernoulli", "binomial", "dirichlet", "exponential", "gumbel_softmax", "multinomial", "poisson",
    "shuffle_batch", "standard_gamma", "graph_khop_sampler", "graph_sample_neighbors",
    "weighted_sample_neighbors",
)  # fmt: skip
_CONVOLUTIONS = ("conv2d", "depthwise_conv2d")


def prefers_onednn(program: Any) -> bool:
    return bool(settings.get("SOFTIPU_PADDLE_ONEDNN")) and work_of(program) >= _WORTH


def use_onednn(program: Any) -> None:
    """Convolutions and their gradients on oneDNN; in other layouts its gradients are wrong."""
    for op in program.global_block().ops:
        channels_first = not op.has_attr("data_format") or op.attr("data_format") != "NHWC"
        if op.type.removesuffix("_grad") in _CONVOLUTIONS and channels_first:
            op._set_attr("use_onednn", True)


def work_of(program: Any) -> int:
    """Multiplications of all convolutions and matrix products of the forward part."""
    return sum(_multiplications(op) for op in program.global_block().ops)


def _multiplications(op: Any) -> int:
    block = op.block
    if op.type in _CONVOLUTIONS:
        _, *filters = graphs.shape_of(block, op.input("Filter")[0])
        return _size(block, op.output("Output")[0]) * math.prod(filters)
    if op.type in ("matmul_v2", "matmul", "mul"):
        shape = graphs.shape_of(block, op.input("X")[0]) or [1]
        transposed = op.type != "mul" and any(
            op.has_attr(name) and op.attr(name) for name in ("trans_x", "transpose_X")
        )
        inner = shape[-2] if transposed and len(shape) > 1 else shape[-1]
        return _size(block, op.output("Out")[0]) * abs(inner)
    return 0


def _size(block: Any, name: str) -> int:
    return math.prod(abs(size) for size in graphs.shape_of(block, name))


def suits_inference_engine(program: Any) -> bool:
    """Whether the inference engine runs the program with the meaning it has."""
    for op in program.global_block().ops:
        if op.type in _NOT_THERE or _draws(op) or (op.type in _MODES and not _only_tests(op, True)):
            return False
        for name in (*op.input_arg_names, *op.output_arg_names):
            if graphs.dtype_of(op.block, name) == graphs.HALF:
                return False
    return True


def _draws(op: Any) -> bool:
    """Whether the operation gives other numbers each time."""
    return op.type in _RANDOM or (op.has_attr("seed") and not _only_tests(op, False))


def _only_tests(op: Any, otherwise: bool) -> bool:
    """What `is_test` says, of an operation that also trains."""
    return bool(op.attr("is_test")) if op.has_attr("is_test") else otherwise


class InferenceEngine:
    """A program in Paddle's inference engine, with its own copy of the weights."""

    def __init__(self, program: Any, feeds: list[Feed], fetches: list[str], scope: Any) -> None:
        block = program.global_block()
        inputs = [block.var(feed.name) for feed in feeds]
        outputs = [block.var(name) for name in fetches]
        executor = paddle.static.Executor(paddle.CPUPlace())
        with paddle.static.scope_guard(scope), paddle.static.program_guard(program):
            normal = paddle.static.normalize_program(program, inputs, outputs)
            model = paddle.static.serialize_program(inputs, outputs, program=normal)
            before = set(scope.local_var_names())
            weights = paddle.static.serialize_persistables(
                inputs, outputs, executor, program=normal
            )
            # Paddle leaves these bytes in the scope, where they would stay as long as the weights.
            scope.erase(sorted({*scope.local_var_names()} - before))
        self._predictor = _predictor(model, weights or b"")
        self._inputs = {name: self._predictor.get_input_handle(name)
                        for name in self._predictor.get_input_names()}  # fmt: skip
        names = self._predictor.get_output_names()
        self._outputs = dict(
            zip(fetches, (self._predictor.get_output_handle(name) for name in names), strict=True)
        )

    def run(self, feed: dict[str, Any], names: list[str]) -> list[Any]:
        for name, handle in self._inputs.items():
            handle.copy_from_cpu(np.ascontiguousarray(feed[name]))
        self._predictor.run()
        return [self._outputs[name].copy_to_cpu() for name in names]


def _predictor(model: bytes, weights: bytes) -> Any:
    from paddle import inference

    config = inference.Config()
    config.set_model_buffer(model, len(model), weights, len(weights))
    config.disable_gpu()
    config.enable_mkldnn()
    config.switch_ir_optim(True)
    config.disable_glog_info()
    return inference.create_predictor(config)
