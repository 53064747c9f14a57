"""Published throughput as data: what ran, how it was configured, what was measured, who says so.

What a source leaves open is filled from the same project's configuration files, and said in `note`.
Configurations without a figure are in `memory_rows`, figures from MLPerf's logs in `mlperf_rows`.
"""

from __future__ import annotations

from typing import Any

from .mlperf_rows import MLPERF
from .workloads import (
    FEW_PACKS,
    PACKS,
    Row,
    Workload,
    answers,
    bert,
    bert_base,
    bert_large,
    conformer,
    efficientnet,
    efficientnet_torch,
    gpt2,
    resnet,
    resnext,
    squad,
    swin,
    unet,
    vit,
)

_GRAPHCORE = "www.graphcore.cn/performance-results (stored crawl)"
_CONFORMER = "graphcore/examples speech/conformer/pytorch/README.md"
_BYTE = "bytedance/ByteMLPerf byte_infer_perf/general_perf/reports/IPU"
_CARAML = "FZJ-JSC/CARAML README.md"
_ALCF = "argonne-lcf/user-guides docs/ai-testbed/graphcore"

#: Configurations of graphcore/examples, by the tag that has them.
_TF_CNNS = "v3.0.0 vision/cnns/tensorflow1/training/configs.yml"
_POPART = "v3.1.0 nlp/bert/popart/configs"
_TF_BERT = "v3.0.0 nlp/bert/tensorflow1/configs"
_TF2_BERT = "nlp/bert/tensorflow2/configs: state off the chip"
_TORCH_BERT = "nlp/bert/pytorch/configs_pretraining.yml"
_VIT = "vision/vit/pytorch/configs.yml and benchmarks.yml"
_SWIN = "v3.0.0 vision/swin/pytorch/configs/configs.yaml"
_PACKED = (
    f"packs of 384 words hold {PACKS:.2f} sequences: lengths as the benchmark draws them, each "
    "put into the first pack with room"
)
_WORDS: dict[str, Any] = {"vocabulary": 30400}
#: PopART's and TensorFlow 1's programs: the head in five parts, queries, keys and values apart.
_IN_FIVE: dict[str, Any] = {"vocabulary": 30400, "serialised": 5, "apart": True}
#: PyTorch's packs: the head in two parts, one mask for all IPUs.
_TORCH_PACKS: dict[str, Any] = {"serialised": 2, "one_mask": True}
#: Phase 2 of pretraining: longer sequences, fewer of them.
_LONG: dict[str, Any] = {"length": 512, "masked": 76}
_MIDDLE: dict[str, Any] = {"length": 384, "masked": 56}

