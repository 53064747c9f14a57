"""What an estimate costs once its model is captured: seconds, and memory.

Prints one Markdown table. Every time is that of a process which has priced nothing before, as plans
are kept; it takes the captured graph from disk, so that its memory is that of the machine model
(and of PyTorch, which the options come through), not of capturing.
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
    "ResNet-50 inference": (Request("resnet50"), 1.0),
    "ResNet-50 training": (Request("resnet50", training=True, accumulation=16), 1.0),
    "BERT-Large training over 4 IPUs": (
        Request("bert-large", training=True, accumulation=512, replicas=4), 5.0,
    ),
}  # fmt: skip


def once(name: str) -> None:
    """Prints seconds of one estimate, the process's peak memory in MB, and how much of it came
    with the estimate."""
    from softipu.estimating.targets import described
    from softipu.machine import estimate

    request, _ = ROWS[name]
    graph, chosen = described(request, "bow")
    before = _peak()
    started = time.perf_counter()
    estimate(graph, chosen)
    print(time.perf_counter() - started, _peak(), _peak() - before)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(name: str, environment: dict[str, str]) -> tuple[float, float, float]:
    """Medians of what `once` prints; a first process has captured the model for the others."""
    command = [sys.executable, "-m", "benchmarks.estimates", name]
    found = []
    for _ in range(ROUNDS + 1):
        text = subprocess.run(
            command, env=environment, check=True, stdout=subprocess.PIPE, text=True
        )
        found.append([float(figure) for figure in text.stdout.split()])
    seconds, peak, grown = (statistics.median(column) for column in zip(*found[1:], strict=True))
    return seconds, peak, grown


def main() -> None:
    print(
        "| estimate, after the capture | seconds | goal | peak memory, MB | by the estimate, MB |"
    )
    print("|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory(prefix="softipu-bench-") as folder:
        environment = settings.cleared() | {"SOFTIPU_HOME": str(Path(folder) / "home")}
        for name, (_, goal) in ROWS.items():
            seconds, peak, grown = measure(name, environment)
            print(f"| {name} | {seconds:.2f} | < {goal:g} | {peak:.0f} | {grown:.0f} |", flush=True)


if __name__ == "__main__":
    once(sys.argv[1]) if len(sys.argv) > 1 else main()
