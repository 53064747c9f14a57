"""What ran behind a published figure, as data: the workload, its configuration, who says so.

Rows with a figure of speed are in `rows` and `mlperf_rows`, configurations that are only known to
fit in `memory_rows`. Here is what they are made of.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .packing import packed


@dataclass(frozen=True)
class Workload:
    """What ran: a builder of `build` by name, its arguments, and PopTorch's options in words."""

    model: str
    chip: str
    micro_batch: int
    training: bool = False
    accumulation: int = 1
    iterations: int = 1
    replicas: int = 1
    arguments: dict[str, Any] = field(default_factory=dict)
    proportion: tuple[float, ...] = ()
    half_partials: bool = False
    #: PopART's kind of recomputation; None: what PopTorch chooses.
    recomputation: int | None = None
    off_chip_state: bool = False
    sharded_state: bool = False
    optimizer: str = "sgd"
    io_tiles: int = 0
    #: Sequences in a row of the batch: packed data hold several.
    packing: float = 1.0


@dataclass(frozen=True)
class Row:
    name: str
    family: str
    workload: Workload
    #: Samples each second over all replicas; None: only known to fit.
    figure: float | None
    source: str
    note: str = ""
    #: Whether the machine model's fitted constants saw this row.
    calibrates: bool = False
    #: The source contradicts itself here, or another source does: shown, not counted.
    doubtful: str = ""
    #: Why the micro-batch of a configuration that is known to fit says nothing about how full
    #: memory is; empty: it is taken to be about the largest that fits.
    roomy: str = ""


#: Checkpoints of `resnet50` in graphcore/examples: all block outputs but some, all of layer4.
_RESNET_KEPT = (
    *(f"layer{stage}.{block}" for stage, blocks in
      ((1, (0, 1, 2)), (2, (0, 2, 3)), (3, (0, 2, 4, 5))) for block in blocks),
    *(f"layer4.{block}.{part}" for block in range(3)
      for part in ("conv1", "bn1", "conv2", "bn2", "conv3", "bn3")),
    "layer4.0", "layer4.1", "layer4.2",
)  # fmt: skip
#: Where the sequential stages of the MLPerf configuration end (`resnet50_mlperf_pod16_bs20` in
#: graphcore/examples): what recomputation keeps. Of the last stage only what lies before a
#: checkpoint would be repeated, and it has none (graphcore/tensorflow pipeline_recomputation.cc).
_MLPERF_KEPT = (
    "layer1.0", "layer1.2", "layer2.0", "layer2.2", "layer3.0", "layer3.3",
    *(f"{block}.{part}" for block in ("layer3.4", "layer3.5", "layer4.0", "layer4.1", "layer4.2")
      for part in ("conv1", "bn1", "conv2", "bn2", "conv3", "bn3")),
    "layer4.0.downsample.0", "layer4.0.downsample.1", "layer3.4", "layer3.5", "layer4.0",
    "layer4.1", "layer4.2",
)  # fmt: skip
_RECOMPUTE_ALL = 4


def resnet(
    chip: str, micro_batch: int, accumulation: int, replicas: int, *, mlperf: bool = False,
    proportion: float = 0.16, iterations: int = 1,
) -> Workload:  # fmt: skip
    """Momentum stands for LARS, too, which has the same state."""
    return Workload(
        "cnn", chip, micro_batch, True, accumulation, iterations, replicas,
        {"name": "resnet50", "kept": _MLPERF_KEPT if mlperf else _RESNET_KEPT},
        (proportion,), True, _RECOMPUTE_ALL, optimizer="momentum",
    )  # fmt: skip


_GROUPS_OF_16 = {
    "name": "efficientnet-b4", "efficientnet_group_dim": 16, "efficientnet_expand_ratio": 4,
    "norm_type": "group", "norm_num_groups": 4,
}  # fmt: skip


def efficientnet_torch(accumulation: int) -> Workload:
    """B4 with groups of 16, over two IPUs, as PyTorch's configuration has it."""
    return Workload(
        "cnn", "bow", 4, True, accumulation, 1, 8,
        {**_GROUPS_OF_16, "splits": ("features.4.0.block.2",),
         # `add_1` and `add_3` of the configuration: residual sums of the second group of blocks.
         "kept": ("features.2.1", "features.2.3")},
        (0.1,), True, sharded_state=True, optimizer="rmsprop",
    )  # fmt: skip


def efficientnet(accumulation: int, replicas: int) -> Workload:
    """The same in TensorFlow; the first stage ends with the widening of `block4a`."""
    return Workload(
        "cnn", "bow", 3, True, accumulation, 1, replicas,
        {**_GROUPS_OF_16, "splits": ("features.4.0.block.1",)}, (0.4,), True, optimizer="momentum",
    )  # fmt: skip


def resnext() -> Workload:
    """ResNeXt-101 with groups of 4 channels at first."""
    return Workload(
        "cnn", "bow", 6, True, 16, 1, 8,
        {"name": "resnet101", "group_width": 4, "norm_type": "group", "norm_num_groups": 32,
         "splits": ("layer3.4",)},
        (0.6,), True, optimizer="momentum",
    )  # fmt: skip


