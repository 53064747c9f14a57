"""What the devices and tools cost: import, attach and detach, gc-monitor, dashboard update.

Prints one Markdown table. Where there is something to compare with (a bare Python start), both
sides are measured in turns in the same run.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from softipu import devices, settings
from softipu.devices.embedded import whole_system

ROUNDS = 15
SYSTEM, PROCESSES, IPUS_EACH = "bow-pod256", 64, 4

_HOLD = """
import sys
from softipu import devices, settings
lease = devices.attach(int(sys.argv[1]), timeout=60)
lease.telemetry.add(busy_seconds=0.1); lease.telemetry.flush()
print("held", flush=True)
sys.stdin.readline()
"""


def wall(command: list[str], environment: dict[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def interleaved(sides: dict[str, Callable[[], float]], rounds: int = ROUNDS) -> dict[str, float]:
    """Median seconds of each side, measured in turns so that noise hits all alike."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, measure in sides.items():
            taken[name].append(measure())
    return {name: statistics.median(values) for name, values in taken.items()}


def measure_import(environment: dict[str, str]) -> list[tuple[str, str, str]]:
    python = sys.executable
    medians = interleaved(
        {
            "bare": lambda: wall([python, "-c", "pass"], environment),
            "softipu": lambda: wall([python, "-c", "import softipu"], environment),
            "devices": lambda: wall([python, "-c", "import softipu.devices"], environment),
        }
    )
    rows = []
    for name in ("softipu", "devices"):
        module = "softipu" if name == "softipu" else "softipu.devices"
        extra = 1000 * (medians[name] - medians["bare"])
        goal = "< 50 ms" if name == "softipu" else ""
        rows.append((f"`import {module}` beyond a bare Python start", f"{extra:.1f} ms", goal))
    return rows


def measure_attach(home: devices.Home) -> list[tuple[str, str, str]]:
    partition = whole_system("bow-pod16")

    def once(ipus: int) -> float:
        started = time.perf_counter()
        devices.attach(ipus, partition=partition, home=home).release()
        return time.perf_counter() - started

    medians = interleaved({"1": lambda: once(1), "16": lambda: once(16)}, rounds=300)
    return [
        ("attach + detach of 1 IPU, median", f"{1000 * medians['1']:.2f} ms", "< 5 ms"),
        ("attach + detach of 16 IPUs, median", f"{1000 * medians['16']:.2f} ms", ""),
    ]


def measure_tools(environment: dict[str, str]) -> list[tuple[str, str, str]]:
    holders = [
        subprocess.Popen(
            [sys.executable, "-c", _HOLD, str(IPUS_EACH)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(PROCESSES)
    ]
    try:
        for holder in holders:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
        tool = str(Path(sys.executable).with_name("gc-monitor"))
        medians = interleaved(
            {
                "monitor": lambda: wall([tool], environment),
                "json": lambda: wall([tool, "-j"], environment),
                "bare": lambda: wall([sys.executable, "-c", "pass"], environment),
            }
        )
        rows = [
            ("`gc-monitor`, 256 IPUs, 64 processes", f"{medians['monitor']:.3f} s", "< 0.3 s"),
            ("`gc-monitor -j`, likewise", f"{medians['json']:.3f} s", ""),
            ("bare Python start, for comparison", f"{medians['bare']:.3f} s", ""),
        ]
        return rows + measure_dashboard(environment)
    finally:
        for holder in holders:
            holder.kill()
            holder.communicate()


#: Everything that an update costs, whoever watches: looking, counting, encoding.
_UPDATE = """
import statistics, time
from softipu.tools.dashboard.feed import Feed
feed = Feed()
feed.update()
cpu, wall = [], []
for _ in range(20):
    time.sleep(0.05)
    begin = time.perf_counter(), time.process_time()
    size = len(feed.update().body)
    wall.append(time.perf_counter() - begin[0])
    cpu.append(time.process_time() - begin[1])
print(f"{1e3 * statistics.median(cpu):.1f} ms CPU, {1e3 * statistics.median(wall):.1f} ms wall, "
      f"{size / 1e3:.0f} kB")
"""


def measure_dashboard(environment: dict[str, str]) -> list[tuple[str, str, str]]:
    answer = subprocess.run(
        [sys.executable, "-c", _UPDATE],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return [("dashboard update, 256 IPUs, 64 processes", answer.stdout.strip(), "")]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="softipu-bench-") as folder:
        environment = settings.cleared() | {
            "SOFTIPU_HOME": f"{folder}/state",
            "SOFTIPU_SYSTEM": SYSTEM,
        }
        rows = measure_import(environment)
        rows += measure_attach(devices.Home(Path(folder) / "attach"))
        rows += measure_tools(environment)
    print("| what | measured | goal |\n|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
