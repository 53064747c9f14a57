"""The IPUs that this process has configured: how many, when they are leased, what they do.

One configuration counts for the process, as `IPUConfig.configure_ipu_system` sets it. Each
TensorFlow device (/device:IPU:n) of it holds a lease on virtual IPUs of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import threading
from collections.abc import Iterator
from typing import Any

from tensorflow.python.framework import errors_impl as tf_errors
from tensorflow.python.platform import tf_logging

from softipu import devices
from softipu.errors import DevicesBusy, SoftIPUError

from . import engine_options, executable_cache, flags
from .ipu_options import DeviceConnectionType

_ADVICE = (
    "Common causes of this error include: incorrect configuration of your V-IPU partition, "
    "requesting more IPUs than are available on your system, or IPUs being used by another "
    "program. Use `gc-info -l` and `gc-monitor` to check your configuration."
)


class Device:
    """One TensorFlow device: a number of IPUs, leased when it is attached."""

    def __init__(self, ordinal: int, ipus: int = 1, chosen: int | None = None) -> None:
        self.ordinal = ordinal
        self.ipus = ipus
        #: Device id, where the program chose one.
        self.chosen = chosen
        self._lease: devices.Lease | None = None

    @property
    def attached(self) -> bool:
        # A forked child has a copy of this object, but holds nothing.
        return self._lease is not None and self._lease.held

    @property
    def _name(self) -> str:
        return f"TensorFlow virtual device /device:IPU:{self.ordinal}"

    def check(self) -> None:
        """Raises TensorFlow's error when no device of the partition is like this one."""
        partition = devices.active_partition()
        try:
            if self.chosen is not None:
                self.ipus = len(partition.device(self.chosen).ipus)
            partition.groups(self.ipus)
        except SoftIPUError as error:
            raise tf_errors.FailedPreconditionError(
                None, None,
                "Unsupported number of IPUs requested - could not find an IPU device with "
                f"{self.ipus} IPUs for the {self._name}. Use `gc-info -l` to view the available "
                f"device configurations.\n{error}",
            ) from error  # fmt: skip

    def attach(self, timeout: float) -> None:
        if self.attached:
            return
        try:
            self._lease = devices.attach(self.ipus, device=self.chosen)
        except DevicesBusy as error:
            self._lease = self._wait(timeout, error)
        except SoftIPUError as error:
            raise tf_errors.InvalidArgumentError(
                None, None,
                f"No device matches the requested configuration for {self._name}. This device was "
                f"expected to have {self.ipus} IPU(s). {_ADVICE}\n{error}",
            ) from error  # fmt: skip
        tf_logging.info(
            f"TensorFlow device /device:IPU:{self.ordinal} attached to {self.ipus} IPU(s) with "
            f"Poplar device ID: {self._lease.device.id}"
        )

    def _wait(self, timeout: float, busy: DevicesBusy) -> devices.Lease:
        if timeout > 0:
            tf_logging.info(
                f"Currently there is no available device for {self._name}. Waiting for one to "
                "become available."
            )
            try:
                return devices.attach(self.ipus, device=self.chosen, timeout=timeout)
            except DevicesBusy as error:
                busy = error
        what = "Timed out trying to find" if timeout > 0 else "Could not find"
        raise tf_errors.InternalError(
            None, None,
            f"Could not attach to IPUs. {what} an available device for {self._name}. This device "
            f"was expected to have {self.ipus} IPU(s). {_ADVICE}\n{busy}",
        ) from busy  # fmt: skip

    def detach(self) -> None:
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def describe(self, executable: str | None, memory_bytes: int | None) -> None:
        if self._lease is not None and self._lease.held:
            self._lease.describe(executable=executable, memory_bytes=memory_bytes)

    def account(self, seconds: float, bytes_in: int, bytes_out: int, cycles: int) -> None:
        if self._lease is not None:
            self._lease.telemetry.account(seconds, bytes_in, bytes_out, cycles)


