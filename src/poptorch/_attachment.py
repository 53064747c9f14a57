"""The executable's hold on virtual IPUs: how many, which, and what gc-monitor sees of it."""

from __future__ import annotations

import time
from typing import Any

from softipu import arch, devices, settings
from softipu.errors import DevicesBusy, SoftIPUError

from ._environment import model_chip
from ._errors import Error, createPoptorchError
from ._logging import native
from .enums import ConnectionType

MOST_IPUS = 64
_POLL_SECONDS = 15.0
#: The chip that PopTorch's IPU model has unless it is told otherwise.
_USUAL_MODEL = "mk2"


def round_up(count: int) -> int:
    """IPUs are reserved in powers of two."""
    return 1 << (count - 1).bit_length()


def ipus_for(options: Any, per_replica: int) -> int:
    """How many IPUs the program reserves, or PopTorch's error when the number won't do."""
    wanted: int = per_replica * options.replication_factor
    _check_limit(wanted)
    rounded = round_up(wanted)
    if rounded == wanted:
        return wanted
    reason = ", because PopTorch must reserve a power of 2 or maximum of 64 IPUs per process"
    if not options.auto_round_num_ipus:
        raise createPoptorchError(
            f"The model specifies the use of {wanted} IPUs, however PopTorch must reserve a "
            f"minimum of {rounded} in order to allow the model to run{reason}. Please reconfigure "
            "your model to use a different number of IPUs or set "
            "poptorch.Options().autoRoundNumIPUs(True)."
        )
    native.warning(
        "Reserving %d IPUs when the model specifices the use of only %d%s. %d will be reserved but "
        "not used.", rounded, wanted, reason, rounded - wanted,
    )  # fmt: skip
    _check_limit(rounded)
    return rounded


def _check_limit(count: int) -> None:
    if count > MOST_IPUS:
        raise createPoptorchError(
            f"Too many IPUs requested ({count}). Experiments that need more than {MOST_IPUS} IPUs "
            "require distributed execution.",
            cause="That many are the IPUs of one replica times replicationFactor.",
            remedy="Use fewer replicas or stages, or start several instances of the program with "
            "poprun, each with its part of the replicas.",
        )


class Attachment:
    """A lease on the IPUs of one executable; none is needed for the IPU model."""

    def __init__(self, options: Any, per_replica: int) -> None:
        self._options = options
        self.model = uses_model(options)
        if options.exists("use_model"):
            word = "Enabled" if self.model else "Disabled"
            native.info("From the user configuration: Ipu model: %s", word)
        #: The chip of the IPU model, where the environment names one.
        self._model_chip = model_chip() if self.model else None
        self.ipus = per_replica * options.replication_factor
        if not self.model and not self.offline:
            self.ipus = ipus_for(options, per_replica)
        else:
            _check_limit(self.ipus)
        self._lease: devices.Lease | None = None
        self._attached = False

    @property
    def offline(self) -> bool:
        return bool(self._options.connection_type == ConnectionType.Never.value)

    @property
    def attached(self) -> bool:
        return self._attached

    def attach(self, executable: str) -> None:
        if self.model:
            tiles = arch.chip(self._model_chip or _USUAL_MODEL).tiles
            native.debug("Instantiated device, running on IPU model with %d tiles.", tiles)
        else:
            self._lease = self._acquire()
            self._lease.describe(executable=executable)
        self._attached = True

    def describe(self, memory_bytes: int) -> None:
        """Tells gc-monitor how much memory the program takes on each IPU."""
        if self._lease is not None:
            self._lease.describe(memory_bytes=memory_bytes)

    def _acquire(self) -> devices.Lease:
        options = self._options
        chosen = options.ipu_id if options.exists("ipu_id") else None
        waits = settings.get("POPTORCH_WAIT_FOR_IPU")
        while True:
            try:
                lease = devices.attach(self.ipus, device=chosen)
            except SoftIPUError as error:
                if waits and error.code == DevicesBusy.code:
                    native.debug("No IPU available, sleeping for %d seconds", _POLL_SECONDS)
                    lease = self._wait(chosen)
                else:
                    raise _failed(error, self.ipus, chosen) from error
            if chosen is None:
                native.debug(
                    "Acquired %d IPU(s): running on device Id %d.", self.ipus, lease.device.id
                )
            else:
                native.debug("Acquired IPU device with id %d, running on device.", lease.device.id)
            native.log(5, "Attached to device %d", lease.device.id)
            return lease

    def _wait(self, chosen: int | None) -> devices.Lease:
        while True:
            try:
                return devices.attach(self.ipus, device=chosen, timeout=_POLL_SECONDS)
            except DevicesBusy:
                native.debug("No IPU available, sleeping for %d seconds", _POLL_SECONDS)

    def detach(self) -> None:
        if self._lease is not None:
            self._lease.release()
            native.debug("Detached from device %d", self._lease.device.id)
            self._lease = None
        self._attached = False

    def account(self, seconds: float, bytes_in: int, bytes_out: int, cycles: int = 0) -> None:
        """Counts a call in the telemetry that gc-monitor shows."""
        if self._lease is not None:
            self._lease.telemetry.account(seconds, bytes_in, bytes_out, cycles)


def uses_model(options: Any) -> bool:
    """Whether the program asked for the IPU model instead of IPUs."""
    if options.exists("use_model"):
        return bool(options.use_model)
    return bool(settings.get("POPTORCH_IPU_MODEL") or settings.get("POPTORCH_SMALL_IPU_MODEL"))


def _failed(error: SoftIPUError, ipus: int, chosen: int | None) -> Error:
    what = f"device Id {chosen}" if chosen is not None else f"{ipus} IPU(s)"
    return Error(
        f"'poptorch_cpp_error': Failed to acquire {what}\n{error}",
        type="poptorch_cpp_error",
        message=f"Failed to acquire {what}",
        code=error.label,
    )


def clock() -> float:
    return time.perf_counter()
