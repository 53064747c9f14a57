"""From a row to a graph and settings, by way of PopTorch: models on `meta`, options as users."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import nn

import poptorch
from poptorch._estimate import captured_program
from poptorch._executor_options import own_options
from poptorch._neutral import neutral_graph
from poptorch._neutral_options import settings_of
from softipu.graph import Graph
from softipu.machine.settings import Settings

from . import captures, generation, patches, segmentation, speech, text, vision, windows
from .workloads import Row, Workload

_SHAPES = {"base": text.BASE, "large": text.LARGE, "roberta": text.ROBERTA, "albert": text.ALBERT,
           "deberta": text.DEBERTA}  # fmt: skip
_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p: poptorch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: poptorch.optim.SGD(p, lr=0.1, momentum=0.9, use_combined_accum=True),
    # graphcore/examples add up gradients in half precision: nlp/bert/pytorch/optimization.py,
    # speech/conformer/pytorch/main.py.
    "adam": lambda p: poptorch.optim.Adam(p, lr=1e-3, accum_type=torch.float16),
    "adamw": lambda p: poptorch.optim.AdamW(
        p, lr=1e-3, weight_decay=0.01, accum_type=torch.float16
    ),
    # `enable_half_first_order_momentum` of the same project.
    "adamw, half momentum": lambda p: poptorch.optim.AdamW(
        p,
        lr=1e-3,
        weight_decay=0.01,
        accum_type=torch.float16,
        first_order_momentum_accum_type=torch.float16,
    ),
    # `accum_type` of Swin in single precision.
    "adamw, wide sums": lambda p: poptorch.optim.AdamW(
        p, lr=1e-3, weight_decay=0.01, first_order_momentum_accum_type=torch.float16
    ),
    "lamb": lambda p: poptorch.optim.LAMB(p, lr=1e-3, weight_decay=0.01, accum_type=torch.float16),
    # `lamb_m_dtype` and `lamb_accl_dtype` of MLPerf's configurations.
    "lamb, half momentum": lambda p: poptorch.optim.LAMB(
        p,
        lr=1e-3,
        weight_decay=0.01,
        accum_type=torch.float16,
        first_order_momentum_accum_type=torch.float16,
    ),
    # `accum_type` of ViT's pretraining, `first_order_type` of its fine-tuning.
    "lamb, wide sums": lambda p: poptorch.optim.LAMB(
        p, lr=1e-3, weight_decay=0.01, accum_type=torch.float32
    ),
    "momentum, half": lambda p: poptorch.optim.SGD(
        p, lr=0.1, momentum=0.9, accum_type=torch.float16, velocity_accum_type=torch.float16
    ),
    "rmsprop": lambda p: poptorch.optim.RMSprop(p, lr=1e-3, momentum=0.9),
}
Made = tuple[nn.Module, tuple[torch.Tensor, ...]]


def described_row(row: Row, micro_batch: int | None = None) -> tuple[Graph, Settings]:
    """The graph and settings of a row, or of the same workload with another micro-batch."""
    workload = row.workload
    if micro_batch is not None:
        workload = replace(workload, micro_batch=micro_batch)
    graph = replace(_captured(_Key(workload)), name=row.name).with_schedule(
        accumulation=workload.accumulation, device_iterations=workload.iterations,
        replicas=workload.replicas,
    )  # fmt: skip
    if len(workload.proportion) == 1:  # one is meant for all IPUs
        workload = replace(workload, proportion=workload.proportion * graph.schedule.ipus)
    options = own_options(options_of(workload), workload.training)
    return graph, settings_of(options, workload.chip, workload.training)


#: As many micro-batches as the deepest pipeline needs; how many there are changes no op.
_ENOUGH = 32


class _Key:
    """Rows that differ in numbers around the graph only are captured once."""

    def __init__(self, workload: Workload) -> None:
        count = {"accumulation" if workload.training else "iterations": _ENOUGH}
        alone = replace(workload, accumulation=1, iterations=1, replicas=1, chip="", packing=1.0)
        self.workload = replace(alone, proportion=(), **count)  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return hash(repr(self.workload))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.workload == other.workload


@lru_cache(maxsize=32)
def _captured(key: _Key) -> Graph:
    return captures.kept(repr(key.workload), lambda: _capture(key.workload))


def _capture(workload: Workload) -> Graph:
    batch = workload.micro_batch * workload.accumulation * workload.iterations
    with torch.device("meta"):
        model, inputs = _BUILDERS[workload.model](workload, batch, **workload.arguments)
    model.train(workload.training)
    optimizer = _OPTIMIZERS[workload.optimizer](model.parameters()) if workload.training else None
    options = own_options(options_of(workload), workload.training)
    program = captured_program(model, inputs, options, workload.training, optimizer)
    return neutral_graph(program, options)


def options_of(workload: Workload) -> poptorch.Options:
    options = poptorch.Options()
    options.deviceIterations(workload.iterations)
    options.replicationFactor(workload.replicas)
    if workload.training:
        options.Training.gradientAccumulation(workload.accumulation)
    ipus = {f"IPU{index}": value for index, value in enumerate(workload.proportion)}
    options.setAvailableMemoryProportion(ipus)
    options.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement))
    if workload.half_partials:
        options.Precision.setPartialsType(torch.half)
    if workload.recomputation is not None:
        options._Popart.set(  # type: ignore[attr-defined]
            "autoRecomputation", workload.recomputation
        )
    location = poptorch.TensorLocationSettings().useOnChipStorage(not workload.off_chip_state)
    location.useReplicatedTensorSharding(workload.sharded_state)
    options.TensorLocations.setOptimizerLocation(location)
    if workload.io_tiles:
        options.TensorLocations.numIOTiles(workload.io_tiles)
    return options


def _cnn(
    workload: Workload, batch: int, name: str, splits: tuple[str, ...] = (),
    kept: tuple[str, ...] = (), bytes: bool = True, single_weights: bool = False, **changes: Any,
) -> Made:  # fmt: skip
    model = vision.network(name, **changes)
    vision.begin_stages(model, splits)
    vision.keep(model, kept)
    side = vision.side_of(name)
    dtype = torch.uint8 if bytes else torch.float16
    images = torch.empty(batch, 3, side, side, dtype=dtype)
    if workload.training:
        labels = torch.empty(batch, dtype=torch.int64)
        trained = vision.ClassifyingTrained(model).half()
        if single_weights:
            vision.hold_weights_in_single(trained)
        return trained, (images, labels)
    return (vision.Classifying(model) if bytes else model).half(), (images,)


def _sentences(batch: int, length: int, packed: bool) -> tuple[torch.Tensor, ...]:
    words = torch.empty(batch, length, dtype=torch.int32)
    mask = torch.empty(batch, length, dtype=torch.int32 if packed else torch.float16)
    return words, torch.empty_like(words), mask


def _bert(
    workload: Workload, batch: int, shape: str, length: int, masked: int,
    split: tuple[int, ...] = (), halves: text.Halves = (), serialised: int = 1,
    packed: bool = False, attention_dropout: float = 0.0, vocabulary: int = 30522,
    apart: bool = False, one_mask: bool = False,
) -> Made:  # fmt: skip
    sizes = replace(_SHAPES[shape], vocabulary=vocabulary, apart=apart)
    placed = halves or text.of_layers(split)
    model = text.Pretraining(sizes, placed, serialised, attention_dropout, one_mask).half()
    where = torch.empty(batch, masked, dtype=torch.int64)
    labels = torch.empty(batch, masked, dtype=torch.int64)
    following = torch.empty(batch, dtype=torch.int64)
    return model, (*_sentences(batch, length, packed), where, labels, following)


def _answers(workload: Workload, batch: int, shape: str, length: int, packed: bool = False) -> Made:
    return text.Answering(_SHAPES[shape]).half(), _sentences(batch, length, packed)


def _squad(workload: Workload, batch: int, shape: str, split: tuple[int, ...], length: int) -> Made:
    ends = torch.empty(batch, dtype=torch.int64)
    model = text.AnsweringTrained(_SHAPES[shape], text.of_layers(split)).half()
    return model, (*_sentences(batch, length, False), ends, ends)


def _conformer(workload: Workload, batch: int) -> Made:
    sound = torch.empty(batch, speech.FRAMES, speech.BANDS, dtype=torch.float16)
    words = torch.empty(batch, speech.TARGET, dtype=torch.int64)
    lengths = torch.empty(batch, dtype=torch.int32)
    return speech.Conformer().half(), (sound, lengths, words, words, lengths)


def _unet(workload: Workload, batch: int, split: tuple[int, ...] = ()) -> Made:
    side, known = segmentation.SIDE, segmentation.KNOWN_SIDE
    images = torch.empty(batch, 1, side, side, dtype=torch.float16)
    if workload.training:
        truth = torch.empty(batch, known, known, dtype=torch.float32)
        return segmentation.UNetTrained(split).half(), (images, truth)
    return segmentation.UNet(split).half(), (images,)


def _vit(workload: Workload, batch: int, pretraining: bool = True, bytes: bool = True) -> Made:
    dtype = torch.uint8 if bytes else torch.float16
    images = torch.empty(batch, 3, patches.SIDE, patches.SIDE, dtype=dtype)
    labels = torch.empty(batch, dtype=torch.int64)
    share = torch.empty(batch, 1, 1, 1, dtype=torch.float16)
    model = patches.VisionTransformer(pretraining).half()
    return model, (images, labels, share) if pretraining else (images, labels)


def _gpt2(workload: Workload, batch: int, split: tuple[int, ...], serialised: int) -> Made:
    words = torch.empty(batch, generation.WORDS, dtype=torch.int64)
    return generation.Generating(split, serialised).half(), (words, words)


def _swin(
    workload: Workload, batch: int, shape: str, split: tuple[int, ...], half: bool
) -> Made:  # fmt: skip
    dtype = torch.float16 if half else torch.float32
    images = torch.empty(batch, 3, windows.SIDE, windows.SIDE, dtype=dtype)
    # Mixed images have a share of each class.
    labels = torch.empty(batch, windows.CLASSES, dtype=torch.float32)
    return windows.Swin(windows.SHAPES[shape], split).to(dtype), (images, labels)


_BUILDERS: dict[str, Callable[..., Made]] = {
    "cnn": _cnn, "bert": _bert, "answers": _answers, "squad": _squad, "conformer": _conformer,
    "unet": _unet, "vit": _vit, "gpt2": _gpt2, "swin": _swin,
}  # fmt: skip