class _State:
    """What `configure` sets and `reset` forgets."""

    def __init__(self) -> None:
        self.options: Any = None
        #: The same as an IPUConfig, once somebody asked for it.
        self.config: Any = None
        self.devices: dict[int, Device] = {}
        #: How many of the devices the program configured; others exist because it used them.
        self.configured = 0
        #: Whether a program has begun to run.
        self.begun = False
        #: Which devices programs use that were not configured.
        self.defaults: set[int] = set()


_state = _State()
_lock = threading.RLock()
_running = 0


def configure(options: Any, *, reset: bool = True) -> None:
    """Use the IPUs as the IpuOptions say; an earlier, different configuration is reset first."""
    global _state
    state = _State()
    state.options = type(options)()
    state.options.CopyFrom(options)
    if flags.get().use_on_demand:
        state.options.device_connection_type = DeviceConnectionType.ON_DEMAND.value
    state.devices = {device.ordinal: device for device in _devices_of(options)}
    state.configured = len(state.devices)
    with _lock:
        if _state.options is not None and _state.options.device_config:
            if _state.options == state.options:
                return  # stays attached
            if not reset:
                raise tf_errors.FailedPreconditionError(
                    None, None,
                    "IPU system configuration has already been set in this process, but it should "
                    "have been reset automatically by the call to "
                    "'tensorflow.python.ipu.config.configure_ipu_system'.",
                )  # fmt: skip
            tf_logging.warning(
                "Resetting existing IPU configuration before applying new configuration"
            )
        _forget()
        _connect(state)
        _state = state
        if not _chosen(0):
            _tell_of_default(0)


def _devices_of(options: Any) -> list[Device]:
    if not options.device_config:
        return [Device(0)]
    return [
        Device(ordinal, chosen=entry.cfg_index)
        if entry.WhichOneof("selection") == "cfg_index"
        else Device(ordinal, entry.auto_count)
        for ordinal, entry in enumerate(options.device_config)
    ]


def _connect(state: _State) -> None:
    """What happens to the devices at once, by the type of connection."""
    connection = DeviceConnectionType(state.options.device_connection_type)
    offline = connection in (DeviceConnectionType.NEVER, DeviceConnectionType.PRE_COMPILE)
    if uses_model():
        return
    for device in state.devices.values():
        if device.chosen is not None or not offline:
            device.check()
    if connection is DeviceConnectionType.ALWAYS:
        try:
            for device in state.devices.values():
                device.attach(timeout=0)
        except BaseException:
            for device in state.devices.values():
                device.detach()
            raise


def reset() -> None:
    """Forget the configuration and give its IPUs back."""
    with _lock:
        _forget()


def _forget() -> None:
    global _state
    for device in _state.devices.values():
        device.detach()
    _state = _State()


def options() -> Any:
    """The configuration in use as IpuOptions, or None."""
    return _state.options


def config() -> Any:
    """The configuration in use as an IPUConfig that is only to be read, or None."""
    if _state.config is None and _state.options is not None:
        from tensorflow.python.ipu.config import IPUConfig

        _state.config = IPUConfig._from_protobuf(_state.options)
    return _state.config


def configured(ordinal: int = 0) -> bool:
    """Whether the program has configured that TensorFlow device."""
    return ordinal < _state.configured


def device_count() -> int:
    """How many TensorFlow devices the program has configured."""
    return _state.configured


def ipus(ordinal: int = 0) -> int:
    """How many IPUs a TensorFlow device has; one that is not configured has one."""
    device = _state.devices.get(ordinal)
    return 1 if device is None else device.ipus


def instance() -> tuple[int, int]:
    """Which of the processes that run programs together this one is, and how many there are."""
    if _state.options is None or _state.options.multi_replica_process_count == 0:
        return 0, 1
    options = _state.options
    return int(options.multi_replica_process_index), int(options.multi_replica_process_count)


