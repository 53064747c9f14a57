"""Data sets for IPU programs."""

from __future__ import annotations

from typing import Any

from tensorflow.python.data.ops import dataset_ops


class BufferDataset(dataset_ops.UnaryUnchangedStructureDataset):
    """The elements of a data set as far as they fill groups of `buffer_size`."""

    def __init__(self, input_dataset: Any, buffer_size: int) -> None:
        groups = input_dataset.batch(buffer_size, drop_remainder=True).unbatch()
        self._input_dataset = input_dataset
        self._buffer_size = buffer_size
        self._groups = groups
        super().__init__(input_dataset, groups._variant_tensor)
