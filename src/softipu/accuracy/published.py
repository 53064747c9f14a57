"""The whole collection of published figures, and what becomes of each of them here.

published.csv has a line for each figure but those of single multiplications (`single`): what was
published, and in its last two columns the answer (one of `ANSWERS`) and which row, step, chip
value or reason of `LEFT_OUT` that is. Tests hold every line to what it names, so that no figure is
forgotten in silence.
"""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_FILE = Path(__file__).with_name("published.csv")

#: How a figure can be answered, in words for the page.
ANSWERS = {
    "throughput": "held to a prediction under Throughput",
    "latency": "held to a prediction under Latency",
    "fits": "held to a prediction under Memory",
    "micro": "beside a step under Micro-benchmarks",
    "input": "an input of the model: chip data, a default or a constant of PopLibs",
    "left out": "left out, with a reason at the end of this page",
}


@dataclass(frozen=True)
class Figure:
    category: str
    model: str
    config: str
    metric: str
    value: str
    unit: str
    source: str
    #: One of `ANSWERS`, and the name of what answers it.
    answer: str
    what: str

    @property
    def number(self) -> float:
        return float(int(self.value, 16)) if self.value.startswith("0x") else float(self.value)


@lru_cache(maxsize=1)
def figures() -> tuple[Figure, ...]:
    with _FILE.open(encoding="utf-8", newline="") as file:
        return tuple(Figure(**line) for line in csv.DictReader(file))


def counts() -> Counter[str]:
    """How many figures each answer has."""
    return Counter(figure.answer for figure in figures())


def answered(answer: str) -> Counter[str]:
    """What answers figures in this way, and how many each does."""
    return Counter(figure.what for figure in figures() if figure.answer == answer)


#: Why figures of the collection are not expressed.
LEFT_OUT: dict[str, str] = {
    "Conformer encoder, ONNX (ByteMLPerf)": "the network's structure is only in a file that is not "
    "published with the figures",
    "BERT in FP8 (ByteMLPerf)": "FP8 is not captured from PyTorch programs; speed, latency and fit "
    "alike",
    "Latency of the slowest hundredth (ByteMLPerf)": "the model knows no spread of requests",
    "Compile times (ByteMLPerf)": "the time of a compiler on the host, which is not modelled",
    "Packed BERT (PopRT)": "how full the packs are is not stated",
    "DeBERTa (PopRT)": "batch and length are not stated",
    "ResNet-50, 1 IPU (ALCF)": "marked as anomalous by its source",
    "MLPerf times and epochs to train": "the time of v1.1 is its epochs at the speed of the row "
    "under Throughput, and evaluation and start, which are not modelled; of v1.0 the epochs are "
    "not in the collection",
    "BERT-Base for embeddings (E5, MPNet)": "batch and length are up to the caller, and the source "
    "has none",
    "Whisper-large-v2": "no builder here for an encoder and decoder that generate on the device; "
    "batch and number of beams are up to the caller, too",
    "All cycles of the matrix–vector product": "nine tenths are the host's, outside of the program",
    "Compute of the matrix–vector product": "a vertex compiled from C++ that only the tutorial has",
    "Sync of the matrix–vector product": "mostly tiles that wait for the host",
    "The matrix–vector product on Graphcore's IPUModel": "another model, not an IPU",
    "Exchange of the SigLIP MLP's up-projection": "neither the sizes of the product nor how it is "
    "split over tiles are in the source, and no words of its own: only these sums",
    "Times of the whole SigLIP MLP": "a third party's compiler, with plans of its own",
    "A third party's kernels, packing and exchange code (C600)": "its code, not that of PopLibs",
    "Latency of exchange and links under load (GC2)": "the model has rates and fixed costs; none "
    "grows with the load",
    "No builder for these networks (performance page)": "DINO, Mini DALL-E and GraphSage are not "
    "built here",
    "GPT2-XL and ChatGLM, cut tensor by tensor (PopTransformer)": "no builder here cuts layers "
    "over IPUs in that way",
    "Sums and latencies of an older library (GC2)": "sums took PopLibs of 2019 twice as long for "
    "each element as the vertices that the model has; latencies of single words are no term of it",
    "Host of a C2 server (GC2)": "the model has no host of that kind",
    "Facts about chips and systems that no term of the model needs": "or that follow from chip "
    "data that it has",
}
