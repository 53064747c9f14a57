"""Freed memory stays with the process, or goes back if the user says so."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Allocates and frees some megabytes repeatedly; prints how many pages the last rounds fetched.
PROGRAM = """
import ctypes, resource
from softipu.malloc import keep_freed_memory
kept = keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
def work():
    blocks = [libc.malloc(ctypes.c_size_t(8_000_000)) for _ in range(8)]
    for block in blocks:
        ctypes.memset(block, 1, 8_000_000)
    for block in blocks:
        libc.free(ctypes.c_void_p(block))
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    work()
before = faults()
for _ in range(3):
    work()
print(kept, faults() - before)
"""


@pytest.mark.parametrize(("keep", "fetched"), [("1", False), ("0", True)])
def test_pages_are_fetched_once_if_memory_is_kept(keep: str, fetched: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={"SOFTIPU_KEEP_MEMORY": keep}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    kept, faults = done.stdout.split()
    assert kept == str(not fetched)
    assert (int(faults) > 10_000) == fetched, faults
