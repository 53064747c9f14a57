"""Optimisers of before Keras 2.11 in files of the `.keras` format, which is younger than they are.

Keras saves and restores only the state of its newer optimisers there; a model would train on with
slots of zeros, without a word.
"""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any

from tensorflow.python.platform import tf_logging


def install() -> None:
    """Idempotent; Keras 2 must be the Keras of this process."""
    legacy = import_module("tf_keras.src.optimizers.legacy.optimizer_v2").OptimizerV2
    if hasattr(legacy, "save_own_variables"):
        return
    legacy.save_own_variables = _save
    legacy.load_own_variables = _load
    _have_them_visited(import_module("tf_keras.src.saving.saving_lib"), legacy)
    _have_their_slots_made(import_module("tf_keras.src.engine.training").Model, legacy)


def _save(self: Any, store: Any) -> None:
    for number, value in enumerate(self.get_weights()):
        store[str(number)] = value


def _load(self: Any, store: Any) -> None:
    saved = [store[str(number)][()] for number in range(len(store.keys()))]
    if saved and len(saved) != len(self.weights):
        tf_logging.warning(
            f"The optimizer {type(self).__name__} begins anew: the file has {len(saved)} variables "
            f"for it, and it has {len(self.weights)} now. A model that is built when it is loaded "
            "(with input shapes) gets them."
        )
    elif saved:
        self.set_weights(saved)


def _have_them_visited(saving: Any, legacy: type) -> None:
    stock = saving._is_keras_trackable

    @functools.wraps(stock)
    def is_trackable(obj: Any) -> bool:
        return bool(stock(obj)) or isinstance(obj, legacy)

    saving._is_keras_trackable = is_trackable


def _have_their_slots_made(model: Any, legacy: type) -> None:
    """As Keras has it for newer optimisers: before their values are read from the file."""
    stock = model.compile_from_config

    @functools.wraps(stock)
    def compile_from_config(self: Any, config: Any) -> None:
        stock(self, config)
        optimizer: Any = getattr(self, "optimizer", None)
        if isinstance(optimizer, legacy) and self.built:
            optimizer._create_all_weights(self.trainable_variables)  # type: ignore[attr-defined]

    model.compile_from_config = compile_from_config
