"""What an estimate costs once its model is captured: seconds, and memory.

Prints one Markdown table. Every time is that of a process which has priced nothing before, as plans
are kept; it takes the captured graph from disk, so that its memory is that of the machine model
(and of PyTorch, which the options come through), not of capturing. Changes that a program without
room is told about are not tried.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from softipu import settings
from softipu.estimating.request import Request

ROUNDS = 3
#: What is asked, and within how many seconds the answer should come.
ROWS: dict[str, tuple[Request, float]] = {
    "ResNet-50 inference": (Request("resnet50", half_partials=True), 1.0),
    "ResNet-50 training": (
        Request("resnet50", training=True, accumulation=16, half_partials=True), 1.0,
    ),
    "BERT-Large training over 4 IPUs": (
        Request("bert-large", training=True, accumulation=512, replicas=4, half_partials=True), 5.0,
    ),
}  # fmt: skip


def once(name: str) -> None:
    """Prints seconds of one estimate, of the clock and of the processor, then the process's peak
    memory in MB and how much of it came with the estimate."""
    from softipu.estimating.targets import described
    from softipu.machine import estimate

    request, _ = ROWS[name]
    graph, chosen = described(request, "bow")
    before, started, worked = _peak(), time.perf_counter(), time.process_time()
    estimate(graph, chosen, hints=False)
    took = time.perf_counter() - started, time.process_time() - worked
    print(*took, _peak(), _peak() - before)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(name: str, environment: dict[str, str]) -> list[float]:
    """Medians of what `once` prints; a first process has captured the model for the others."""
    command = [sys.executable, "-m", "benchmarks.estimates", name]
    found = []
    for _ in range(ROUNDS + 1):
        text = subprocess.run(
            command, env=environment, check=True, stdout=subprocess.PIPE, text=True
        )
        found.append([float(figure) for figure in text.stdout.split()])
    return [statistics.median(column) for column in zip(*found[1:], strict=True)]


def main() -> None:
    print("| estimate, after the capture | s | goal | s of CPU | peak MB | by the estimate |")
    print("|---|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory(prefix="softipu-bench-") as folder:
        environment = settings.cleared() | {"SOFTIPU_HOME": str(Path(folder) / "home")}
        for name, (_, goal) in ROWS.items():
            seconds, worked, peak, grown = measure(name, environment)
            figures = f"{seconds:.2f} | < {goal:g} | {worked:.2f} | {peak:.0f} | {grown:.0f}"
            print(f"| {name} | {figures} |", flush=True)


if __name__ == "__main__":
    once(sys.argv[1]) if len(sys.argv) > 1 else main()
