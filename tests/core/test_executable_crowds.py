"""The cache of executables shared by threads and processes, some of which are killed."""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

from softipu.executable import Producer, Store, locks, store

POPTORCH = Producer("poptorch", 1)


@pytest.fixture
def cache(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache", producer=POPTORCH)


def test_threads_exclude_each_other(cache):
    key, inside, most = cache.key("x"), [], []

    def work() -> None:
        with cache.lock(key):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.002)
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 8


def test_who_waited_for_a_lock_that_was_removed_locks_the_new_one(tmp_path):
    path, waiting, got = tmp_path / "lock", threading.Event(), []
    first = locks.acquire(path, 0o600)
    assert first is not None
    waiter = threading.Thread(
        target=lambda: got.append(locks.acquire(path, 0o600, waiting=waiting.set))
    )
    waiter.start()
    waiting.wait()
    path.unlink()
    locks.release(first)
    waiter.join()
    assert locks.acquire(path, 0o600) is None
    locks.release(got[0])
    assert not locks.is_held(path)


HOLD = """
import os, sys
from softipu.executable import Store
cache = Store(sys.argv[1])
with cache.lock(sys.argv[2]):
    if len(sys.argv) > 3 and os.fork() == 0:
        os.execvp("sleep", ["sleep", "60"]) if sys.argv[3] == "exec" else sys.stdin.read()
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_the_lock_of_a_killed_process_is_free_at_once(cache, start):
    key = cache.key("x")
    holder = start(HOLD, str(cache.directory), key)
    assert holder.stdout.readline() == "held\n"
    assert cache.is_locked(key)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert not cache.is_locked(key)
    with cache.lock(key):
        pass


def test_a_child_that_was_forked_under_the_lock_does_not_keep_it(cache, start):
    """Compilers fork workers, which may live longer than who started them."""
    key = cache.key("x")
    holder = start(HOLD, str(cache.directory), key, "fork")
    assert holder.stdout.readline() == "held\n"
    assert cache.is_locked(key)
    holder.kill()
    holder.wait()
    # The child may still have to run for the first time, and lets go then.
    deadline = time.monotonic() + 10
    while cache.is_locked(key) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not cache.is_locked(key)


def test_who_waits_says_so(cache, start, caplog):
    caplog.set_level(logging.INFO)
    key = cache.key("x")
    holder = start(HOLD, str(cache.directory), key)
    assert holder.stdout.readline() == "held\n"
    timer = threading.Timer(0.05, holder.kill)
    timer.start()
    with cache.lock(key):
        timer.join()
    assert "Another process compiles" in caplog.text


def in_children(count: int, work) -> None:
    """Run `work(number)` in forked processes at once; fails if one of them does."""
    children = []
    for number in range(count):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                work(number)
                status = 0
            finally:
                os._exit(status)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * count


def test_of_a_hundred_processes_one_compiles_and_all_get_the_result(cache, tmp_path):
    log = tmp_path / "made"
    log.touch()
    key = cache.key("model")

    def make() -> store.Contents:
        with log.open("a") as stream:
            stream.write(f"{os.getpid()}\n")
        time.sleep(0.05)
        return {}, {"a": b"result" * 1000}

    def work(number: int) -> None:
        container, _ = cache.obtain(key, make)
        assert container.blob("a") == b"result" * 1000

    in_children(100, work)
    assert len(log.read_text().splitlines()) == 1


def test_processes_that_put_get_evict_and_clear_at_once_see_whole_entries_only(cache):
    cache.max_bytes = 20_000  # about a third of what they put

    def work(number: int) -> None:
        warnings.simplefilter("error")
        dice = random.Random(number)
        for _ in range(25):
            name = f"model {dice.randrange(20)} "
            key = cache.key(name)
            chance = dice.random()
            if chance < 0.03:
                cache.prune()
            elif chance < 0.05:
                cache.clear()
            elif chance < 0.5:
                found = cache.get(key)
                if found is not None:
                    assert found.blob("data") == name.encode() * 300
            else:
                made = {"name": name}, {"data": name.encode() * 300}
                container, _ = cache.obtain(key, lambda made=made: made)
                assert container.blob("data") == name.encode() * 300

    in_children(12, work)
    cache.prune()
    assert sum(entry.size for entry in cache.entries()) <= 20_000
    assert cache.damaged() == []


def test_writers_that_are_killed_at_any_moment_leave_a_usable_cache(cache):
    code = (
        "import sys\n"
        "from softipu.executable import Producer, Store\n"
        "cache = Store(sys.argv[1], 30_000, producer=Producer('poptorch', 1))\n"
        "print(flush=True)\n"
        "number = 0\n"
        "while True:\n"
        "    number += 1\n"
        "    key = cache.key(number % 20)\n"
        "    cache.obtain(key, lambda: ({}, {'a': bytes(4000)}))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    for round_ in range(4):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", code, str(cache.directory)],
                env=environment,
                stdout=subprocess.PIPE,
            )
            for _ in range(2)
        ]
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        time.sleep(0.01 + 0.013 * round_)
        for writer in writers:
            writer.kill()
            writer.wait()
            assert writer.stdout is not None
            writer.stdout.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(20):
            cache.get(cache.key(number))
    cache.put(cache.key("a"), {}, {})
    assert cache.clear().in_use == 0