ROWS: tuple[Row, ...] = (
    Row("ResNet-50 training, TF1, batch 1920", "ResNet", resnet("bow", 20, 6, 16, mlperf=True,
        proportion=0.15), 42029, _GRAPHCORE, "MLPerf configuration with micro-batch 20"),
    Row("ResNet-50 training, TF1, batch 3520", "ResNet", resnet("bow", 22, 10, 16, mlperf=True,
        proportion=0.15), 44059, _GRAPHCORE, f"as in {_TF_CNNS}", calibrates=True),
    Row("ResNet-50 training, TF1, Pod64, batch 2560", "ResNet", resnet("bow", 20, 2, 64,
        mlperf=True, proportion=0.14), 145287, _GRAPHCORE,
        "MLPerf configuration with micro-batch 20"),
    Row("ResNet-50 training, TF1, Pod64, batch 5120", "ResNet", resnet("bow", 20, 4, 64,
        mlperf=True, proportion=0.15), 153205, _GRAPHCORE, f"as in {_TF_CNNS}"),
    Row("ResNet-50 training, TF1, Pod256, before SDK 2.5", "ResNet", resnet("bow", 20, 2, 256,
        mlperf=True, proportion=0.15), 425514, _GRAPHCORE, f"as in {_TF_CNNS}"),
    Row("ResNet-50 training, TF1, Pod256", "ResNet", resnet("bow", 20, 2, 256, mlperf=True,
        proportion=0.15), 456906, _GRAPHCORE, f"as in {_TF_CNNS}"),
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
    Row("ResNet-50 training, POD4, CARAML, batch 32", "ResNet", resnet("mk2", 8, 1, 4, mlperf=True,
        proportion=0.15), 3556.18, _CARAML, "as in its resnet50/resnet50_benchmark.xml: TensorFlow "
        "2's configuration for MLPerf with a micro-batch of 8"),
    Row("EfficientNet-B4 G16 training, TF1", "EfficientNet", efficientnet(256, 8), 9000,
        _GRAPHCORE, f"as in {_TF_CNNS}; momentum stands for LARS", calibrates=True),
    Row("EfficientNet-B4 G16 training, TF1, before SDK 2.5", "EfficientNet", efficientnet(256, 8),
        8936, _GRAPHCORE, f"as in {_TF_CNNS}; momentum stands for LARS"),
    Row("EfficientNet-B4 G16 training, TF1, Pod64", "EfficientNet", efficientnet(64, 32),
        34140, _GRAPHCORE, f"as in {_TF_CNNS}; momentum stands for LARS"),
    Row("EfficientNet-B4 G16 training, TF1, Pod64, before SDK 2.5", "EfficientNet",
        efficientnet(64, 32), 34943, _GRAPHCORE, f"as in {_TF_CNNS}; momentum stands for LARS"),
    Row("EfficientNet-B4 G16 training, TF1, Pod256", "EfficientNet", efficientnet(16, 128),
        122665, _GRAPHCORE, f"as in {_TF_CNNS}, with more replicas and the same batch"),
    Row("EfficientNet-B4 G16 training, TF1, Pod256, before SDK 2.5", "EfficientNet",
        efficientnet(16, 128), 117641, _GRAPHCORE,
        f"as in {_TF_CNNS}, with more replicas and the same batch"),
    Row("EfficientNet-B4 G16 training, PyTorch", "EfficientNet", efficientnet_torch(32), 8263,
        _GRAPHCORE, "16.32 in the source; partial sums in half precision as in the configuration"),
    Row("ResNeXt-101 training, TF1", "ResNeXt", resnext(), 12277, _GRAPHCORE,
        f"32 groups of 4 at first, as in {_TF_CNNS}"),
    Row("ResNeXt-101 training, TF1, before SDK 2.5", "ResNeXt", resnext(), 12221, _GRAPHCORE,
        f"32 groups of 4 at first, as in {_TF_CNNS}"),
    Row("U-Net training, Bow-2000", "U-Net", unet("bow"), 151, _GRAPHCORE,
        "stages and proportions as its program has them"),
    Row("ViT-B/16 pretraining", "ViT", vit(8, 2048, 4), 7615, _GRAPHCORE, f"as in {_VIT}"),
    Row("ViT-B/16 pretraining, Pod64", "ViT", vit(8, 512, 16, sharded=False), 27868, _GRAPHCORE,
        f"as in {_VIT}"),
    Row("ViT-B/16 pretraining, Pod64, before SDK 2.5", "ViT", vit(8, 512, 16, sharded=False),
        31200, _GRAPHCORE, f"as in {_VIT}"),
    Row("ViT-B/16 fine-tuning", "ViT", vit(17, 30, 4, optimizer="momentum, half", iterations=8,
        pretraining=False, bytes=False), 7319, _GRAPHCORE, f"as in {_VIT}"),
    Row("Swin-Tiny pretraining", "Swin", swin("tiny", 4, 64, 4, (2, 3, 5, 2)), 3779, _GRAPHCORE,
        f"single precision, as in {_SWIN}"),
    Row("Swin-Base pretraining", "Swin", swin("base", 4, 64, 2, (2, 2, 3, 3, 5, 5, 2, 2)), 1447,
        _GRAPHCORE, f"single precision, as in {_SWIN}, with the accumulation that its batch has"),
    Row("Swin-Large fine-tuning", "Swin", swin(
        "large", 6, 683, 2, (2, 3, 4, 4, 4, 4, 2, 1), half=True), 3279, _GRAPHCORE,
        f"as in {_SWIN}"),
    Row("BERT-Large training, PopART", "BERT", bert_large(2048, **_IN_FIVE), 5179, _GRAPHCORE),
    Row("BERT-Large training, TF1", "BERT", bert_large(2050, **_IN_FIVE), 5125, _GRAPHCORE),
    Row("BERT-Large training, TF2, SDK 3.1", "BERT", bert_large(
        2040, proportion=(0.10, 0.19, 0.20, 0.25), sharded=False, serialised=1, **_WORDS), 4528,
        _GRAPHCORE, f"as in {_TF2_BERT}"),
    Row("BERT-Large training, TF2, SDK 3.3", "BERT", bert_large(
        2040, proportion=(0.10, 0.19, 0.20, 0.25), sharded=False, serialised=1, **_WORDS), 4527,
        _GRAPHCORE, f"as in {_TF2_BERT}"),
    Row("BERT-Large packed training, PopART", "BERT", bert_large(
        1712, packing=1.17, words=23, **_IN_FIVE), 6044, _GRAPHCORE),
    Row("BERT-Large packed training, PyTorch, SDK 3.1", "BERT", bert_large(
        1752, packing=1.17, words=23, **_TORCH_PACKS), 5592, _GRAPHCORE),
    Row("BERT-Large packed training, PyTorch, SDK 3.3", "BERT", bert_large(
        1752, packing=1.17, words=23, **_TORCH_PACKS), 5600, _GRAPHCORE, calibrates=True),
    Row("BERT-Large training, PopART, Pod64", "BERT", bert_large(512, replicas=16, **_IN_FIVE),
        19353, _GRAPHCORE),
    Row("BERT-Large training, TF1, Pod64", "BERT", bert_large(
        520, replicas=16, proportion=(0.15, 0.23, 0.25, 0.25), **_IN_FIVE), 18907, _GRAPHCORE,
        f"as in {_TF_BERT}"),
    Row("BERT-Large training, TF2, Pod64", "BERT", bert_large(
        520, replicas=16, proportion=(0.10, 0.19, 0.20, 0.20), serialised=5, **_WORDS), 18199,
        _GRAPHCORE, f"as in {_TF2_BERT}"),
    Row("BERT-Large packed training, PopART, Pod64", "BERT", bert_large(
        428, replicas=16, packing=1.17, words=23, **_IN_FIVE), 22759, _GRAPHCORE,
        f"as in {_POPART}, with the same batch"),
    Row("BERT-Large packed training, PyTorch, Pod64, SDK 3.1", "BERT", bert_large(
        438, replicas=16, packing=1.17, words=23, proportion=(0.14, 0.19, 0.19, 0.19),
        **_TORCH_PACKS), 18494, _GRAPHCORE,
        f"as in {_TORCH_BERT}"),
    Row("BERT-Large packed training, PyTorch, Pod64, SDK 3.2", "BERT", bert_large(
        438, replicas=16, packing=1.17, words=23, proportion=(0.14, 0.19, 0.19, 0.19),
        **_TORCH_PACKS), 18442, _GRAPHCORE,
        f"as in {_TORCH_BERT}"),
    *(
        Row(f"BERT-Large packed training, 512 words, {name}", "BERT", bert(
            "large", "bow", 2, accumulation, replicas, proportion, packing=2.0, **_LONG, **more),
            figure, _GRAPHCORE, f"as in {where}; 2 sequences in a pack, as its program counts them")
        for name, accumulation, replicas, proportion, more, figure, where in (
            ("PopART", 1200, 4, (0.16, 0.21, 0.21, 0.21), _IN_FIVE, 2126, _POPART),
            ("PopART, Pod64", 300, 16, (0.16, 0.21, 0.21, 0.21), _IN_FIVE, 7789, _POPART),
            ("PyTorch, SDK 3.1", 1024, 4, (0.10, 0.15, 0.15, 0.15), _TORCH_PACKS, 1969,
             _TORCH_BERT),
            ("PyTorch, SDK 3.3", 1024, 4, (0.10, 0.15, 0.15, 0.15), _TORCH_PACKS, 1973,
             _TORCH_BERT),
            ("PyTorch, Pod64, SDK 3.1", 256, 16, (0.13, 0.19, 0.19, 0.19), _TORCH_PACKS, 6510,
             _TORCH_BERT),
            ("PyTorch, Pod64, SDK 3.2", 256, 16, (0.13, 0.19, 0.19, 0.19), _TORCH_PACKS, 6543,
             _TORCH_BERT))
    ),
    *(
        Row(f"BERT-Large training, 384 words, {name}", "BERT", bert(
            "large", "bow", 2, accumulation, replicas, (0.15, 0.40, 0.40, 0.40), length=384,
            masked=masked, **_IN_FIVE), figure, _GRAPHCORE, f"as in {where}")
        for name, accumulation, replicas, masked, figure, where in (
            ("PopART", 2048, 4, 56, 1470, _POPART), ("TF1", 2050, 4, 58, 1420, _TF_BERT),
            ("PopART, Pod64", 512, 16, 56, 5444, _POPART),
            ("TF1, Pod64", 520, 16, 58, 5340, f"{_TF_BERT}, whose batch is 16640, not 16400"))
    ),
    Row("BERT-Large SQuAD training, PopART", "BERT", squad(
        "bow", 4, 32, 4, (0.1, 0.3, 0.32, 0.34, 0.36, 0.38, 0.4, 0.32)), 1183, _GRAPHCORE,
        f"as in {_POPART}"),
    *(
        Row(f"BERT-Large SQuAD training, PyTorch, SDK {sdk}", "BERT", squad(
            "bow", 4, 32, 2, (0.08, 0.25, 0.32, 0.32, 0.36, 0.38, 0.4, 0.32)), figure, _GRAPHCORE,
            "as in nlp/bert/pytorch/configs_squad.yml")
        for sdk, figure in (("3.1", 989), ("3.3", 1009))
    ),
    Row("BERT-Base training, PopART", "BERT", bert_base(
        "bow", 512, proportion=(0.28,) * 4, **_IN_FIVE), 16391, _GRAPHCORE, f"as in {_POPART}"),
    Row("BERT-Base training, TF2, SDK 3.1", "BERT", bert_base(
        "bow", 510, proportion=(0.28, 0.26, 0.28, 0.28), sharded=False, **_WORDS), 15157,
        _GRAPHCORE, f"as in {_TF2_BERT}"),
    Row("BERT-Base training, TF2, SDK 3.3", "BERT", bert_base(
        "bow", 510, proportion=(0.28, 0.26, 0.28, 0.28), sharded=False, **_WORDS), 15173,
        _GRAPHCORE, f"as in {_TF2_BERT}"),
    Row("BERT-Base training, PyTorch", "BERT", bert_base("bow", 512), 15911, _GRAPHCORE,
        calibrates=True),
    Row("BERT-Base training, 512 words, PopART", "BERT", bert(
        "base", "bow", 8, 512, 4, (0.28,) * 4, **_LONG, **_IN_FIVE), 3656, _GRAPHCORE,
        f"as in {_POPART}"),
    Row("BERT-Base training, 384 words, TF2", "BERT", bert(
        "base", "bow", 8, 510, 4, (0.28, 0.26, 0.28, 0.28), sharded=False, **_MIDDLE, **_WORDS),
        4387, _GRAPHCORE, f"as in {_TF2_BERT}"),
    Row("BERT-Base training, Paddle", "BERT", bert_base(
        "mk2", 512, proportion=(0.28,) * 4), 11700,
        "PaddlePaddle/PaddleNLP legacy/model_zoo/bert/static_ipu/README.md",
        "POD16 without a generation: Mk2, by its date"),
    *(
        Row(f"Conformer-medium training, {system}", "Conformer", conformer(chip, replicas), figure,
            f"{_CONFORMER} L110-122", calibrates=system == "M2000 POD4")
        for chip, system, replicas, figure in (
            ("mk2", "M2000 POD4", 1, 819), ("mk2", "M2000 POD16", 4, 3163),
            ("mk2", "M2000 POD64", 16, 11689), ("bow", "Bow Pod4", 1, 1126),
            ("bow", "Bow Pod16", 4, 4302), ("bow", "Bow Pod64", 16, 15815))
    ),
    Row("GPT-2 training, POD4, CARAML", "GPT-2", gpt2("mk2", 512, 4, 1), 183.37,
        _CARAML, "as in its llm_training/llm_benchmark_ipu.yaml; sequences, which "
        "the source calls tokens: 2,048 in 11.17 s"),
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
    *MLPERF,
)  # fmt: skip
