"""Ends in some way while its signs of life are on their way to a slow store: `leaving.py HOW`."""

import contextlib
import sys
import time
from datetime import timedelta
from typing import Any

import popdist
from softipu.instances import group, liveness


class SlowStore:
    """Takes its time for everything, in C++ and without Python's lock, as a busy machine does."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        with contextlib.suppress(RuntimeError):
            self._store.wait(["never"], timedelta(seconds=0.1))
        return getattr(self._store, name)


class SlowToGo:
    """The interpreter is busy with its end for longer than one such call takes."""

    def __del__(self, sleep: Any = time.sleep) -> None:
        sleep(0.5)


def main(how: str) -> None:
    popdist.init()
    pulse = group.current()._pulse
    pulse._store = SlowStore(pulse._store)
    popdist.synchronize()
    time.sleep(0.3)
    if how == "finalize":
        popdist.finalizeDistributed()
    elif how == "exit":
        sys.exit(3)
    elif how == "raise":
        raise ValueError("a mistake in the middle")


liveness.BEAT_SECONDS = 0.0  # it is nearly always in the store
slow = SlowToGo()
main(sys.argv[1])
