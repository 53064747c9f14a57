"""The fight of test_lease_fights: many processes attach and detach while some are killed.

Run as a program: lease_arena.py PROCESSES ROUNDS. Prints one line of JSON. A witness that knows
nothing of softipu watches: every holder also takes a POSIX record lock for each of its IPUs, which
must always be free.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import random
import signal
import struct
import sys
import time

from softipu import devices
from softipu.errors import DevicesBusy

KILLED_SHARE = 0.1


class Arena:
    def __init__(self, processes: int) -> None:
        self.home = devices.Home()
        self.home.prepare()
        self.partition = devices.active_partition(self.home)
        # Opened before any lease, so that a dying process closes them before its leases.
        self.witnesses = [
            os.open(self.home.path.parent / f"witness-{ipu.id}", os.O_RDWR | os.O_CREAT)
            for ipu in self.partition.ipus
        ]
        self.rounds = mmap.mmap(-1, 8 * processes)
        self.violations = mmap.mmap(-1, 8 * processes)
        self.stop = mmap.mmap(-1, 1)

    @staticmethod
    def read(counters: mmap.mmap) -> int:
        return sum(struct.unpack(f"{len(counters) // 8}q", counters[:]))

    @staticmethod
    def increment(counters: mmap.mmap, slot: int) -> None:
        (value,) = struct.unpack_from("q", counters, 8 * slot)
        struct.pack_into("q", counters, 8 * slot, value + 1)

    def start(self, slot: int) -> int:
        child = os.fork()
        if child:
            return child
        status = 1
        try:
            self.work(slot, random.Random(time.time_ns() ^ os.getpid()))
            status = 0
        finally:
            os._exit(status)

    def work(self, slot: int, chance: random.Random) -> None:
        while not self.stop[0]:
            try:
                lease = devices.attach(
                    chance.choice((1, 1, 1, 2, 2, 4, 8)),
                    timeout=chance.choice((0.0, 0.05, 0.5)),
                    partition=self.partition,
                    home=self.home,
                )
            except DevicesBusy:
                continue
            for ipu in lease.ids:
                try:
                    fcntl.lockf(self.witnesses[ipu], fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    self.increment(self.violations, slot)
            lease.telemetry.add(busy_seconds=0.001)
            if chance.random() < 0.3:
                lease.telemetry.flush()
            time.sleep(chance.random() * 0.003)
            for ipu in lease.ids:
                fcntl.lockf(self.witnesses[ipu], fcntl.LOCK_UN)
            lease.release()
            self.increment(self.rounds, slot)


def fight(processes: int, rounds: int) -> dict[str, int]:
    arena = Arena(processes)
    workers = {slot: arena.start(slot) for slot in range(processes)}
    kills = 0
    deadline = time.monotonic() + 120
    done = 0
    while (done < rounds or kills < KILLED_SHARE * rounds) and time.monotonic() < deadline:
        time.sleep(0.002)
        done = arena.read(arena.rounds) + kills
        while kills < KILLED_SHARE * done:
            slot = random.randrange(processes)
            os.kill(workers[slot], signal.SIGKILL)
            os.waitpid(workers[slot], 0)
            workers[slot] = arena.start(slot)
            kills += 1
    arena.stop[0] = 1
    failures = sum(os.waitpid(pid, 0)[1] != 0 for pid in workers.values())
    statuses = devices.status(arena.partition, arena.home)
    return {
        "rounds": arena.read(arena.rounds) + kills,
        "kills": kills,
        "violations": arena.read(arena.violations),
        "failures": failures,
        "held_at_end": sum(status.held for status in statuses),
    }


if __name__ == "__main__":
    print(json.dumps(fight(int(sys.argv[1]), int(sys.argv[2]))))
