"""Keras layers for IPUs."""

from .._missing_layers import look_up as __getattr__  # noqa: F401
from .assume_equal_across_replicas import AssumeEqualAcrossReplicas
from .ctc import CTCInferenceLayer, CTCLoss, CTCPredictionsLayer
from .dense import Dense, SerialDense
from .dropout import Dropout
from .embedding_lookup import Embedding
from .f8_convert import ConvertFromF8, ConvertToF8
from .normalization import (
    GroupNorm,
    GroupNormalization,
    InstanceNorm,
    InstanceNormalization,
    LayerNorm,
    LayerNormalization,
)
from .recomputation import RecomputationCheckpoint
from .rnn import GRU, LSTM, PopnnGRU, PopnnLSTM

__all__ = [
    "GRU",
    "LSTM",
    "AssumeEqualAcrossReplicas",
    "CTCInferenceLayer",
    "CTCLoss",
    "CTCPredictionsLayer",
    "ConvertFromF8",
    "ConvertToF8",
    "Dense",
    "Dropout",
    "Embedding",
    "GroupNorm",
    "GroupNormalization",
    "InstanceNorm",
    "InstanceNormalization",
    "LayerNorm",
    "LayerNormalization",
    "PopnnGRU",
    "PopnnLSTM",
    "RecomputationCheckpoint",
    "SerialDense",
]
