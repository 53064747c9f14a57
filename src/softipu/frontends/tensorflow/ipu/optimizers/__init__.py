"""Part of tensorflow.python.ipu: its optimizers, each module loaded when it is first used."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from softipu.frontends.tensorflow import unknown_names

#: Names that programs import from here -> the module that has them.
_MODULES = {
    "CrossReplicaGradientAccumulationOptimizer": "gradient_accumulation_optimizer",
    "CrossReplicaGradientAccumulationOptimizerV2": "gradient_accumulation_optimizer",
    "CrossReplicaOptimizer": "cross_replica_optimizer",
    "GradientAccumulationOptimizer": "gradient_accumulation_optimizer",
    "GradientAccumulationOptimizerV2": "gradient_accumulation_optimizer",
    "GradientAccumulationReductionMethod": "gradient_accumulation_optimizer",
    "IpuOptimizer": "ipu_optimizer",
    "MapGradientOptimizer": "map_gradient_optimizer",
    "ShardedOptimizer": "sharded_optimizer",
    "_MapGradientOptimizerInvertedChaining": "map_gradient_optimizer",
}
__all__ = sorted(name for name in _MODULES if not name.startswith("_"))


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    if name.startswith("_") or find_spec(f"{__name__}.{name}") is None:
        raise unknown_names.error(__name__, name, _MODULES)
    return import_module(f".{name}", __name__)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
