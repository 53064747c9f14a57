"""Keras layers and optimisers for IPUs."""

from tensorflow.python import ipu as _ipu  # noqa: F401 - makes Keras 2 the Keras of the process
