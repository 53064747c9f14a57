"""Configurations that are known to have run on real IPUs, without a figure: they should fit.

What a source leaves open is filled from the same project's configuration files, and said in `note`.
"""

from __future__ import annotations

from typing import Any

from .workloads import (
    FEW_PACKS,
    PACKS,
    RECOMPUTE_STAGES,
    Row,
    Workload,
    answers,
    bert_base,
    bert_large,
    resnet,
    squad,
    unet,
)

_CNNS = "graphcore/examples vision/cnns/pytorch/train/configs.yml"
_CNN_INFERENCE = "graphcore/examples vision/cnns/pytorch/inference/configs.yml"
_TF_CNNS = "graphcore/examples vision/cnns/tensorflow2/configs.yml"
_BERT = "graphcore/examples nlp/bert/pytorch/configs_pretraining.yml"
_SQUAD = "graphcore/examples nlp/bert/pytorch/configs_squad.yml"
_BYTE_FITS = "bytedance/ByteMLPerf byte_infer_perf/general_perf/backends/IPU/interact_infos"
_PADDLE = "PaddlePaddle/PaddleNLP legacy/model_zoo/bert/static_ipu/scripts/pod16"
_UNET = "graphcore/examples vision/unet_medical/tensorflow2/README.md"
_LARS = "momentum stands for LARS, which has the same state"


def _inference(name: str, micro_batch: int, **arguments: Any) -> Workload:
    return Workload(
        "cnn", "mk2", micro_batch, iterations=128, arguments={"name": name, **arguments},
        half_partials=True,
    )  # fmt: skip


_GROUPS = {"efficientnet_group_dim": 16, "efficientnet_expand_ratio": 4, "norm_type": "group",
           "norm_num_groups": 4}  # fmt: skip

