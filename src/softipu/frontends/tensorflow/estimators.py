"""tf.estimator, which TensorFlow no longer has: programs for IPUs are told what to use instead.

Other programs of the environment see TensorFlow's own errors.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import tensorflow as tf

from softipu.errors import EstimatorAttributeNotThere

#: Modules of TensorFlow that had it as an attribute.
_OWNERS = (tf, tf.compat.v1, tf.compat.v2)


def install() -> None:
    """Idempotent."""
    for owner in _OWNERS:
        # Modules with warnings of TensorFlow 1 ask the module that they wrap.
        module = getattr(owner, "_tfmw_wrapped_module", owner)
        if "estimator" not in vars(module) and not _is_told(module):
            module.__getattr__ = _explaining(module, vars(module).get("__getattr__"))


def _is_told(module: ModuleType) -> bool:
    return hasattr(vars(module).get("__getattr__"), "_softipu_of_estimators")


def _explaining(module: ModuleType, others: Any) -> Any:
    def __getattr__(name: str) -> Any:
        if name == "estimator":
            raise EstimatorAttributeNotThere("tf.estimator is not available.")
        if others is not None:
            return others(name)
        raise AttributeError(
            f"module {module.__name__!r} has no attribute {name!r}", name=name, obj=module
        )

    __getattr__._softipu_of_estimators = True  # type: ignore[attr-defined]
    return __getattr__
