"""Recurrent layers in the style of TensorFlow 1."""

from ..._missing import getter as _getter
from .rnn_ops import PopnnAUGRU, PopnnDynamicGRU, PopnnDynamicLSTM, PopnnGRU, PopnnLSTM

__all__ = ["PopnnAUGRU", "PopnnDynamicGRU", "PopnnDynamicLSTM", "PopnnGRU", "PopnnLSTM"]

__getattr__ = _getter(__name__)
