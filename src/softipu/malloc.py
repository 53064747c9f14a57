"""Asks the C library to keep freed memory for the next step instead of giving it back.

A step frees what it allocated and the next one allocates the same again. Given back in between,
each page of it is fetched and cleared anew by the kernel, which takes longer than small models do.
"""

from __future__ import annotations

import ctypes
import functools

from . import settings

# From malloc.h: how much may stay at the end of the heap, and what is allocated outside of it.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST = 2**31 - 1
#: What older libraries accept at most.
_LARGEST_ON_OLD = 32 * 1024 * 1024


@functools.cache
def keep_freed_memory() -> bool:
    """Once per process; False where the C library has no such setting, or the user said no."""
    if not settings.get("SOFTIPU_KEEP_MEMORY"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    if not mallopt(_TRIM_THRESHOLD, _LARGEST):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST) or mallopt(_MMAP_THRESHOLD, _LARGEST_ON_OLD))
