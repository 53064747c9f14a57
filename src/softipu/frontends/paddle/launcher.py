"""`python -m paddle.distributed.launch --devices=N ipu …`: Paddle's launcher, which starts poprun.

It takes `--devices` for one of the numbers of IPUs that there are, and asks Paddle for them. Plain
programs must be told of none: the launcher would start a process for each.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from softipu.errors import InvalidIpuPlacement

from . import devices

#: What stands in the place of a program when it is for IPUs.
_FOR_IPUS = "ipu"
_CONTROLLER = "paddle.distributed.launch.controllers.ipu_controller"
#: Options after `ipu` that Paddle computes with, so that it fails where they are missing.
_NEEDED = ("hosts", "nproc_per_host", "ipus_per_replica")


def install(context: Any) -> None:
    """`context` is the module paddle.distributed.launch.context."""
    owner = context.Context
    original = owner.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if self.args.training_script == _FOR_IPUS:
            self.node.device = _ipus(self.args.devices)
            _complete_controller()

    owner.__init__ = init


def _ipus(wanted: Any) -> Any:
    from paddle.distributed.launch.context.device import Device, DeviceType

    count = devices.ipu_count()
    choices = [str(number) for number in range(count + 1)]
    if wanted not in choices[1:]:
        raise InvalidIpuPlacement(
            f"paddle.distributed.launch --devices={wanted} ipu: there are {count} IPUs.",
            cause="--devices is how many IPUs all processes have together.",
            remedy=f"Use --devices=1 … --devices={count}, or a larger system (SOFTIPU_SYSTEM).",
        )
    return Device(dtype=DeviceType.IPU, labels=choices)


@functools.cache  # once in a process, however many contexts it makes
def _complete_controller() -> None:
    """Paddle's controller fails without some options, and hands `None` on for others."""
    owner = importlib.import_module(_CONTROLLER).IPUController
    parse, entrypoint = owner.parse_ipu_args, owner._get_entrypoint

    @functools.wraps(parse)
    def parse_ipu_args(self: Any, arguments: Any) -> Any:
        found = parse(self, arguments)
        missing = [f"--{name}" for name in _NEEDED if getattr(found, name) is None]
        if missing:
            raise InvalidIpuPlacement(
                f"paddle.distributed.launch … ipu: {', '.join(missing)} is missing.",
                cause="How many processes and replicas there are follows from these options.",
                remedy="Give them between `ipu` and the program: `ipu --hosts=localhost "
                "--nproc_per_host=2 --ipus_per_replica=1 train.py`.",
            )
        return found

    @functools.wraps(entrypoint)
    def _get_entrypoint(self: Any) -> Any:
        # Without a partition or a V-IPU server, poprun finds both itself.
        self.ctx.args.training_script_args = [
            argument
            for argument in self.ctx.args.training_script_args
            if argument not in ("--vipu-partition=None", "--vipu-server-host=None")
        ]
        return entrypoint(self)

    owner.parse_ipu_args, owner._get_entrypoint = parse_ipu_args, _get_entrypoint
