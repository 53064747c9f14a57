"""Throughput in MLPerf's training logs: what Graphcore submitted, with the time of every epoch.

For ResNet-50 a figure is 1,281,167 images over the time of an epoch, for BERT the sequences between
two evaluations over the time of the block before: the median over all but the first, of all runs of
a system. Configurations are those of the submissions' own files. The host's part of an epoch is in
the figure: ResNet-50's program goes back to the host five times in each.
"""

from __future__ import annotations

from typing import Any

from .workloads import Row, Workload, bert, resnet

_IMAGES = 1_281_167
#: How often an epoch of ResNet-50 goes back to the host.
_CALLS = 5


def _where(version: str, system: str, kind: str) -> str:
    return f"mlcommons/training_results_v{version} Graphcore/results/{system}/{kind}"


def _images(
    chip: str, micro_batch: int, accumulation: int, replicas: int, proportion: float = 0.15
) -> Workload:
    batch = micro_batch * accumulation * replicas
    return resnet(chip, micro_batch, accumulation, replicas, mlperf=True, proportion=proportion,
                  iterations=_IMAGES // batch // _CALLS)  # fmt: skip


#: Halves of layers on each IPU, in the order of the layers (`att_ffn_placement`).
_FOUR = ((1, 13), (2, 13), (3, 13), (0, 9))
_EIGHT = ((1, 4), (2, 6), (3, 7), (4, 7), (5, 7), (6, 7), (7, 7), (0, 3))
_BOW_16 = ((1, 6), (2, 7), (3, 6), (4, 7), (5, 7), (6, 7), (7, 7), (0, 1))
_BOW = ((1, 6), (2, 6), (3, 6), (4, 7), (5, 7), (6, 7), (7, 7), (0, 2))


def _sequences(
    chip: str, micro_batch: int, accumulation: int, replicas: int, proportion: tuple[float, ...],
    *, off_chip: bool = False, serialised: int = 4, optimizer: str = "lamb, half momentum",
    vocabulary: int = 30912, **placed: Any,
) -> Workload:  # fmt: skip
    """Packs of 512 words hold two sequences (`avg_seq_per_pack`)."""
    return bert(
        "large", chip, micro_batch, accumulation, replicas, proportion, length=512, masked=76,
        off_chip=off_chip, packing=2.0, optimizer=optimizer, serialised=serialised,
        vocabulary=vocabulary, **placed,
    )  # fmt: skip


_WIDE = (1.0,) * 8
_NARROW = (0.2, *(0.25,) * 7)
_DROPPED: dict[str, Any] = {"halves": _BOW, "attention_dropout": 0.1}

MLPERF: tuple[Row, ...] = (
    *(
        Row(f"ResNet-50 training, MLPerf v{version} log, {system}", "ResNet", workload, figure,
            _where(version, folder, "resnet"))
        for version, system, folder, workload, figure in (
            ("1.0", "POD16", "ipu-pod16-TF1", _images("mk2", 20, 6, 16), 27516),
            ("1.0", "POD64", "ipu-pod64-TF1", _images("mk2", 20, 2, 64, 0.14), 83420),
            ("1.1", "POD16", "ipu-pod16-TF1", _images("mk2", 20, 10, 16), 29465),
            ("1.1", "POD64", "ipu-pod64-TF1", _images("mk2", 20, 3, 64), 108015),
            ("1.1", "POD128", "ipu-pod128-TF1", _images("mk2", 20, 2, 128), 180928),
            ("1.1", "POD256", "ipu-pod256-TF1", _images("mk2", 20, 2, 256), 335152),
            ("2.0", "Bow Pod16", "ipu-pod16-TF1-closed", _images("bow", 22, 10, 16), 43146),
            ("2.0", "Bow Pod64", "ipu-pod64-TF1-closed", _images("bow", 20, 4, 64), 146019),
            ("2.0", "Bow Pod128", "ipu-pod128-TF1-closed", _images("bow", 20, 2, 128), 230467),
            ("2.0", "Bow Pod256", "ipu-pod256-TF1-closed", _images("bow", 20, 2, 256), 425638))
    ),
    *(
        Row(f"BERT-Large training, MLPerf v{version} log, {system}", "BERT", workload, figure,
            _where(version, folder, "bert"))
        for version, system, folder, workload, figure in (
            ("1.0", "POD16", "ipu-pod16-POPART-closed", _sequences(
                "mk2", 2, 192, 4, (0.20, 0.20, 0.25, 0.25), off_chip=True, serialised=5,
                optimizer="lamb", vocabulary=30400, apart=True), 1420),
            ("1.0", "POD64", "ipu-pod64-POPART-closed", _sequences(
                "mk2", 2, 96, 8, _WIDE, serialised=5, optimizer="lamb", vocabulary=30400,
                split=(0, 3, 3, 3, 3, 4, 4, 4)), 4237),
            ("1.1", "POD16", "ipu-pod16-POPART-closed", _sequences(
                "mk2", 2, 192, 4, (0.23,) * 4, off_chip=True, halves=_FOUR, apart=True), 1524),
            ("1.1", "POD64", "ipu-pod64-POPART-closed", _sequences(
                "mk2", 2, 96, 8, _NARROW, halves=_EIGHT), 4808),
            ("1.1", "POD128", "ipu-pod128-POPART-closed", _sequences(
                "mk2", 2, 96, 16, _NARROW, halves=_EIGHT), 9027),
            ("2.0", "Bow Pod16", "ipu-pod16-POPART-closed", _sequences(
                "bow", 3, 256, 2, (0.3,) * 8, halves=_BOW_16, attention_dropout=0.1), 2304),
            ("2.0", "Bow Pod16, Paddle", "ipu-pod16-PaddlePaddle-closed", _sequences(
                "bow", 3, 256, 2, (0.3,) * 8, halves=_BOW_16, attention_dropout=0.1), 2309),
            ("2.0", "Bow Pod64", "ipu-pod64-POPART-closed", _sequences(
                "bow", 3, 96, 8, _WIDE, **_DROPPED), 7415),
            ("2.0", "Bow Pod64, Paddle", "ipu-pod64-PaddlePaddle-closed", _sequences(
                "bow", 3, 96, 8, _WIDE, **_DROPPED), 7473),
            ("2.0", "Bow Pod128", "ipu-pod128-POPART-closed", _sequences(
                "bow", 3, 64, 16, _WIDE, **_DROPPED), 12695),
            ("2.0", "Bow Pod256", "ipu-pod256-POPART-closed", _sequences(
                "bow", 3, 36, 32, _WIDE, **_DROPPED), 19074))
    ),
)  # fmt: skip
