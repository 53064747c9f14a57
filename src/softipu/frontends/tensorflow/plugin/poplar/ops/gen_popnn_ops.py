"""The operations of popnn under the names that upstream generates for them."""

from __future__ import annotations

from . import group_norm
from .rnn_layers import gru, lstm

popnn_group_norm_training = group_norm.training
popnn_group_norm_statistics = group_norm.statistics
popnn_group_norm_inference = group_norm.inference

popnn_lstm_layer = popnn_dynamic_lstm_layer = lstm
popnn_gru_layer = popnn_dynamic_gru_layer = popnn_augru_layer = gru
