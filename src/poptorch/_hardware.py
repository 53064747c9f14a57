"""Questions about the IPUs of the system."""

from __future__ import annotations

from softipu import arch, devices
from softipu.errors import SoftIPUError

#: The number PopTorch gives to a chip: Bow is a second-generation IPU, revision 21.
VERSIONS = {"mk1": 1, "mk2": 2, "c600": 21, "bow": 21}


def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:
    """Whether the active partition has that many IPUs, free or not."""
    try:
        partition = devices.active_partition()
    except SoftIPUError:
        # The question is whether there are IPUs: a system that can't be read has none to offer.
        return False
    return 1 <= num_ipus <= len(partition.ipus)


def ipuHardwareVersion() -> int:
    """The generation of the IPUs: 1, 2 or 21."""
    partition = devices.active_partition()
    chip = arch.system(partition.system).chip
    return VERSIONS.get(str(getattr(chip, "name", chip)), -1)
