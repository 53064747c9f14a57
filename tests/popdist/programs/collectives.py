"""An instance that does every collective once and prints what it got."""

import json
import os

import numpy as np
import torch

from softipu import instances
from softipu.instances import group


def say(value: object) -> None:
    print(json.dumps(value), flush=True)


def main() -> None:
    me = instances.read()
    together = group.current()
    assert together is group.current()
    for reduction in ("sum", "min", "max", "product"):
        value = torch.full((3,), float(me.index + 1))
        together.all_reduce(value, reduction)  # type: ignore[arg-type]
        say(value.tolist())
    half = torch.full((5,), me.index + 0.5, dtype=torch.float16)
    together.all_reduce(half)
    say([str(half.dtype), half.tolist()])
    value = torch.tensor([me.index, 7])
    together.broadcast(value, root=1)
    say(value.tolist())
    say([part.tolist() for part in together.all_gather(torch.tensor([me.index * 10]))])
    rows = torch.arange(me.index * 2, dtype=torch.float32).view(me.index, 2)
    say([part.tolist() for part in together.all_gather_ragged(rows)])
    array = np.full((2, 2), me.index, dtype=np.int64)
    together.all_reduce_array(array)
    say(array.tolist())
    together.broadcast_array(array, root=0)
    say(array.tolist())
    say(together.broadcast_bytes(f"from {me.index}".encode(), root=1).decode())
    say(together.broadcast_bytes(b"", root=0).decode())
    say([text.decode() for text in together.all_gather_bytes(b"x" * me.index)])
    together.agree("numbers of instances", str(me.count).encode())
    together.barrier()
    try:
        together.agree("indexes", str(me.index).encode())
    except Exception as error:  # noqa: BLE001 - the type is what the test looks at
        say([type(error).__name__, getattr(error, "what", "")])
    many = torch.arange(2_500_001, dtype=torch.float64) * (me.index + 1)
    together.all_reduce(many)
    say(torch.equal(many, torch.arange(2_500_001, dtype=torch.float64) * 6))
    torch.manual_seed(me.index)
    noise = torch.randn(100_003)
    together.all_reduce(noise)
    say(hash(noise.numpy().tobytes()) if os.environ.get("PYTHONHASHSEED") else 0)
    group.finalize()
    try:
        together.barrier()
    except Exception as error:  # noqa: BLE001
        say(type(error).__name__)


main()
