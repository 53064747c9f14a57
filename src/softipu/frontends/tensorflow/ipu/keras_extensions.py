"""Which extension a Keras model gets when it is made under a strategy."""

from __future__ import annotations

import inspect
from typing import Any

import tensorflow as tf

_Key = tuple[type, type]


class _ExtensionsManager:
    """Extensions for all strategies, by class of the model and base of the extension."""

    def __init__(self) -> None:
        self._extensions: dict[_Key, type] = {}

    def _register_extension(self, class_type: type, extension_type: type, extension: type) -> None:
        self._extensions[class_type, extension_type] = extension

    def _delete_extension(self, class_type: type, extension_type: type) -> None:
        self._extensions.pop((class_type, extension_type), None)

    def _get_extension(self, class_type: type, extension_type: type) -> type | None:
        return self._extensions.get((class_type, extension_type))

    def items(self) -> list[tuple[_Key, type]]:
        return list(self._extensions.items())


_extensions_manager = _ExtensionsManager()
#: Patched classes, so that two models of one class stay of one class.
_patched: dict[tuple[type, type], type] = {}


class KerasExtensions:
    """The part of a strategy that extends Keras models."""

    _enable_legacy_iterators = True

    def __init__(
        self, enable_dataset_iterators: bool = True, enable_keras_extensions: bool = True
    ) -> None:
        self._enable_iterators = enable_dataset_iterators
        self._enable_keras_extensions = enable_keras_extensions
        self._keras_extensions: dict[_Key, type] = {}

    def _enable_dataset_iterators(self) -> bool:
        return tf.executing_eagerly() and self._enable_iterators

    def _create_dataset_iterator(self, dataset: Any) -> Any:
        from . import ipu_infeed_queue

        return ipu_infeed_queue.IPUOwnedIterator(dataset=dataset)

    def _register_keras_extension(
        self, class_type: type, extension_type: type, extension: type
    ) -> None:
        self._keras_extensions[class_type, extension_type] = extension

    def _delete_keras_extension(self, class_type: type, extension_type: type) -> None:
        self._keras_extensions.pop((class_type, extension_type), None)

    def _get_keras_extension(self, class_type: type, extension_type: type) -> type | None:
        found = self._keras_extensions.get((class_type, extension_type))
        return found or _extensions_manager._get_extension(class_type, extension_type)

    def _iterate_keras_extensions(self) -> list[tuple[_Key, type]]:
        own = list(self._keras_extensions.items())
        return own + [row for row in _extensions_manager.items() if row not in own]

    def _patch_keras_extension(self, instance: Any) -> None:
        """Gives `instance` the first extension that is meant for its class."""
        if not self._enable_keras_extensions:
            return
        for (class_type, extension_type), extension in self._iterate_keras_extensions():
            if not isinstance(instance, class_type):
                continue
            if isinstance(instance, extension_type):
                if not isinstance(instance, extension):
                    raise RuntimeError(
                        "KerasExtension patching failed - already patched with a different "
                        "extension."
                    )
            else:
                original: type = type(instance)
                instance.__class__ = _patched_class(original, extension)
                instance.__dict__["__original_class__"] = original
            _initialise(instance, extension)
            return


def _initialise(instance: Any, extension: type) -> None:
    """The extension's own constructor, once; Keras may come past here twice."""
    if "_softipu_extended" not in instance.__dict__:
        instance.__dict__["_softipu_extended"] = True
        extension.__init__(instance)  # type: ignore[misc]


def _patched_class(original: type, extension: type) -> type:
    key = (original, extension)
    if key not in _patched:

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original.__init__(self, *args, **kwargs)  # type: ignore[misc]
            _initialise(self, extension)

        # Keras reads the parameters of constructors to see what kind of model it has before it.
        __init__.__signature__ = inspect.signature(original.__init__)  # type: ignore[attr-defined,misc]
        # Keras compares names of classes, so the name stays.
        _patched[key] = type(
            original.__name__,
            (original, extension),
            {"__init__": __init__, "__module__": original.__module__},
        )
    return _patched[key]
