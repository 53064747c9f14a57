"""The optimisers of tf.keras as programs of TensorFlow 2.6 know them.

Since Keras 2.11 `tf.keras.optimizers.SGD` is a new class that ignores `lr=` and lacks `decay=`,
`get_weights` and `_set_hyper`; the classes of before live on under `.legacy`. For IPU programs the
names mean those again. Classes that are younger than 2.6 (AdamW, Lion, ...) stay as they are.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

NAMES = (
    "Adadelta", "Adagrad", "Adam", "Adamax", "Ftrl", "Nadam", "Optimizer", "RMSprop", "SGD",
)  # fmt: skip
#: Every spelling is a module of its own, with its own copy of the names.
_PUBLIC_MODULES = (
    "tf_keras.optimizers",
    "tf_keras.api._v2.keras.optimizers",
    "tensorflow.keras.optimizers",
    "tensorflow.compat.v2.keras.optimizers",
)
_FACTORIES = ("deserialize", "get")
#: The package `keras.optimizer_v2` of Keras 2.6 -> where its modules are now.
_MOVED = {
    **{
        name: f"tf_keras.src.optimizers.legacy.{name}"
        for name in (
            "adadelta", "adagrad", "adam", "adamax", "ftrl", "gradient_descent", "nadam",
            "optimizer_v2", "rmsprop",
        )
    },
    "learning_rate_schedule": "tf_keras.src.optimizers.schedules.learning_rate_schedule",
}  # fmt: skip


def install() -> None:
    """Idempotent; Keras 2 must be the Keras of this process."""
    source = import_module("tf_keras.src.optimizers")
    for name in _FACTORIES:
        setattr(source, name, _preferring_legacy(getattr(source, name)))
    legacy = import_module("tf_keras.optimizers.legacy")
    names = {name: getattr(legacy, name) for name in NAMES}
    names |= {name: getattr(source, name) for name in _FACTORIES}
    for module in _PUBLIC_MODULES:
        vars(import_module(module)).update(names)
    _add_optimizer_v2()


def _preferring_legacy(function: Callable[..., Any]) -> Callable[..., Any]:
    """`get` or `deserialize` that takes the old class where name and configuration fit both."""
    if hasattr(function, "_softipu_prefers_legacy"):
        return function

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        kwargs.setdefault("use_legacy_optimizer", True)
        return function(*args, **kwargs)

    wrapper._softipu_prefers_legacy = True  # type: ignore[attr-defined]
    return wrapper


def _add_optimizer_v2() -> None:
    """`tf_keras.optimizer_v2`, the package of 2.6 that is called `optimizers.legacy` now."""
    package = import_module("tf_keras.src.optimizers.legacy")
    sys.modules.setdefault("tf_keras.optimizer_v2", package)
    import_module("tf_keras").optimizer_v2 = package  # type: ignore[attr-defined]
    for name, place in _MOVED.items():
        module = import_module(place)
        sys.modules.setdefault(f"tf_keras.optimizer_v2.{name}", module)
        setattr(package, name, module)
