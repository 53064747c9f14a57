"""popdist for TensorFlow: an IPUConfig for the instance that this process is."""

from __future__ import annotations

from typing import Any

import popdist
from softipu.errors import PopdistTensorFlowMisuse
from softipu.instances import environment

__all__ = ["set_ipu_config"]


def set_ipu_config(
    config: Any, ipus_per_replica: int | None = None, configure_device: bool = True
) -> Any:
    """Fills in which instance this is and, unless told not to, which IPUs it has.

    Returns the configuration; `configure_ipu_system` is still to be called.
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
    if config.auto_select_ipus or config.select_ipus:
        raise PopdistTensorFlowMisuse(
            "The configuration already says which IPUs to use (auto_select_ipus, select_ipus); "
            "leave that to set_ipu_config, or pass configure_device=False."
        )
    if environment.is_launched():
        config.select_ipus = popdist.getDeviceId(ipus)
    else:
        config.auto_select_ipus = ipus * instance.local_replicas