def bert(
    shape: str, chip: str, micro_batch: int, accumulation: int, replicas: int,
    proportion: tuple[float, ...], *, length: int = 128, masked: int = 20, off_chip: bool = True,
    sharded: bool = True, packing: float = 1.0, optimizer: str = "lamb", **more: Any,
) -> Workload:  # fmt: skip
    """Pretraining with layers split as nearly all configurations have it."""
    split = (3, 7, 7, 7) if shape == "large" else (0, 4, 4, 4)
    arguments = {"shape": shape, "split": split, "length": length, "masked": masked,
                 "packed": packing > 1, **more}  # fmt: skip
    return Workload(
        "bert", chip, micro_batch, True, accumulation, 1, replicas, arguments, proportion, True,
        off_chip_state=off_chip, sharded_state=sharded, optimizer=optimizer, packing=packing,
    )  # fmt: skip


def bert_large(
    accumulation: int, *, packing: float = 1.0, words: int = 20, replicas: int = 4,
    proportion: tuple[float, ...] = (0.15, 0.25, 0.25, 0.25), **more: Any,
) -> Workload:  # fmt: skip
    return bert("large", "bow", 8, accumulation, replicas, proportion, masked=words,
                packing=packing, **({"serialised": 2} | more))  # fmt: skip


def bert_base(chip: str, accumulation: int, *, proportion: tuple[float, ...] = (0.25,) * 4,
              **more: Any) -> Workload:  # fmt: skip
    return bert("base", chip, 32, accumulation, 4, proportion, **more)


def squad(
    chip: str, micro_batch: int, accumulation: int, iterations: int,
    proportion: tuple[float, ...],
) -> Workload:  # fmt: skip
    """BERT-Large over eight IPUs, twice."""
    return Workload(
        "squad", chip, micro_batch, True, accumulation, iterations, 2,
        {"shape": "large", "split": (2, 3, 3, 3, 3, 3, 3, 4), "length": 384}, proportion, True,
        sharded_state=True, optimizer="adamw, half momentum",
    )  # fmt: skip


def vit(
    micro_batch: int, accumulation: int, replicas: int, *, optimizer: str = "lamb, wide sums",
    iterations: int = 1, sharded: bool = True, **arguments: Any,
) -> Workload:  # fmt: skip
    return Workload(
        "vit", "bow", micro_batch, True, accumulation, iterations, replicas, arguments,
        (0.3,) * 4, True, sharded_state=sharded, optimizer=optimizer,
    )  # fmt: skip


def swin(
    shape: str, micro_batch: int, accumulation: int, replicas: int, split: tuple[int, ...],
    half: bool = False,
) -> Workload:  # fmt: skip
    """State stays on the chip, whole on each replica."""
    return Workload(
        "swin", "bow", micro_batch, True, accumulation, 1, replicas,
        {"shape": shape, "split": split, "half": half}, (0.12,) * len(split), half,
        optimizer="adamw, half momentum" if half else "adamw, wide sums",
    )  # fmt: skip


def gpt2(chip: str, accumulation: int, iterations: int, replicas: int) -> Workload:
    """The small one, on sequences of 1,024 words."""
    return Workload(
        "gpt2", chip, 1, True, accumulation, iterations, replicas,
        {"split": (0, 4, 4, 4), "serialised": 4}, (0.15,) * 4, True, sharded_state=True,
        optimizer="adamw, half momentum",
    )  # fmt: skip


def conformer(chip: str, replicas: int) -> Workload:
    return Workload(
        "conformer", chip, 4, True, 4032 // replicas, 1, replicas, {}, (0.3,) * 4, True,
        optimizer="adam",
    )  # fmt: skip


#: PopART's kind of recomputation that keeps what enters a stage.
RECOMPUTE_STAGES = 3


def unet(chip: str) -> Workload:
    """Training over four IPUs; stages and proportions as its program has them."""
    return Workload(
        "unet", chip, 1, True, 24, 1, 1, {"split": (1, 2, 3)}, (0.7, 0.3, 0.45, 0.7), True,
        RECOMPUTE_STAGES, optimizer="momentum",
    )  # fmt: skip


#: ByteMLPerf has partial sums in half precision unless a configuration says otherwise
#: (backends/IPU/compile_backend_ipu.py); PopRT's example leaves them as they are.
def answers(
    shape: str, batch: int, length: int, proportion: float, packing: float = 1.0,
    half: bool = True, chip: str = "c600",
) -> Workload:  # fmt: skip
    return Workload(
        "answers", chip, batch,
        arguments={"shape": shape, "length": length, "packed": packing > 1},
        proportion=(proportion,), packing=packing, iterations=1, half_partials=half,
    )  # fmt: skip


#: The configurations allow 100 sequences in 40 packs of 384 words, or 20 in 10.
PACKS, FEW_PACKS = packed(40, 384, 100), packed(10, 384, 20)
