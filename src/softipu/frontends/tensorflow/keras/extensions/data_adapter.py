"""Data for a Keras model on IPUs: batches of one size, enough of them, divisible as IPUs need."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from typing import Any, NoReturn

import tensorflow as tf
from tensorflow.python.platform import tf_logging as logging
from tf_keras.src.engine import base_layer_utils, data_adapter

from softipu.frontends.tensorflow import dataset_iterators

_UNKNOWN, _INFINITE = -2, -1


class IPUDataHandler(data_adapter.DataHandler):
    """Checks the data; the number of replicas may become known later than the data."""

    def __init__(self, *args: Any, replication_factor: int | None = 1, **kwargs: Any) -> None:
        self._replication_factor: int | None = None
        self._given_steps = kwargs.get("steps_per_epoch")
        if kwargs.get("steps_per_execution") is None:
            kwargs["steps_per_execution"] = tf.Variable(1, dtype="int64")
        super().__init__(*args, **kwargs)
        if replication_factor is not None:
            self.set_replication_factor(replication_factor)

    def _configure_dataset_and_inferred_steps(
        self, strategy: Any, x: Any, steps_per_epoch: Any, class_weight: Any, distribute: bool
    ) -> None:
        del strategy, steps_per_epoch, distribute
        if isinstance(self._adapter, data_adapter.GeneratorDataAdapter):
            raise ValueError(_generator_message(x))
        dataset = self._adapter.get_dataset()
        if class_weight:
            dataset = dataset.map(data_adapter._make_class_weight_map_fn(class_weight))
        if self._adapter.has_partial_batch():
            raise ValueError(
                "The provided set of data has a partial batch, which could result in data being "
                "dropped. Either adjust the `batch_size` of your model (currently set to "
                f"{self._adapter.batch_size()}) or pad your dataset to ensure there are no partial "
                "batches."
            )
        self._dataset = _without_float64(dataset)
        self._inferred_steps: Any = None

    def set_replication_factor(self, value: int) -> None:
        """Divides the steps among the replicas and checks that they can be had."""
        self._replication_factor = value
        self._inferred_steps = self._infer_steps(self._given_steps, self._dataset)
        self._check_dataset()
        self._validate_data_handler()

    def _infer_steps(self, steps: Any, dataset: Any) -> int:
        replicas = self._replication_factor
        if replicas is None:
            raise RuntimeError("The replication factor must be set before steps can be counted.")
        steps = super()._infer_steps(steps, dataset)
        if steps is None:
            raise ValueError(
                "Could not infer the size of the data. You must specify the number of steps to run."
            )
        dropped = steps % replicas
        if dropped and dataset.cardinality() >= 0:
            logging.warn(
                f"Dataset of length {len(dataset)} is being evenly distributed between {replicas} "
                f"replicas. The remaining {dropped} batch{'es' if dropped > 1 else ''} will be "
                "dropped."
            )
        return int(steps // replicas)

    def _check_dataset(self) -> None:
        size = int(self._dataset.cardinality())
        steps = self._inferred_steps
        if size == _UNKNOWN:
            logging.info(
                "The provided set of data has an unknown size. This can result in runtime errors "
                "if not enough data is provided during execution."
            )
        elif size != _INFINITE:
            epochs = 1 if self._adapter.should_recreate_iterator() else self._epochs_to_run
            if steps * epochs > size:
                raise ValueError(
                    "Your input does not have enough data. Make sure that your dataset or "
                    f"generator can generate at least {steps * epochs} batches (currently it can "
                    f"only generate {size} batches). You may need to use the repeat() function "
                    "when building your dataset."
                )
        for spec in tf.nest.flatten(self._dataset.element_spec):
            if not spec.shape.is_fully_defined():
                raise ValueError(
                    f"The provided set of data contains a shape {spec.shape} which is not fully "
                    "defined. Executing on IPU requires all dataset elements to have fully defined "
                    "shapes. If using batch() make sure to set `drop_remainder=True`."
                )

    def _validate_data_handler(self) -> None:
        if self._replication_factor is None:
            return
        super()._validate_data_handler()
        steps, per_execution = self._inferred_steps, self.steps_per_execution_value
        to_replica = " to this replica" if self._replication_factor > 1 else ""
        if steps == 0:
            self._refuse_too_few_batches(self._replication_factor)
        if per_execution > steps:
            logging.warn(
                f"`steps_per_execution` has been set to {per_execution} but the dataset "
                f"provided{to_replica} only contains {steps} batches. Using {steps} as "
                "`steps_per_execution`."
            )
            per_execution = steps
        if steps % per_execution:
            raise ValueError(
                f"`steps_per_execution` ({per_execution}) must be a divisor of the number of "
                f"batches ({steps}) in the dataset provided{to_replica}."
            )

    def _refuse_too_few_batches(self, replicas: int) -> NoReturn:
        given = self._given_steps
        if given is not None:
            raise ValueError(
                f"{given} steps were asked for, but each of the {replicas} replicas runs at least "
                f"one: the number of steps counts those of all replicas. Ask for {replicas} or "
                "more, or configure fewer IPUs (IPUConfig.auto_select_ipus)."
            )
        items = int(self._dataset.cardinality())
        if items == _UNKNOWN:
            # Data sets that Keras makes of arrays don't know their size; what made them does.
            items = self._adapter.get_size() or 0
            if items == 0:
                # The real one's type, and its words behind those of Keras.
                raise TypeError(
                    "Expected input data to be non-empty, but there are no samples in it (the "
                    f"dataset length is unknown). Pass at least {replicas} "
                    f"batch{'es, one for each replica' if replicas > 1 else ''}, and look at what "
                    "loads or filters the data."
                )
        wanted = max(math.ceil(items / replicas), 1)
        raise ValueError(
            f"The provided dataset contains {items} items, but all {replicas} replicas are "
            f"requested to run {wanted} steps each. Make sure the dataset contains at least "
            f"{wanted * replicas} items."
        )

    def enumerate_epochs(self) -> Iterator[tuple[int, Any]]:
        with self._truncate_execution_to_epoch():
            iterator = None
            for epoch in range(self._initial_epoch, self._epochs):
                if self._insufficient_data:
                    break
                if iterator is None or self._adapter.should_recreate_iterator():
                    with dataset_iterators.stock_iterators():  # executions have replicas take turns
                        iterator = iter(self._dataset)
                yield epoch, iterator
                self._adapter.on_epoch_end()

    @property
    def _epochs_to_run(self) -> int:
        return int(self._epochs - self._initial_epoch)

    @property
    def steps_per_execution_value(self) -> int:
        return int(self._steps_per_execution.numpy())

    @property
    def element_spec(self) -> Any:
        return self._dataset.element_spec

    @property
    def batch_size(self) -> int | None:
        size = self._adapter.batch_size()
        specs = tf.nest.flatten(self.element_spec)
        if size is None and specs and specs[0].shape.rank:
            return specs[0].shape[0]
        return size


def _generator_message(data: Any) -> str:
    hint = "use `tf.data.Dataset.from_generator()` to specify the shape of your data."
    if isinstance(data, Iterator) and not isinstance(data, Generator):
        hint = (
            "wrap your iterator inside a generator like so:\n\ndef generator:\n    while True:\n"
            f"        yield next(iterator)\n\nand {hint}"
        )
    return (
        f"The provided set of data is of type `{type(data).__name__}` which is not compatible with "
        f"the IPU's requirement to know the data shape ahead of time. Please {hint}"
    )


def _without_float64(dataset: Any) -> Any:
    """IPUs have no float64: Keras computes in float32, so the data may come as such."""
    specs = tf.nest.flatten(dataset.element_spec)
    if all(spec.dtype != tf.float64 for spec in specs):
        return dataset
    if not base_layer_utils.v2_dtype_behavior_enabled():
        raise tf.errors.FailedPreconditionError(
            None, None, "Unsupported datatype double: cast the data to float32."
        )

    def narrow(*element: Any) -> Any:
        narrowed = tf.nest.map_structure(
            lambda t: tf.cast(t, tf.float32) if t.dtype == tf.float64 else t, element
        )
        return narrowed if isinstance(dataset.element_spec, tuple) else narrowed[0]

    return dataset.map(narrow)
