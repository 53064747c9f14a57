"""Estimates of the size and shape of real ones, made without the machine model.

The figures are invented (a seeded generator); only their number, order and proportions matter.
"""

from __future__ import annotations

import random
from typing import Any

from softipu.machine.result import Cycles, Estimate, Hint, IpuMemory, Step
from softipu.machine.settings import Settings

CAPACITY = 638_976
TILES = 1472
CLOCK = 1.85e9

#: kind, source, plan, least and most compute cycles, share of exchange
KINDS = {
    "matmul": ("aten.mm", "AMP 4×2×92, serialised 2", 9_000, 60_000, 0.3),
    "convolution": ("aten.convolution", "AMP 8×4×46", 12_000, 90_000, 0.25),
    "elementwise": ("aten.add", "1472 tiles", 400, 4_000, 0.05),
    "normalise": ("aten.native_layer_norm", "rows over tiles", 2_000, 9_000, 0.15),
    "softmax": ("aten._softmax", "rows over tiles", 3_000, 12_000, 0.02),
    "transpose": ("aten.permute", "copy", 500, 3_000, 1.2),
    "reduce": ("aten.sum", "tree of 2", 900, 4_000, 0.5),
}
RESNET = ("convolution", "normalise", "elementwise", "elementwise")
BERT = ("matmul", "elementwise", "transpose", "matmul", "softmax", "matmul", "normalise", "reduce")


class Maker:
    """Steps of one kind of network, one after another, with memory that rises and falls."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.steps: list[Step] = []

    def add(
        self, kind: str, path: str, phase: str, stage: int, ipu: int, live: int, **more: Any
    ) -> None:
        source, plan, least, most, exchange = KINDS[kind]
        compute = round(self.random.uniform(least, most), 1)
        cycles = more.get("cycles") or Cycles(
            compute, round(compute * exchange * self.random.uniform(0.5, 1.5), 1), 126.0
        )
        number = len(self.steps)
        self.steps.append(Step(
            op=more.get("op", f"{path}.{source.removeprefix('aten.')}_{number}"), kind=kind,
            source=source, path=path, phase=phase, stage=stage, ipu=ipu, cycles=cycles,
            flops=compute * self.random.uniform(40_000, 150_000),
            tiles_used=self.random.choice([TILES, TILES, 1440, 736]), plan=plan,
            live_bytes=live, temporary_bytes=self.random.randint(2_000, 90_000),
        ))  # fmt: skip

    def transfer(self, op: str, phase: str, stage: int, ipu: int, live: int, **cycles: float):
        self.add("transpose", "", phase, stage, ipu, live, op=op, cycles=Cycles(**cycles))


def memory(ipu: int, live_peak: int, steps: list[Step], scale: float = 1.0) -> IpuMemory:
    parts = {
        "weights": 148_000, "state": 96_000, "code": 41_000, "vertex_state": 12_500,
        "exchange_code": 38_000, "stash": 24_000, "host_buffers": 6_000,
        "activations": live_peak, "temporary": 61_000,
    }  # fmt: skip
    parts = {name: int(size * scale) for name, size in parts.items()}
    used = sum(parts.values())
    draw = random.Random(ipu)
    runs = [(tile, int(used * draw.uniform(0.72, 0.97))) for tile in range(0, TILES, 16)]
    runs[37] = (37 * 16, used)
    mine = [step for step in steps if step.ipu == ipu]
    peak = max(mine, key=lambda step: step.live_bytes + step.temporary_bytes)
    return IpuMemory(
        ipu=ipu, capacity=CAPACITY, fullest_tile=parts,
        all_tiles={name: int(size * TILES * 0.86) for name, size in parts.items()},
        always_live=used - parts["activations"] - parts["temporary"],
        not_always_live_peak=parts["activations"] + parts["temporary"],
        peak_step=peak.op, tiles=tuple(runs),
    )  # fmt: skip


def network(
    name: str, layers: int, pattern: tuple[str, ...], ipus: int, *, seed: int = 1,
    accumulation: int = 8, replicas: int = 4, scale: float = 1.0, training: bool = True,
    **changes: Any,
) -> Estimate:  # fmt: skip
    make = Maker(seed)
    base, top = 390_000, 90_000
    for layer in range(layers):
        ipu = layer * ipus // layers
        inside = (layer % max(1, layers // ipus)) / max(1, layers // ipus)
        if layer == 0:
            make.transfer("host input", "forward", 0, 0, base, host=41_000.0, sync=600.0)
        for kind in pattern:
            make.add(
                kind, f"layer.{layer}.{kind[:4]}", "forward", ipu, ipu, int(base + top * inside)
            )
    for layer in reversed(range(layers)) if training else ():
        ipu = layer * ipus // layers
        inside = (layer % max(1, layers // ipus)) / max(1, layers // ipus)
        for kind in (*pattern, *pattern):
            make.add(
                kind, f"layer.{layer}.{kind[:4]}", "backward", ipu, ipu, int(base + top * inside)
            )
    for ipu in range(ipus) if training else ():
        make.transfer("gradients all-reduce", "update", ipu, ipu, base, links=190_000.0, sync=900.0)
        for layer in range(layers // ipus):
            make.add("elementwise", f"layer.{layer}.optimiser", "update", ipu, ipu, base)
    steps = tuple(make.steps)
    once = sum((s.cycles for s in steps if s.phase != "update"), Cycles())
    last = sum((s.cycles for s in steps if s.phase == "update"), Cycles())
    cycles = once.times((accumulation + 2 * (ipus - 1)) / ipus) + last.times(1 / ipus)
    seconds = cycles.total / CLOCK
    schedule = {
        "micro_batch": 2, "accumulation": accumulation, "device_iterations": 1,
        "replicas": replicas, "stage_ipus": list(range(ipus)), "recomputed_stages": [],
        "checkpoints": [],
    }  # fmt: skip
    samples = 2 * accumulation * replicas
    return Estimate(
        name=name, settings=Settings(chip="bow", **changes), schedule=schedule, clock_hz=CLOCK,
        cycles=cycles, seconds=seconds, latency_seconds=seconds * 0.7,
        throughput=samples / seconds, steps=steps,
        memory=tuple(memory(ipu, int(top * (0.5 + ipu / 8)), make.steps, scale) for ipu in range(ipus)),
        hints=(
            Hint("micro_batch", "Micro-batch 1 would leave 61 KiB more free on tile 592.", 62_000, 0.94),
            Hint("matmul_partials", "Half partials would halve the time of 96 matrix products.", 0, 1.21),
        ),
        warnings=("IPU 3 has 4 % of its memory left.",),
        unknown={"aten.special_erfcx": 2},
    )  # fmt: skip


def resnet(**changes: Any) -> Estimate:
    """About the size of ResNet-50's training step: 1,500 steps on one IPU."""
    return network("resnet50", 125, RESNET, 1, accumulation=16, replicas=16, **changes)


def bert(**changes: Any) -> Estimate:
    """About the size of BERT-large's training step: 10,000 steps over four IPUs."""
    return network("bert-large", 416, BERT, 4, accumulation=128, **changes)


def small(**changes: Any) -> Estimate:
    return network("small", 4, RESNET, 2, accumulation=3, **changes)