#: Configurations that are known to have fitted: with more than 2.5 times the micro-batch they
#: should not.
FITS: tuple[Row, ...] = (
    Row("ResNet-50 training, 18", "ResNet", resnet("mk2", 18, 57, 16), None, _CNNS),
    Row("ResNet-50 training, MLPerf, 20", "ResNet", resnet(
        "mk2", 20, 6, 16, mlperf=True, proportion=0.15), None, _TF_CNNS),
    Row("ResNet-50 training, MLPerf with LARS, 18", "ResNet", resnet(
        "mk2", 18, 12, 16, mlperf=True, proportion=0.15), None, _TF_CNNS, _LARS),
    Row("ResNet-50 training, MLPerf with LARS, 22", "ResNet", resnet(
        "mk2", 22, 10, 16, mlperf=True, proportion=0.15), None, _TF_CNNS,
        f"another version of the same file; {_LARS}"),
    Row("ResNet-50 training, 16.32, 4 IPUs, 16", "ResNet", Workload(
        "cnn", "mk2", 16, True, 256, 1, 4,
        {"name": "resnet50", "splits": ("layer1.2", "layer2.1", "layer3.2"),
         "single_weights": True},
        (0.15,), True, RECOMPUTE_STAGES, off_chip_state=True, optimizer="momentum"), None,
        _TF_CNNS, "weights in single precision, rounded where they are used",
        roomy="the same file has 20 and more on one IPU: this one was chosen for its global batch"),
    Row("EfficientNet-B0 G16 training, 20", "EfficientNet", Workload(
        "cnn", "mk2", 20, True, 5, 1, 8,
        {"name": "efficientnet-b0", **_GROUPS, "splits": ("features.4.0.block.0",)}, (0.15,), True,
        optimizer="rmsprop"), None, _CNNS),
    Row("EfficientNet-B4 G1 training, 4", "EfficientNet", Workload(
        "cnn", "mk2", 4, True, 48, 1, 4,
        {"name": "efficientnet-b4", "norm_type": "group", "norm_num_groups": 4,
         "splits": ("features.2.1.block.0", "features.4.0.block.0", "features.5.5.block.0")},
        (0.1,), True, sharded_state=True, optimizer="rmsprop"), None, _CNNS),
    Row("MobileNet-v3-small training, 32", "MobileNet", Workload(
        "cnn", "mk2", 32, True, 32, 1, 1, {"name": "mobilenet-v3-small"}, (), True, 1,
        optimizer="momentum"), None, _CNNS,
        roomy="32 is that of a base configuration, which MobileNet-v3-large has over 4 IPUs too"),
    Row("ResNet-50 inference, 90", "ResNet", _inference("resnet50", 90), None, _CNN_INFERENCE),
    Row("ResNet-50 inference, TF2, 32", "ResNet", _inference("resnet50", 32), None, _TF_CNNS,
        roomy="the largest of a list; PyTorch's configuration of the same network has 90"),
    Row("EfficientNet-B0 inference, 49", "EfficientNet", _inference("efficientnet-b0", 49), None,
        _CNN_INFERENCE),
    Row("EfficientNet-B0 G16 inference, 106", "EfficientNet", _inference(
        "efficientnet-b0", 106, **_GROUPS), None, _CNN_INFERENCE),
    Row("EfficientNet-B4 G16 inference, 26", "EfficientNet", _inference(
        "efficientnet-b4", 26, **_GROUPS), None, _CNN_INFERENCE),
    Row("MobileNet-v3-small inference, 224", "MobileNet", _inference("mobilenet-v3-small", 224),
        None, _CNN_INFERENCE),
    Row("MobileNet-v3-large inference, 64", "MobileNet", _inference("mobilenet-v3-large", 64), None,
        _CNN_INFERENCE),
    Row("BERT-Base training, 32", "BERT", bert_base("mk2", 512), None, _BERT),
    Row("BERT-Large training, 8", "BERT", bert_large(2048), None, _BERT),
    Row("BERT-Base training, Paddle, 32", "BERT", bert_base("mk2", 512, proportion=(0.28,) * 4),
        None, f"{_PADDLE}/run_pretrain.sh", "as its throughput row"),
    Row("BERT-Large SQuAD training, 8 IPUs, 4", "BERT", squad(
        "mk2", 4, 32, 2, (0.08, 0.25, 0.32, 0.32, 0.36, 0.38, 0.4, 0.32)), None, _SQUAD,
        "2 replicas; state on the chip, sharded over them"),
    Row("BERT-Large SQuAD training, 2", "BERT", Workload(
        "squad", "mk2", 2, True, 64, 1, 4,
        {"shape": "large", "split": (3, 7, 7, 7), "length": 384}, (0.15, 0.25, 0.25, 0.25), True,
        off_chip_state=True, sharded_state=True, optimizer="adamw, half momentum"), None, _SQUAD),
    Row("BERT-Base inference, FP16, 40", "BERT", answers("base", 40, 384, 0.4, PACKS),
        None, f"{_BYTE_FITS}/bert-torch-fp32.json"),
    Row("DeBERTa inference, 10", "DeBERTa", answers("deberta", 10, 384, 0.4, FEW_PACKS), None,
        f"{_BYTE_FITS}/deberta-torch-fp32.json"),
    Row("ResNet-50 inference, 32, C600", "ResNet", Workload(
        "cnn", "c600", 32, iterations=128, arguments={"name": "resnet50", "bytes": False,
        "norm_type": "none"}, half_partials=True, io_tiles=64), None,
        f"{_BYTE_FITS}/resnet50-torch-fp32.json"),
    Row("BERT-Base SQuAD training, Paddle, 2", "BERT", Workload(
        "squad", "mk2", 2, True, 16, 1, 4, {"shape": "base", "split": (6, 6), "length": 384},
        (0.4,), True, sharded_state=True, optimizer="adamw"), None,
        f"{_PADDLE}/run_squad.sh",
        "4 replicas; state on the chip is sharded over them (run_pretrain.py)"),
    Row("U-Net training, 4 IPUs, 1", "U-Net", unet("mk2"), None, _UNET,
        "stages and proportions as its program has them"),
    Row("U-Net inference, 2", "U-Net", Workload(
        "unet", "mk2", 2, iterations=400, half_partials=True), None, _UNET),
)  # fmt: skip
