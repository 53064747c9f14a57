"""The class of a wrapped optimiser, in files of models.

A wrapper's configuration holds the class itself, which no format of Keras can write: files get its
name, and `from_config` takes names too.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from tensorflow.python.ipu.gradient_accumulation import GradientAccumulationReductionMethod
from tf_keras.optimizers import legacy
from tf_keras.src.optimizers.legacy.optimizer_v2 import OptimizerV2
from tf_keras.src.saving import object_registration, serialization_lib
from tf_keras.src.saving.legacy.saved_model import json_utils


def class_of(entry: Any, custom_objects: dict[str, Any] | None = None) -> Any:
    """The class for what a configuration has: itself, or its name in a file."""
    if not isinstance(entry, str):
        return entry
    found = object_registration.get_registered_object(entry, custom_objects)
    for module in (sys.modules[__package__], legacy):
        found = found or vars(module).get(entry)
    if found is None:
        raise ValueError(
            f"Unknown wrapped optimizer: {entry!r}. Pass its class when you load the file: "
            f"custom_objects={{{entry!r}: {entry.rpartition('>')[2]}}}."
        )
    return found


def _written(serialize: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(serialize)
    def wrapper(obj: Any) -> Any:
        if isinstance(obj, type) and issubclass(obj, OptimizerV2):
            return object_registration.get_registered_name(obj)
        if isinstance(obj, GradientAccumulationReductionMethod):
            return obj.name
        return serialize(obj)

    return wrapper


# Once: Python runs a module once. `.keras` files are written by the one, `.h5` files and
# SavedModels by the other.
serialization_lib.serialize_keras_object = _written(serialization_lib.serialize_keras_object)
json_utils.get_json_type = _written(json_utils.get_json_type)
