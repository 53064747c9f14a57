"""Where stock Keras lets the extensions take part in making and loading models."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import tensorflow as tf
from tensorflow.python.ipu import keras_extensions

from ..delegation import check_if_extension_delegate_exists, extension_delegate_if_exists

_INSTALLED = "_softipu_pipelining"


def install() -> None:
    """Lets models of users' classes, and models loaded from files, have their settings back."""
    from tf_keras.src.engine import training
    from tf_keras.src.saving.legacy.saved_model import load

    if hasattr(load, _INSTALLED):
        return
    setattr(load, _INSTALLED, True)
    _make_subclasses_from_config(training.Model)
    _insist_on_configs(load.KerasObjectLoader)
    _restore_after_loading(load)


def _make_subclasses_from_config(model: Any) -> None:
    original = vars(model)["from_config"].__func__

    @functools.wraps(original)
    def from_config(cls: Any, config: Any, custom_objects: Any = None) -> Any:
        instance = _instance_of_subclass(cls, config) if _extends_models() else None
        if check_if_extension_delegate_exists("deserialize_from_config", instance):
            extension_delegate_if_exists("deserialize_from_config", instance, config)
            return instance
        return original(cls, config, custom_objects)

    model.from_config = classmethod(from_config)


def _instance_of_subclass(cls: Any, config: dict[str, Any]) -> Any:
    """A model of a user's class, with the arguments that the configuration has for it."""
    from tf_keras.src.engine import functional, training

    if cls is training.Model or issubclass(cls, functional.Functional):
        return None
    known = inspect.signature(cls).parameters
    try:
        return cls(**{name: config[name] for name in known if name in config})
    except TypeError as error:
        raise NotImplementedError(
            f"Failed to construct subclassed model of type {cls.__name__} from config. Subclassed "
            "models which require parameters in their constructors must override the "
            "`from_config` function to be compatible with saving/loading."
        ) from error


def _insist_on_configs(loader: Any) -> None:
    """Only a model made from its configuration gets its IPU settings back.

    Keras replaces a model whose configuration it cannot use by an anonymous one. Under an
    IPUStrategy that would lose the settings, so the user sees what is wrong instead.
    """
    original = loader._revive_layer_or_model_from_config

    @functools.wraps(original)
    def revive(self: Any, metadata: dict[str, Any], node_id: int) -> Any:
        if _extends_models() and _is_known_model(metadata.get("class_name")):
            metadata = {**metadata, "must_restore_from_config": True}
        return original(self, metadata, node_id)

    loader._revive_layer_or_model_from_config = revive


def _is_known_model(class_name: Any) -> bool:
    from tf_keras.src.engine import training
    from tf_keras.src.saving import object_registration

    known = object_registration.get_registered_object(class_name)
    return inspect.isclass(known) and issubclass(known, training.Model)


def _restore_after_loading(module: Any) -> None:
    original = module.load

    @functools.wraps(original)
    def load(*args: Any, **kwargs: Any) -> Any:
        model = original(*args, **kwargs)
        saved = getattr(model, "_serialized_attributes", {}).get("metadata", {})
        config = saved.get("model_config", {}).get("config", {})
        extension_delegate_if_exists("deserialize_from_config", model, config)
        return model

    module.load = load


def _extends_models() -> bool:
    return isinstance(tf.distribute.get_strategy(), keras_extensions.KerasExtensions)
