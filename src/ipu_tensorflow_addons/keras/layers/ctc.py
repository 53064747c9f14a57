"""Connectionist temporal classification: the loss, and the best paths."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras
from tensorflow.python.ipu.ops import nn_ops


class CTCLoss(keras.layers.Layer):
    """The mean loss of a batch, of shape [1]."""

    def __init__(self, blank_index: int = 0, from_logits: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.blank_index = blank_index
        self.from_logits = from_logits

    def call(
        self, labels: Any, data: Any, label_length: Any, data_length: Any, **_: Any
    ) -> tf.Tensor:
        loss = nn_ops.ctc_loss_v2 if self.from_logits else nn_ops.ctc_loss_with_log_probs
        each = loss(labels, data, label_length, data_length, self.blank_index)
        return tf.reshape(tf.reduce_mean(each), [1])

    def get_config(self) -> dict[str, Any]:
        own = {"blank_index": self.blank_index, "from_logits": self.from_logits}
        return {**super().get_config(), **own}


class CTCInferenceLayer(keras.layers.Layer):
    """Probabilities, lengths and labels of the best paths, found by a beam search."""

    def __init__(
        self, blank_index: int = 0, beam_width: int = 100, top_paths: int = 1,
        from_logits: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.blank_index = blank_index
        self.beam_width = beam_width
        self.top_paths = top_paths
        self.from_logits = from_logits

    def call(self, data: Any, data_length: Any, **_: Any) -> Any:
        if self.from_logits:
            decode = nn_ops.ctc_beam_search_decoder
        else:
            decode = nn_ops.ctc_beam_search_decoder_with_log_probs
        return decode(
            data, data_length, beam_width=self.beam_width, top_paths=self.top_paths,
            blank_index=self.blank_index,
        )  # fmt: skip

    def get_config(self) -> dict[str, Any]:
        names = ("blank_index", "beam_width", "top_paths", "from_logits")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


class CTCPredictionsLayer(CTCInferenceLayer):
    """The labels of the best path alone, [batch, time], blank behind its end."""

    def call(self, data: Any, data_length: Any, **_: Any) -> tf.Tensor:
        _, _, labels = super().call(data, data_length)
        return labels[:, 0]  # the best path comes first
