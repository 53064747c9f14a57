"""Seen as tensorflow.python.ipu.config: how the IPUs of this process are used.

config = IPUConfig()
config.auto_select_ipus = 2
config.configure_ipu_system()
"""

from __future__ import annotations

import copy
from enum import Enum
from typing import Any

from tensorflow.compiler.plugin.poplar.driver import config_pb2
from tensorflow.python.platform import tf_logging as logging

from softipu.frontends.tensorflow import flags, system
from softipu.frontends.tensorflow.ipu_options import (
    CATEGORIES,
    OPTIONS,
    DeviceConnectionType,
    ExecutionProfileType,
    MergeRemoteBuffersBehaviour,
    Option,
    SchedulingAlgorithm,
    SelectionOrder,
    StochasticRoundingBehaviour,
    type_name,
)

from ._config_base import (
    UnknownAttribute,
    _ConfigBase,
    deprecate_config_attribute,
    deprecate_config_attributes,
)
from ._config_metadata import AttributeMetadata

__all__ = [
    "AttributeMetadata",
    "DeviceConnectionType",
    "ExecutionProfileType",
    "IPUConfig",
    "MergeRemoteBuffersBehaviour",
    "SchedulingAlgorithm",
    "SelectionOrder",
    "StochasticRoundingBehaviour",
    "UnknownAttribute",
    "configure_ipu_system",
    "deprecate_config_attribute",
    "deprecate_config_attributes",
    "get_ipu_config",
    "reset_ipu_configuration",
    "running_on_ipu_model",
]

_FLOATING_POINT = ("inv", "div0", "oflo", "esr", "nanoo")


def running_on_ipu_model() -> bool:
    """Whether TF_POPLAR_FLAGS asks for the IPU model instead of IPUs."""
    return bool(flags.get().use_ipu_model)


class IPUConfig(_ConfigBase):
    """Replaced by the documentation of all options when the module is loaded."""

    def __init__(self) -> None:
        # Options come before categories at each level, and both in the order of the tables.
        for path, meaning in CATEGORIES.items():
            owner, name = _place(self, path)
            owner.__dict__[name] = _ConfigBase()
            owner.__dict__.setdefault("_categories", {})[name] = meaning
        for option in OPTIONS:
            owner, name = _place(self, option.path)
            owner._declare(_metadata(option, name), copy.copy(option.default))
        _declare_categories(self)
        self._finalize_base_config()

    def _create_protobuf(self) -> Any:
        pb = config_pb2.IpuOptions()
        self._to_protobuf(pb)
        return pb

    def _to_protobuf(self, pb: Any) -> None:
        for name in ("auto_select_ipus", "select_ipus"):
            if isinstance(getattr(self, name), int):
                setattr(self, name, [getattr(self, name)])
        _check(self)
        pb.creator_id = config_pb2.IpuOptionsCreator.IPU_UTILS
        for index in self.select_ipus:
            pb.device_config.add().cfg_index = index
        for count in self.auto_select_ipus:
            pb.device_config.add().auto_count = count
        for option in OPTIONS:
            if option.field:
                _write(pb, option, _value(self, option.path))
        if self.floating_point_behaviour.set_all:
            for name in _FLOATING_POINT:
                setattr(pb.floating_point_behaviour, name, 1)

    @classmethod
    def _from_protobuf(cls, pb: Any) -> IPUConfig:
        config = cls()
        for option in OPTIONS:
            if option.field:
                owner, name = _place(config, option.path)
                owner.__dict__[name] = _read(pb, option)
        for device in pb.device_config:
            chosen = device.WhichOneof("selection") == "cfg_index"
            devices = config.select_ipus if chosen else config.auto_select_ipus
            devices.append(int(device.cfg_index if chosen else device.auto_count))
        return config

    def configure_ipu_system(self, device: str = "cpu") -> None:
        """Use the IPUs as this configuration says; an earlier one is reset."""
        configure_ipu_system(self, device)


def _place(config: _ConfigBase, path: str) -> tuple[_ConfigBase, str]:
    """The category that has the option, and its name there."""
    *categories, name = path.split(".")
    for category in categories:
        config = config.__dict__[category]
    return config, name


def _value(config: _ConfigBase, path: str) -> Any:
    owner, name = _place(config, path)
    return owner.__dict__[name]


def _metadata(option: Option, name: str) -> AttributeMetadata:
    return AttributeMetadata(
        name, option.meaning, copy.copy(option.default), option.deprecated, option.annotation,
        type_name(option.annotation), option.support,
    )  # fmt: skip


