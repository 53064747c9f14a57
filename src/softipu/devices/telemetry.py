"""Counters that a lease's holder keeps for the tools, and the sensors modelled from them.

Counting is cheap and may happen at every step; files are written a few times a second at most.
Power and temperature are a model of a board under that load, never a measurement.
"""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass, replace
from pathlib import Path

from .. import arch
from ..errors import InvalidRequest, LeaseClosed, NoSuchDevice
from . import process
from .home import Home, explained
from .model import Ipu
from .record import Counters, Record, complaint, dump

#: Seconds between two writes of the same counters.
INTERVAL = 0.25


def telemetry_path(home: Home, ipu: Ipu) -> Path:
    return home.ipus / f"{ipu.key}.telemetry.json"


class Telemetry:
    """What the IPUs of one lease did. `add` from any thread."""

    def __init__(self, home: Home, ipus: tuple[Ipu, ...], record: Record) -> None:
        self._home = home
        self._ipus = ipus
        self._pid = record.pid
        now = record.since_boot
        blank = Counters(record.pid, record.start_ticks, now, 0.0, 0, 0, 0, now, 0.0)
        self._counters = {ipu.key: blank for ipu in ipus}
        self._written = dict(self._counters)
        self._last_write = now
        self._open = True
        #: Seconds, bytes in, bytes out and cycles of calls since the counters last grew.
        self._calls = (0.0, 0, 0, 0)
        self._mutex = threading.Lock()

    def account(
        self, seconds: float, bytes_in: int = 0, bytes_out: int = 0, cycles: int = 0
    ) -> None:
        """Count one call of a program on all IPUs of the lease; `cycles` are those of a modelled
        IPU, 0 where nobody has estimated them.

        Short calls come by the thousand a second, and nobody looks that often: counters grow a few
        times a second. A forked child has a copy of this object, but holds nothing to count for.
        """
        if self._pid != os.getpid():
            return
        with self._mutex:
            before = self._calls
            self._calls = (
                before[0] + seconds, before[1] + bytes_in, before[2] + bytes_out,
                before[3] + cycles,
            )  # fmt: skip
            due = self._open and process.boot_seconds() - self._last_write >= INTERVAL
        if due:
            self._count_calls()

    def _count_calls(self) -> None:
        with self._mutex:
            (seconds, bytes_in, bytes_out, cycles), self._calls = self._calls, (0.0, 0, 0, 0)
        self.add(
            busy_seconds=seconds, cycles=int(cycles),
            host_bytes_in=int(bytes_in), host_bytes_out=int(bytes_out),
        )  # fmt: skip

    def add(
        self,
        *,
        busy_seconds: float = 0.0,
        cycles: int = 0,
        host_bytes_in: int = 0,
        host_bytes_out: int = 0,
        ipu: int | None = None,
    ) -> None:
        """Count work of every IPU of the lease, or of the one with this id."""
        if self._pid != os.getpid():
            raise LeaseClosed("Telemetry was written by a forked child of the lease's holder.")
        chosen = [one.key for one in self._ipus if ipu is None or one.id == ipu]
        if not chosen:
            raise NoSuchDevice(f"The lease has no IPU {ipu}.")
        with self._mutex:
            if not self._open:
                raise LeaseClosed("Telemetry of a released lease was written.")
            grown = {}
            for key in chosen:
                old = self._counters[key]
                grown[key] = replace(
                    old,
                    busy_seconds=old.busy_seconds + busy_seconds,
                    cycles=old.cycles + cycles,
                    host_bytes_in=old.host_bytes_in + host_bytes_in,
                    host_bytes_out=old.host_bytes_out + host_bytes_out,
                )
            added = (busy_seconds, cycles, host_bytes_in, host_bytes_out)
            problem = complaint(grown[chosen[0]])
            if problem is not None or not all(amount >= 0 for amount in added):
                raise InvalidRequest(f"Counters cannot grow by {added}: {problem or 'negative'}.")
            self._counters |= grown
            if process.boot_seconds() - self._last_write >= INTERVAL:
                self._flush()

    def flush(self) -> None:
        """Write the counters now, however recent the last write is."""
        if self._open and self._pid == os.getpid():
            self._count_calls()
            with self._mutex:
                self._flush()

    def _flush(self) -> None:
        now = process.boot_seconds()
        for ipu in self._ipus:
            last = self._written[ipu.key]
            current = self._counters[ipu.key]
            body = replace(
                current,
                updated_boot=now,
                window_start_boot=last.updated_boot,
                window_busy_seconds=max(0.0, current.busy_seconds - last.busy_seconds),
            )
            path = telemetry_path(self._home, ipu)
            with explained(path):
                self._home.write_json(path, dump(body))
            self._written[ipu.key] = body
        self._last_write = now

    def close(self) -> None:
        """Stop counting and remove the files, once: later they may be the next holder's."""
        with self._mutex:
            if not self._open:
                return
            self._open = False
            for ipu in self._ipus:
                with contextlib.suppress(OSError):  # stale counters are recognised by their pid
                    telemetry_path(self._home, ipu).unlink()


def utilisation(counters: Counters, now_boot: float) -> float:
    """Busy share (0 to 1) of the last written interval.

    Once the next write is overdue it decays, so a stalled program does not look busy for ever.
    """
    length = counters.updated_boot - counters.window_start_boot
    patience = max(2 * INTERVAL, length)
    seconds = max(length, now_boot - counters.window_start_boot - patience)
    return min(1.0, counters.window_busy_seconds / seconds) if seconds > 0 else 0.0


def session_utilisation(counters: Counters, record: Record, now_boot: float) -> float:
    seconds = now_boot - record.since_boot
    return min(1.0, counters.busy_seconds / seconds) if seconds > 0 else 0.0


@dataclass(frozen=True)
class Sensors:
    """A board's modelled readings."""

    board_power: float  #: watts
    ipu_power: float
    board_temperature: float  #: degrees Celsius
    die_temperature: float


def model_sensors(system: arch.System, board_load: float, ipu_load: float) -> Sensors:
    """Steady state of a board whose IPUs are busy for that share of the time."""
    span = system.board_full_power - system.board_idle_power
    power = system.board_idle_power + span * board_load
    ipu_power = (system.board_idle_power + span * ipu_load) / system.ipus_per_board
    board = system.ambient_temperature + system.board_temperature_per_watt * power
    return Sensors(
        board_power=power,
        ipu_power=ipu_power,
        board_temperature=board,
        die_temperature=board + system.die_temperature_per_watt * ipu_power,
    )
