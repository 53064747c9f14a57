"""Which IPUs the plugin's devices are, where only Python can find that out.

The plugin reads IPUoF files and knows the embedded systems. Partitions made with `vipu` are in a
database or on a server; the environment hands them to the plugin, which reads it once, when Paddle
loads it.
"""

from __future__ import annotations

import os
import warnings

from softipu import devices, settings
from softipu.devices import ipuof
from softipu.devices.home import Home
from softipu.errors import SoftIPUError

_VARIABLE = "SOFTIPU_PADDLE_PARTITION"


def hand_over() -> None:
    """Before Paddle loads its plugins."""
    os.environ.pop(_VARIABLE, None)
    if not _only_python_knows():
        return
    try:
        os.environ[_VARIABLE] = ipuof.dumps(ipuof.build(devices.active_partition()))
    except SoftIPUError as error:
        # Most programs that import Paddle want no IPU; one that does gets the plugin's error.
        warnings.warn(f"Paddle's device `ipu` has no partition. {error}", stacklevel=2)


def _only_python_knows() -> bool:
    if settings.is_set("IPUOF_CONFIG_PATH"):
        return False
    return settings.is_set("IPUOF_VIPU_API_HOST") or any(Home().controllers.glob("*.sqlite"))