def _declare_categories(owner: _ConfigBase) -> None:
    for name, meaning in owner.__dict__.pop("_categories", {}).items():
        category = owner.__dict__[name]
        owner._declare(AttributeMetadata(name, meaning), category)
        _declare_categories(category)


def _check(config: IPUConfig) -> None:
    """The rules between options; the messages are those that users know."""
    model = running_on_ipu_model()
    if config.auto_select_ipus and config.select_ipus:
        raise ValueError("Only one of `auto_select_ipus` and `select_ipus` can be set.")
    if len(set(config.select_ipus)) != len(config.select_ipus):
        raise ValueError("All MultiIPU indices in `select_ipus` must be unique.")
    if config.select_ipus and model:
        raise ValueError(
            "When using the IPUModel, the devices to attach to can only be specified with "
            "`auto_select_ipus`."
        )
    tiles = config.io_tiles
    if tiles.place_ops_on_io_tiles and tiles.num_io_tiles == 0:
        raise ValueError("Cannot place ops on I/O tiles when io_tiles.num_io_tiles == 0")
    group_size = config.norms.experimental.distributed_batch_norm_replica_group_size
    group_name = "norms.experimental.distributed_batch_norm_replica_group_size"
    if group_size < 1:
        raise ValueError(f"{group_name} must be at least 1.")
    if group_size > 1 and tiles.num_io_tiles > 0:
        raise ValueError(f"{group_name} is not supported with I/O tiles.")
    connection = config.device_connection
    offline = (DeviceConnectionType.PRE_COMPILE, DeviceConnectionType.NEVER)
    if connection.type in offline and not connection.version:
        raise ValueError(
            "device_connection.version must be set when device_connection.type is "
            "DeviceConnectionType.NEVER or DeviceConnectionType.PRE_COMPILE"
        )
    if model and not config.ipu_model.version:
        raise ValueError("ipu_model.version must be set when using the IPUModel.")
    _check_distribution(config.experimental.multi_replica_distribution, model)


def _check_distribution(distribution: Any, model: bool) -> None:
    if distribution.process_count > 0 and model:
        raise ValueError("Multi-replica distribution is not supported on the IPU model.")
    if distribution.process_count and not (
        0 <= distribution.process_index < distribution.process_count
    ):
        path = "experimental.multi_replica_distribution"
        raise ValueError(f"{path}.process_index must be in the range [0, {path}.process_count).")


def _field(pb: Any, option: Option) -> tuple[Any, str]:
    group, _, name = option.field.removeprefix("!").rpartition(".")
    return (getattr(pb, group) if group else pb), name


def _write(pb: Any, option: Option, value: Any) -> None:
    message, name = _field(pb, option)
    if isinstance(value, dict):
        for key, text in value.items():
            getattr(message, name).add(option=key, value=text)
        return
    if isinstance(value, Enum):
        value = value.value
    setattr(message, name, not value if option.field.startswith("!") else value)


def _read(pb: Any, option: Option) -> Any:
    message, name = _field(pb, option)
    value = getattr(message, name)
    if isinstance(option.default, dict):
        return {flag.option: flag.value for flag in value}
    return type(option.default)(not value if option.field.startswith("!") else value)


#: Options of which this process has said that they have no effect.
_warned: set[str] = set()


def _warn_of_ignored(config: IPUConfig) -> None:
    for option in OPTIONS:
        for name, reason in option.without_effect(_value(config, option.path)).items():
            if name not in _warned:
                _warned.add(name)
                logging.warning(f"IPUConfig.{name} has no effect on a software IPU: {reason}.")


def configure_ipu_system(
    config: Any, device: str = "cpu", reset_configuration: bool = True
) -> None:
    """Use the IPUs as an IPUConfig or IpuOptions says.

    With `reset_configuration=False` it is an error that a different configuration is in use.
    """
    del device  # one host only
    options = config._create_protobuf() if isinstance(config, IPUConfig) else config
    if not isinstance(options, config_pb2.IpuOptions):
        raise TypeError("`config` must be an IpuOptions instance.")
    system.configure(options, reset=reset_configuration)
    _warn_of_ignored(IPUConfig._from_protobuf(options))


def reset_ipu_configuration() -> None:
    """Forget the configuration and give its IPUs back."""
    system.reset()


def get_ipu_config(session: Any = None) -> list[Any]:
    """The configuration as IpuOptions, once for each TensorFlow device."""
    del session  # the configuration belongs to the process
    options = system.options()
    if options is None or not options.device_config:
        raise RuntimeError("No IPU devices configured.")
    return [copy.deepcopy(options) for _ in options.device_config]


IPUConfig()  # writes the documentation of the class
