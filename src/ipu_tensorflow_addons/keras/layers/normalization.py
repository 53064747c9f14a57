"""Normalisation over groups of channels, over each channel, over the features."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras
from tensorflow.compiler.plugin.poplar.ops import gen_popnn_ops

from .ipu_layer import refuse


class GroupNormalization(keras.layers.Layer):
    """Each group of channels has mean 0 and variance 1; then `gamma` and `beta`.

    With `strided_channel_grouping`, the default, channel c belongs to group c % groups. Without
    initialisers `gamma` and `beta` begin at random, by Keras's rule for weights, as upstream.
    """

    def __init__(
        self, groups: int = 2, channels_axis: int = -1, center: bool = True, scale: bool = True,
        epsilon: float = 1e-3, beta_initializer: Any = None, gamma_initializer: Any = None,
        strided_channel_grouping: bool = True, trainable: bool = True, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(trainable=trainable, **kwargs)
        self.groups = groups
        self.channels_axis = channels_axis
        self.center = center
        self.scale = scale
        self.epsilon = epsilon
        self.beta_initializer = keras.initializers.get(beta_initializer)
        self.gamma_initializer = keras.initializers.get(gamma_initializer)
        self.strided_channel_grouping = strided_channel_grouping

    def build(self, input_shape: Any) -> None:
        rank = len(input_shape)
        if self.channels_axis >= rank:
            raise ValueError(f"Axis is out of bounds: {self.channels_axis} of {rank} axes.")
        axis = self.channels_axis % rank
        if axis not in (1, rank - 1):
            raise ValueError(
                "Unsupported data format, group norm only supports NCHW (channel axis 1) and NHWC "
                f"(channel axis -1), not {self.channels_axis}."
            )
        channels = input_shape[axis]
        groups = self._groups(channels)
        if groups > channels:
            raise ValueError(f"Invalid groups {groups} for {channels} channels.")
        if channels % groups:
            raise ValueError(f"{channels} channels is not commensurate with {groups} groups.")
        self._format = "NHWC" if axis == rank - 1 else "NCHW"
        self._channels = channels
        self.gamma = self.beta = None
        if self.scale:
            self.gamma = self.add_weight("gamma", (channels,), initializer=self.gamma_initializer)
        if self.center:
            self.beta = self.add_weight("beta", (channels,), initializer=self.beta_initializer)
        super().build(input_shape)

    def _groups(self, channels: int) -> int:
        del channels
        return self.groups

    def call(self, inputs: Any, training: Any = None) -> Any:
        del training  # there are no moving averages
        dtype = self.compute_dtype
        gamma = tf.ones(self._channels, dtype) if self.gamma is None else self.gamma
        beta = tf.zeros(self._channels, dtype) if self.beta is None else self.beta
        outputs, _, _ = gen_popnn_ops.popnn_group_norm_training(
            inputs, gamma, beta, self._format, self.epsilon, self._groups(self._channels),
            self.strided_channel_grouping,
        )  # fmt: skip
        return outputs

    def get_config(self) -> dict[str, Any]:
        names = ("groups", "channels_axis", "center", "scale", "epsilon",
                 "strided_channel_grouping", "trainable")  # fmt: skip
        return {
            **super().get_config(),
            **{name: getattr(self, name) for name in names},
            "beta_initializer": keras.initializers.serialize(self.beta_initializer),
            "gamma_initializer": keras.initializers.serialize(self.gamma_initializer),
        }


class InstanceNormalization(GroupNormalization):
    """Every channel is a group of its own."""

    def __init__(self, channels_axis: int = -1, **kwargs: Any) -> None:
        super().__init__(channels_axis=channels_axis, **kwargs)

    def _groups(self, channels: int) -> int:
        return channels

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["groups"]
        return config


class LayerNormalization(keras.layers.LayerNormalization):
    """Keras's, without what IPUs do nothing with."""

    def __init__(self, axis: Any = -1, epsilon: float = 1e-3, **kwargs: Any) -> None:
        ignored = ("beta_regularizer", "gamma_regularizer", "beta_constraint", "gamma_constraint")
        refuse("LayerNormalization", {name: kwargs.get(name) for name in ignored})
        super().__init__(axis=axis, epsilon=epsilon, **kwargs)

    def call(self, inputs: Any, training: Any = None) -> Any:
        del training
        return super().call(inputs)


GroupNorm = GroupNormalization
InstanceNorm = InstanceNormalization
LayerNorm = LayerNormalization
