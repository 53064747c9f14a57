"""Published throughput as data: what ran, how it was configured, what was measured, who says so.

What a source leaves open is filled from the same project's configuration files, and said in `note`.
Configurations without a figure are in `memory_rows`.
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


_GRAPHCORE = "www.graphcore.cn/performance-results (stored crawl)"
_CONFORMER = "graphcore/examples speech/conformer/pytorch/README.md"
_BYTE = "bytedance/ByteMLPerf byte_infer_perf/general_perf/reports/IPU"
_ALCF = "argonne-lcf/user-guides docs/ai-testbed/graphcore"

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
    proportion: float = 0.16,
) -> Workload:  # fmt: skip
    return Workload(
        "cnn", chip, micro_batch, True, accumulation, 1, replicas,
        {"name": "resnet50", "kept": _MLPERF_KEPT if mlperf else _RESNET_KEPT},
        (proportion,), True, _RECOMPUTE_ALL, optimizer="momentum",
    )  # fmt: skip


def _efficientnet(micro_batch: int, accumulation: int, *, half_partials: bool = True) -> Workload:
    """B4 with groups of 16, over two IPUs; the split is a little past the middle of the blocks."""
    return Workload(
        "cnn", "bow", micro_batch, True, accumulation, 1, 8,
        {"name": "efficientnet-b4", "efficientnet_group_dim": 16, "efficientnet_expand_ratio": 4,
         "norm_type": "group", "norm_num_groups": 4, "splits": ("features.4.0.block.2",),
         # `add_1` and `add_3` of the configuration: residual sums of the second group of blocks.
         "kept": ("features.2.1", "features.2.3")},
        (0.1,), half_partials, sharded_state=True, optimizer="rmsprop",
    )  # fmt: skip


def bert_large(accumulation: int, *, packing: float = 1.0, words: int = 20, off_chip: bool = True,
                proportion: tuple[float, ...] = (0.15, 0.25, 0.25, 0.25)) -> Workload:  # fmt: skip
    return Workload(
        "bert", "bow", 8, True, accumulation, 1, 4,
        {"shape": "large", "split": (3, 7, 7, 7), "length": 128, "masked": words,
         "serialised": 2, "packed": packing > 1},
        proportion, True, off_chip_state=off_chip, sharded_state=off_chip, optimizer="lamb",
        packing=packing,
    )  # fmt: skip


def bert_base(chip: str, accumulation: int, *, off_chip: bool = True,
               proportion: tuple[float, ...] = (0.25,) * 4) -> Workload:  # fmt: skip
    return Workload(
        "bert", chip, 32, True, accumulation, 1, 4,
        {"shape": "base", "split": (0, 4, 4, 4), "length": 128, "masked": 20},
        proportion, True, off_chip_state=off_chip, sharded_state=off_chip, optimizer="lamb",
    )  # fmt: skip


def _conformer(chip: str, replicas: int) -> Workload:
    return Workload(
        "conformer", chip, 4, True, 4032 // replicas, 1, replicas, {}, (0.3,) * 4, True,
        optimizer="adam",
    )  # fmt: skip


#: ByteMLPerf has partial sums in half precision unless a configuration says otherwise
#: (backends/IPU/compile_backend_ipu.py); PopRT's example leaves them as they are.
def answers(shape: str, batch: int, length: int, proportion: float, packing: float = 1.0,
             half: bool = True, chip: str = "c600") -> Workload:  # fmt: skip
    return Workload(
        "answers", chip, batch, arguments={"shape": shape, "length": length,
                                             "packed": packing > 1},
        proportion=(proportion,), packing=packing, iterations=1, half_partials=half,
    )  # fmt: skip


_TF_STATE = "optimiser state off the chip, as in the TensorFlow 2 configuration of the same project"
#: The configurations allow 100 sequences in 40 packs of 384 words, or 20 in 10.
PACKS, FEW_PACKS = packed(40, 384, 100), packed(10, 384, 20)
_PACKED = (
    f"packs of 384 words hold {PACKS:.2f} sequences: lengths as the benchmark draws them, each "
    "put into the first pack with room"
)

ROWS: tuple[Row, ...] = (
    Row("ResNet-50 training, TF1, batch 1920", "ResNet", resnet("bow", 20, 6, 16, mlperf=True,
        proportion=0.15), 42029, _GRAPHCORE, "MLPerf configuration with micro-batch 20"),
    Row("ResNet-50 training, TF1, batch 3520", "ResNet", resnet("bow", 20, 11, 16, mlperf=True,
        proportion=0.15), 44059, _GRAPHCORE, "MLPerf configuration with micro-batch 20",
        calibrates=True),
    Row("ResNet-50 training, PyTorch, batch 16384", "ResNet", resnet("bow", 16, 64, 16), 37061,
        _GRAPHCORE, "micro-batch 16, the only one near 18 that divides the batch"),
    Row("ResNet-50 training, MLPerf v1.1, POD16", "ResNet", resnet("mk2", 20, 6, 16, mlperf=True,
        proportion=0.15), 30000, "graphcore.ai MLPerf post", "stated as 30k",
        calibrates=True),
    Row("ResNet-50 training, 2 IPUs, ALCF", "ResNet", resnet("bow", 18, 456, 2), 4798.8,
        f"{_ALCF}/files/ResNet50_throughput.ods"),
    Row("ResNet-50 training, 4 IPUs, ALCF", "ResNet", resnet("bow", 18, 228, 4), 9959.8,
        f"{_ALCF}/files/ResNet50_throughput.ods"),
    Row("ResNet-50 training, 4 IPUs, ALCF guide", "ResNet", resnet("bow", 18, 228, 4), 8125.8,
        f"{_ALCF}/example-programs.md",
        doubtful="the same configuration on the same machines has 9960 in another file"),
    Row("EfficientNet-B4 G16 training, TF1", "EfficientNet", _efficientnet(4, 192), 9000,
        _GRAPHCORE, "micro-batch 4, as PyTorch's configuration", calibrates=True),
    Row("EfficientNet-B4 G16 training, TF1, before SDK 2.5", "EfficientNet", _efficientnet(4, 192),
        8936, _GRAPHCORE, "micro-batch 4, as PyTorch's configuration"),
    Row("EfficientNet-B4 G16 training, PyTorch", "EfficientNet", _efficientnet(4, 32), 8263,
        _GRAPHCORE, "16.32 in the source; partial sums in half precision as in the configuration"),
    Row("BERT-Large training, PopART", "BERT", bert_large(2048), 5179, _GRAPHCORE),
    Row("BERT-Large training, TF1", "BERT", bert_large(2050), 5125, _GRAPHCORE),
    Row("BERT-Large training, TF2, SDK 3.1", "BERT", bert_large(
        2040, proportion=(0.10, 0.19, 0.20, 0.25)), 4528, _GRAPHCORE, _TF_STATE),
    Row("BERT-Large training, TF2, SDK 3.3", "BERT", bert_large(
        2040, proportion=(0.10, 0.19, 0.20, 0.25)), 4527, _GRAPHCORE, _TF_STATE),
    Row("BERT-Large packed training, PopART", "BERT", bert_large(
        1712, packing=1.17, words=23), 6044, _GRAPHCORE),
    Row("BERT-Large packed training, PyTorch, SDK 3.1", "BERT", bert_large(
        1752, packing=1.17, words=23), 5592, _GRAPHCORE),
    Row("BERT-Large packed training, PyTorch, SDK 3.3", "BERT", bert_large(
        1752, packing=1.17, words=23), 5600, _GRAPHCORE, calibrates=True),
    Row("BERT-Base training, PopART", "BERT", bert_base("bow", 512), 16391, _GRAPHCORE),
    Row("BERT-Base training, TF2, SDK 3.1", "BERT", bert_base(
        "bow", 510, proportion=(0.28, 0.26, 0.28, 0.28)), 15157, _GRAPHCORE, _TF_STATE),
    Row("BERT-Base training, TF2, SDK 3.3", "BERT", bert_base(
        "bow", 510, proportion=(0.28, 0.26, 0.28, 0.28)), 15173, _GRAPHCORE, _TF_STATE),
    Row("BERT-Base training, PyTorch", "BERT", bert_base("bow", 512), 15911, _GRAPHCORE,
        calibrates=True),
    Row("BERT-Base training, Paddle", "BERT", bert_base(
        "mk2", 512, proportion=(0.28,) * 4), 11700,
        "PaddlePaddle/PaddleNLP legacy/model_zoo/bert/static_ipu/README.md",
        "POD16 without a generation: Mk2, by its date"),
    *(
        Row(f"Conformer-medium training, {system}", "Conformer", _conformer(chip, replicas), figure,
            f"{_CONFORMER} L110-122", calibrates=system == "M2000 POD4")
        for chip, system, replicas, figure in (
            ("mk2", "M2000 POD4", 1, 819), ("mk2", "M2000 POD16", 4, 3163),
            ("mk2", "M2000 POD64", 16, 11689), ("bow", "Bow Pod4", 1, 1126),
            ("bow", "Bow Pod16", 4, 4302), ("bow", "Bow Pod64", 16, 15815))
    ),
    Row("BERT-Base SQuAD inference, PopRT", "BERT",
        answers("base", 16, 256, 0.6, half=False), 1861.0,
        "graphcore/PopRT examples/packed_bert_example/README.md",
        "no packing; hardware not stated: C600, which PopRT is for"),
    Row("BERT-Base SQuAD inference, ByteMLPerf", "BERT",
        answers("base", 40, 384, 0.4, PACKS), 3134, f"{_BYTE}/bert-torch-fp32", _PACKED),
    Row("RoBERTa SQuAD inference, ByteMLPerf", "BERT",
        answers("roberta", 40, 384, 0.4, PACKS), 3088, f"{_BYTE}/roberta-torch-fp32", _PACKED),
    Row("ALBERT SQuAD inference, ByteMLPerf", "BERT",
        answers("albert", 40, 384, 0.5, PACKS), 3280, f"{_BYTE}/albert-torch-fp32", _PACKED),
    Row("DeBERTa SQuAD inference, ByteMLPerf", "DeBERTa",
        answers("deberta", 10, 384, 0.4, FEW_PACKS), 1702, f"{_BYTE}/deberta-torch-fp32",
        f"packs hold {FEW_PACKS:.2f} sequences: the same, and at most 2 as configured"),
    Row("ResNet-50 inference, ByteMLPerf, batch 4", "ResNet", Workload(
        "cnn", "c600", 4, iterations=128, arguments={"name": "resnet50", "bytes": False,
        "norm_type": "none"}, half_partials=True, io_tiles=64), 7062,
        f"{_BYTE}/resnet50-torch-fp32",
        "4 clients; norms folded into convolutions, as ONNX files have them"),
)  # fmt: skip
