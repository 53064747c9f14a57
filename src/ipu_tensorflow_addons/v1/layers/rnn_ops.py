"""The layers of `tensorflow.python.ipu.ops.rnn_ops` under their other name."""

from tensorflow.python.ipu.ops.rnn_ops import (
    PopnnAUGRU,
    PopnnDynamicGRU,
    PopnnDynamicLSTM,
    PopnnGRU,
    PopnnLSTM,
)

__all__ = ["PopnnAUGRU", "PopnnDynamicGRU", "PopnnDynamicLSTM", "PopnnGRU", "PopnnLSTM"]