@contextlib.contextmanager
def program() -> Iterator[None]:
    """Around a program that runs on IPUs."""
    global _running
    with _lock:
        _running += 1
    try:
        yield
    finally:
        with _lock:
            _running -= 1


def running() -> bool:
    """Whether a program runs on IPUs at the moment."""
    return _running > 0


def replicas_for(ipus_per_replica: int, ordinal: int = 0) -> int:
    """How many replicas of a program that needs so many IPUs the device runs side by side."""
    shards = 1 << max(ipus_per_replica - 1, 0).bit_length()
    available = ipus(ordinal)
    if available % shards:
        raise tf_errors.InternalError(
            None, None,
            f"Trying to compile a graph for an IPU device with {available} IPUs and {shards} "
            "shards. The number of shards needs to divide the number of IPUs.",
        )  # fmt: skip
    return available // shards


def uses_model() -> bool:
    """Whether TF_POPLAR_FLAGS asks for the IPU model: then nothing is leased."""
    return bool(flags.get().use_ipu_model)


def connection() -> DeviceConnectionType:
    """When the IPUs of the configuration in use are attached."""
    if _state.options is None:
        return DeviceConnectionType.ON_DEMAND
    return DeviceConnectionType(_state.options.device_connection_type)


def pre_compiling() -> bool:
    """Whether programs are only compiled, and return zeros."""
    return connection() is DeviceConnectionType.PRE_COMPILE


def attach(ordinal: int = 0) -> None:
    """Called before a program runs on a device: leases its IPUs unless that was done before."""
    if not _state.begun:
        _begin()
    device = _state.devices.get(ordinal)
    if device is not None and device.attached:
        return
    if not _chosen(ordinal):
        _tell_of_default(ordinal)
    kind = connection()
    if kind is DeviceConnectionType.NEVER:
        raise tf_errors.InvalidArgumentError(
            None, None,
            "Trying to run an executable on a device that was configured for compilation only. "
            "Choose another device_connection.type than NEVER to run it.",
        )  # fmt: skip
    if kind is DeviceConnectionType.PRE_COMPILE or uses_model():
        return
    timeout = 0.0
    if kind is DeviceConnectionType.ON_DEMAND:
        milliseconds = flags.get().on_demand_device_timeout
        timeout = milliseconds / 1000 if milliseconds >= 0 else math.inf
    with _lock:
        _state.devices.setdefault(ordinal, Device(ordinal)).attach(timeout)


def _chosen(ordinal: int) -> bool:
    """Whether the program said how many IPUs, or which, that device has."""
    return _state.options is not None and ordinal < len(_state.options.device_config)


def _tell_of_default(ordinal: int) -> None:
    if ordinal not in _state.defaults:
        _state.defaults.add(ordinal)
        tf_logging.info(
            f"No IPUs were configured for /device:IPU:{ordinal}: it has one. For more, set "
            "IPUConfig.auto_select_ipus (or select_ipus) and call configure_ipu_system()."
        )


def _begin() -> None:
    """What happens once for each configuration, before its first program runs."""
    executable_cache.demand()
    current = config()
    options = engine_options.merged({} if current is None else current.compilation_poplar_options)
    engine_options.check(options)
    engine_options.write_report(options, current)
    _state.begun = True


def describe(
    executable: str | None = None, memory_bytes: int | None = None, ordinal: int = 0
) -> None:
    """Tells gc-monitor what runs on a device and how much memory it takes on each IPU."""
    device = _state.devices.get(ordinal)
    if device is not None:
        device.describe(executable, memory_bytes)


def account(
    seconds: float, bytes_in: int = 0, bytes_out: int = 0, ordinal: int = 0, cycles: int = 0
) -> None:
    """Counts a call in the telemetry that gc-monitor shows; `cycles` are modelled."""
    device = _state.devices.get(ordinal)
    if device is not None:
        device.account(seconds, bytes_in, bytes_out, cycles)


atexit.register(reset)
