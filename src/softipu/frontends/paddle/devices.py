"""Virtual IPUs for Paddle programs: a lease, and what gc-monitor sees of the work on it.

Both the native API and `paddle.inference` attach through `attach`. Nothing here imports Paddle, and
`softipu.devices` waits until then: every program that imports Paddle comes past here.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from typing import TYPE_CHECKING

from softipu import settings

if TYPE_CHECKING:
    from softipu import devices


class Attachment:
    """A hold on IPUs. Without a lease (the IPU model) it only counts how many there would be."""

    def __init__(self, count: int, lease: devices.Lease | None) -> None:
        self.count = count
        self._lease = lease
        self._is_model = lease is None
        self._mutex = threading.Lock()
        _open.add(self)

    @property
    def held(self) -> bool:
        # A forked child has a copy of this object, but holds nothing.
        return self._lease is not None and self._lease.held

    @property
    def is_model(self) -> bool:
        return self._is_model

    @property
    def ids(self) -> tuple[int, ...]:
        """Ids of the IPUs; made up from 0 for the IPU model."""
        return tuple(range(self.count)) if self._lease is None else self._lease.ids

    @property
    def device_id(self) -> int | None:
        return None if self._lease is None else self._lease.device.id

    def describe(self, *, what: str | None = None, memory_bytes: int | None = None) -> None:
        """Tells gc-monitor what runs here and how much memory it takes on each IPU."""
        if self._lease is not None and self._lease.held:
            self._lease.describe(executable=what, memory_bytes=memory_bytes)

    def account(
        self, seconds: float, bytes_in: int = 0, bytes_out: int = 0, cycles: int = 0
    ) -> None:
        """Counts a run in the telemetry; `cycles` are modelled."""
        lease = self._lease
        if lease is not None:
            lease.telemetry.account(seconds, bytes_in, bytes_out, cycles)

    def release(self) -> None:
        """Give the IPUs back; doing it twice is allowed."""
        with self._mutex:
            if self._lease is not None:
                self._lease.release()
                self._lease = None

    def __del__(self) -> None:
        if getattr(self, "_lease", None) is not None:
            self.release()


def attach(count: int, *, what: str, device: int | None = None, timeout: float = 0.0) -> Attachment:
    """Hold `count` IPUs (rounded up to a power of two) for the program that `what` names.

    With POPLAR_IPUMODEL=1 nothing is leased. Raises errors of `softipu.errors` when the partition
    has too few IPUs or others hold them.
    """
    from softipu import devices

    if uses_model():
        return Attachment(count, None)
    lease = devices.attach(round_up(count), device=device, timeout=timeout)
    attachment = Attachment(count, lease)
    attachment.describe(what=what)
    return attachment


def uses_model() -> bool:
    """Whether the environment asks for the IPU model instead of IPUs."""
    return bool(settings.get("POPLAR_IPUMODEL"))


def ipu_count() -> int:
    """How many IPUs the active partition has."""
    from softipu import devices

    return len(devices.active_partition().ipus)


def round_up(count: int) -> int:
    """IPUs are joined into devices in powers of two."""
    return 1 << max(count - 1, 0).bit_length()


_open: weakref.WeakSet[Attachment] = weakref.WeakSet()


def release_all() -> None:
    for attachment in list(_open):
        attachment.release()


atexit.register(release_all)
