"""Recurrent layers: Keras's, with the defaults and the limits of those that IPUs have."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras
from tensorflow.compiler.plugin.poplar.ops import rnn_layers
from tensorflow.python.ipu.ops import op_util, rand_ops

from .ipu_layer import refuse

_ACTIVATIONS = ("tanh", "relu", "softmax", "sigmoid", "hard_sigmoid")
_RECURRENT_ACTIVATIONS = ("tanh", "softmax", "sigmoid", "hard_sigmoid")
#: Arguments of Keras's layers that IPUs don't have, and what they may be.
_REFUSED = {
    "use_bias": True, "kernel_regularizer": None, "recurrent_regularizer": None,
    "bias_regularizer": None, "activity_regularizer": None, "kernel_constraint": None,
    "recurrent_constraint": None, "bias_constraint": None, "recurrent_dropout": 0.0,
    "go_backwards": False, "unroll": False,
}  # fmt: skip
#: Arguments of the IPU's layers that change no result.
_WITHOUT_EFFECT = ("partials_dtype", "options", "options_bwd")


class _OnIpu:
    """Mixed into a recurrent layer of Keras."""

    def __init__(
        self, units: int, activation: Any = "tanh", recurrent_activation: Any = "sigmoid",
        kernel_initializer: Any = "glorot_uniform", recurrent_initializer: Any = "orthogonal",
        seed: int | None = None, dropout: float = 0.0, dropout_seed: Any = None,
        implementation: int = 2, **kwargs: Any,
    ) -> None:  # fmt: skip
        kind = type(self).__name__.removeprefix("Popnn")
        for name, allowed in _REFUSED.items():
            if kwargs.get(name, allowed) not in (allowed, None):
                raise ValueError(f"IPU custom {kind} layer does not support {name}.")
        if implementation not in (1, 2):
            raise ValueError(f"IPU custom {kind} layer does not support implementation != 1.")
        _check(activation, _ACTIVATIONS, "an activation")
        _check(recurrent_activation, _RECURRENT_ACTIVATIONS, "a recurrent activation")
        self._ipu_arguments = {name: kwargs.pop(name, None) for name in _WITHOUT_EFFECT}
        rnn_layers.warn_of_ignored(**self._ipu_arguments)
        self._seed = seed
        self._dropout, self._dropout_seed = dropout, dropout_seed
        super().__init__(  # type: ignore[call-arg]
            units, activation=activation, recurrent_activation=recurrent_activation,
            kernel_initializer=_seeded(kernel_initializer, "glorot_uniform", seed),
            recurrent_initializer=_seeded(recurrent_initializer, "orthogonal", seed),
            **kwargs,
        )  # fmt: skip

    @property
    def num_units(self) -> int:
        return int(self.units)  # type: ignore[attr-defined]

    @property
    def kernel(self) -> Any:
        return self.cell.kernel  # type: ignore[attr-defined]

    @property
    def recurrent_kernel(self) -> Any:
        return self.cell.recurrent_kernel  # type: ignore[attr-defined]

    @property
    def biases(self) -> Any:
        return self.cell.bias  # type: ignore[attr-defined]

    def call(
        self, inputs: Any, mask: Any = None, training: Any = None, initial_state: Any = None
    ) -> Any:
        if mask is not None:
            refuse(type(self).__name__.removeprefix("Popnn"), {"mask": True}, "call")
        if self._dropout:
            inputs = keras.backend.in_train_phase(self._dropped(inputs), inputs, training)
        return super().call(  # type: ignore[misc]
            inputs, training=training, initial_state=initial_state
        )

    def _dropped(self, inputs: Any) -> Any:
        """The inputs without some of their features, the same at each time of a sequence."""
        once = inputs[:1] if self.time_major else inputs[:, :1]  # type: ignore[attr-defined]
        mask = rand_ops.dropout(tf.ones_like(once), self._dropout, seed=self._dropout_seed)
        return inputs * mask

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()  # type: ignore[misc]
        own = {"seed": self._seed, "dropout": self._dropout, "dropout_seed": self._dropout_seed}
        return {**config, **own}


class PopnnLSTM(_OnIpu, keras.layers.LSTM):
    """Weights are Keras's: `kernel`, `recurrent_kernel` and a bias in one."""


class PopnnGRU(_OnIpu, keras.layers.GRU):
    """Weights are Keras's; `reset_after` is True unless told otherwise, as there."""


LSTM = PopnnLSTM
GRU = PopnnGRU


def _check(activation: Any, accepted: tuple[str, ...], what: str) -> None:
    name = op_util.get_activation_name(activation)
    if name not in accepted:
        raise ValueError(
            f"IPU custom RNN layer does not support '{name}' as {what}. Acceptable values are "
            f"{', '.join(accepted)}."
        )


def _seeded(initializer: Any, default: str, seed: int | None) -> Any:
    """The layer's own seed counts where its default initialiser does."""
    if seed is None or initializer not in (None, default):
        return default if initializer is None else initializer
    kind = {"glorot_uniform": keras.initializers.GlorotUniform,
            "orthogonal": keras.initializers.Orthogonal}[default]  # fmt: skip
    return kind(seed=seed)
