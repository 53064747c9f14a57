"""Layers around layers that capture gradients in training.

An optimiser whose `supports_captured_grads` is true gets them as the argument `captured_grads` of
its `apply_gradients`: a dictionary from the capturing layer's tag.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.ipu.ops.grad_util_ops import capture_upstream_gradients
from tf_keras.src import activations
from tf_keras.src.engine.base_layer import Layer
from tf_keras.src.layers import Activation, deserialize, serialize
from tf_keras.src.saving.object_registration import register_keras_serializable


class _GradientCaptureLayerBase(Layer):
    """Weights are those of the wrapped layer."""

    def __init__(self, layer: Any, tag: str) -> None:
        _check_is_layer(layer)
        # The wrapped layer decides about the type of its inputs.
        super().__init__(dtype=layer.dtype, name=tag, autocast=False)
        self._layer = layer
        self._tag = tag

    @property
    def layer(self) -> Any:
        return self._layer

    @property
    def tag(self) -> str:
        return self._tag

    def _call_layer(self, inputs: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Keras passes `training` and `mask` to us, also where the layer knows neither."""
        spec = self.layer._call_spec
        known = {"training": spec.expects_training_arg, "mask": spec.expects_mask_arg}
        passed = {name: value for name, value in kwargs.items() if known.get(name, True)}
        return self.layer(inputs, *args, **passed)

    def _original_layer(self) -> Any:
        return self.layer

    def get_config(self) -> dict[str, Any]:
        return {"layer": serialize(self._original_layer()), "tag": self.tag}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        layer = deserialize(config["layer"], custom_objects=custom_objects)
        return cls(layer, tag=config["tag"])


@register_keras_serializable(package="ipu")
class CaptureUpstreamGradients(_GradientCaptureLayerBase):
    """Captures the gradients that arrive at the outputs of a layer."""

    def __init__(self, layer: Any, tag: str | None = None) -> None:
        super().__init__(layer, f"{layer.name}_cug" if tag is None else tag)

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        return capture_upstream_gradients(self._call_layer(inputs, args, kwargs), tag=self.tag)


@register_keras_serializable(package="ipu")
class _ActivationCapture(Activation):
    """An activation that captures the gradients with respect to its inputs."""

    def __init__(self, activation: Any, tag: str, **kwargs: Any) -> None:
        super().__init__(activation, **kwargs)
        self._tag = tag

    def call(self, inputs: Any) -> Any:
        return super().call(capture_upstream_gradients(inputs, tag=self._tag))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "tag": self._tag}


@register_keras_serializable(package="ipu")
class CaptureActivationGradients(_GradientCaptureLayerBase):
    """Captures the gradients with respect to the inputs of a layer's activation functions.

    Wrap a new layer: it is made again with other activations, without weights it may have.
    """

    def __init__(self, layer: Any, tag: str | None = None) -> None:
        _check_is_layer(layer)
        tag = f"{layer.name}_cag" if tag is None else tag
        config = layer.get_config()
        found = _activations_in(config)
        if not found:
            raise ValueError(
                f"Layer {layer.name} does not use an activation function so is not supported by "
                "keras.ipu.layers.CaptureActivationGradients"
            )
        wrapped = {
            # The type is that of the values; the layer around it has cast them already.
            name: _ActivationCapture(activation, tag=f"{tag}_{name}", autocast=False)
            for name, activation in found.items()
        }
        super().__init__(type(layer).from_config({**config, **wrapped}), tag)
        self._wrapped_activations = wrapped
        # Not as an attribute: Keras would track its weights.
        self._unwrapped: Callable[[], Any] = lambda: layer

    @staticmethod
    def layer_is_supported(layer: Any) -> bool:
        """Whether the layer has activation functions that can be replaced."""
        _check_is_layer(layer)
        return bool(_activations_in(layer.get_config()))

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        return self._call_layer(inputs, args, kwargs)

    def _original_layer(self) -> Any:
        return self._unwrapped()


def _check_is_layer(layer: Any) -> None:
    if not isinstance(layer, tf.keras.layers.Layer):
        raise ValueError("Expected an instance of a keras.engine.base_layer.Layer")


def _activations_in(config: dict[str, Any]) -> dict[str, Any]:
    """Name in the configuration -> the activation function that it stands for."""
    found = {}
    for name, value in config.items():
        if "activation" not in name or value is None:
            continue
        try:
            found[name] = activations.get(value)
        except (TypeError, ValueError):  # something else with such a name
            continue
    return found
