"""Instances that meet, say so, and then wait for each other; what happens next is the test's."""

import os
import sys
import time
from datetime import timedelta

import torch

from softipu import instances
from softipu.instances import group


def main() -> None:
    me = instances.read()
    if "SLICE_SECONDS" in os.environ:
        group._SLICE = timedelta(seconds=int(os.environ["SLICE_SECONDS"]))
    together = group.current()
    together.barrier()
    print("together", flush=True)
    if len(sys.argv) > 1 and me.index == 2:
        # This one does something else: ends, sleeps, or fails.
        what = sys.argv[1]
        if what == "end":
            return
        if what == "raise":
            raise SystemExit(3)
        time.sleep(600)
    value = torch.zeros(int(os.environ.get("ELEMENTS", "1000")))
    while True:
        together.all_reduce(value)


main()
