"""popdist for TensorFlow: an IPUConfig for the instance that this process is."""

from __future__ import annotations

import weakref
from typing import Any

import popdist
from softipu.errors import PopdistTensorFlowMisuse
from softipu.instances import environment

__all__ = ["set_ipu_config"]
#: Configuration -> the option with which `set_ipu_config` last chose its IPUs, and its value.
_chosen: weakref.WeakKeyDictionary[Any, tuple[str, Any]] = weakref.WeakKeyDictionary()


def set_ipu_config(
    config: Any, ipus_per_replica: int | None = None, configure_device: bool = True
) -> Any:
    """Fills in which instance this is and, unless told not to, which IPUs it has.

    Returns the configuration; `configure_ipu_system` is still to be called. A second call for the
    same configuration replaces what the first one chose.
    """
    if not hasattr(config, "experimental") or not hasattr(config, "select_ipus"):
        raise PopdistTensorFlowMisuse(
            f"set_ipu_config needs an IPUConfig, but got a {type(config).__name__}."
        )
    instance = environment.read()
    ipus = instance.ipus_per_replica if ipus_per_replica is None else int(ipus_per_replica)
    if ipus < 1:
        raise PopdistTensorFlowMisuse(f"ipus_per_replica={ipus_per_replica}: at least 1 is needed.")
    if environment.is_launched() and ipus != instance.ipus_per_replica:
        raise PopdistTensorFlowMisuse(
            f"ipus_per_replica={ipus}, but poprun was started with --ipus-per-replica "
            f"{instance.ipus_per_replica}."
        )
    distribution = config.experimental.multi_replica_distribution
    distribution.process_count = instance.count
    distribution.process_index = instance.index
    if configure_device:
        _choose_ipus(config, instance, ipus)
    return config


def _choose_ipus(config: Any, instance: environment.Instance, ipus: int) -> None:
    if environment.is_launched():
        choice = "select_ipus", popdist.getDeviceId(ipus)
    else:
        choice = "auto_select_ipus", ipus * instance.local_replicas
    found = [(name, getattr(config, name)) for name in ("auto_select_ipus", "select_ipus")]
    # A select_ipus of 0 is a choice, an empty list is none.
    others = [each for each in found if each[1] != [] and each not in (choice, _chosen.get(config))]
    if others:
        raise PopdistTensorFlowMisuse(
            "The configuration already says which IPUs to use "
            f"({', '.join(f'{name}={value!r}' for name, value in others)}); "
            "leave that to set_ipu_config, or pass configure_device=False."
        )
    setattr(config, *choice)
    _chosen[config] = choice
