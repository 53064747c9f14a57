"""Recurrent layers in the style of TensorFlow 1."""

from .rnn_ops import PopnnAUGRU, PopnnDynamicGRU, PopnnDynamicLSTM, PopnnGRU, PopnnLSTM

__all__ = ["PopnnAUGRU", "PopnnDynamicGRU", "PopnnDynamicLSTM", "PopnnGRU", "PopnnLSTM"]
