"""Embedding tables that stay in host memory, looked up and trained from the device.

The table is a variable like any other here; what is kept of upstream is how it is trained: each
gradient of a lookup updates the table at once by SGD, or after a number of mini-batches, apart from
the optimiser of the rest of the model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from softipu.frontends.tensorflow import replicas


class HostEmbeddingOptimizerSpec:
    """SGD with a learning rate; a rate of zero means that the table is not trained."""

    def __init__(self, learning_rate: float, optimizer_name: str | None = None) -> None:
        self._learning_rate = learning_rate
        self._optimizer_name = optimizer_name or "SGD"

    def get_learning_rate(self) -> float:
        return self._learning_rate

    def create_lookup_instruction(
        self,
        embedding_tensor: Any,
        indices: Any,
        slot_vars: list[Any],
        partition_strategy: str,
        name: str,
    ) -> tf.Tensor:
        """The rows `indices`; their gradient trains the table."""
        del slot_vars, partition_strategy
        rows = tf.stop_gradient(tf.gather(embedding_tensor, indices))
        if self.get_learning_rate() == 0:
            return rows
        with tf.compat.v1.variable_scope(name, reuse=tf.compat.v1.AUTO_REUSE):
            # Optimisers ask for gradients of variables: this one stands for the table.
            stand_in = tf.compat.v1.get_variable(
                "__dummy", shape=[], dtype=rows.dtype, trainable=True
            )

        @tf.custom_gradient
        def trained_rows(_: tf.Tensor) -> tuple[tf.Tensor, Callable[..., tf.Tensor]]:
            def train(gradient: tf.Tensor) -> tf.Tensor:
                step = tf.cast(self.get_learning_rate(), gradient.dtype) * gradient
                with tf.control_dependencies([self._subtract(embedding_tensor, indices, step)]):
                    return tf.zeros([], gradient.dtype)

            return tf.identity(rows), train

        return trained_rows(tf.convert_to_tensor(stand_in))

    def _subtract(self, table: Any, indices: tf.Tensor, step: tf.Tensor) -> Any:
        indices = tf.concat(replicas.exchange_here(indices), 0)
        step = tf.concat(replicas.exchange_here(step), 0)
        return _scatter_sub(table, indices, step)

    def create_register_instruction(
        self, embedding_tensor: Any, slot_vars: list[Any], name: str
    ) -> Any:
        """What runs when a program starts to use the table."""
        del embedding_tensor, slot_vars
        return tf.no_op(name=f"{name}_register")

    def create_deregister_instruction(
        self, embedding_tensor: Any, slot_vars: list[Any], name: str
    ) -> Any:
        """What runs when it is done with it."""
        del embedding_tensor, slot_vars
        return tf.no_op(name=f"{name}_deregister")

    def create_slot_variables(self, embedding_tensor: Any, name: str) -> list[Any]:
        del embedding_tensor, name
        return []


class HostEmbeddingSGDGAOptimizerSpec(HostEmbeddingOptimizerSpec):
    """SGD whose updates are collected over a number of mini-batches."""

    def __init__(self, learning_rate: float, accumulation_factor: int) -> None:
        super().__init__(learning_rate, "SGD+GA" if accumulation_factor > 1 else None)
        self._accumulation_factor = accumulation_factor

    def get_accumulation_factor(self) -> int:
        return self._accumulation_factor

    def _subtract(self, table: Any, indices: tf.Tensor, step: tf.Tensor) -> Any:
        factor = self._accumulation_factor
        if factor <= 1:
            return super()._subtract(table, indices, step)
        if tf.executing_eagerly():
            raise RuntimeError(
                "A host embedding that accumulates gradients is trained inside a tf.function, or a "
                "function that is compiled for the IPU: eager steps can't be told apart."
            )
        dtypes = [indices.dtype, step.dtype]
        waiting = replicas.per_replica(
            [
                replicas.make_queue(dtypes, [indices.shape, step.shape])
                for _ in range(replicas.count())
            ]
        )
        put = tf.raw_ops.QueueEnqueueV2(handle=waiting, components=[indices, step])

        def subtract_all() -> tf.Tensor:
            all_indices, all_steps = tf.raw_ops.QueueDequeueManyV2(
                handle=waiting, n=factor, component_types=dtypes
            )
            flat = tf.reshape(all_steps, [-1, step.shape[-1]])
            subtract = super(HostEmbeddingSGDGAOptimizerSpec, self)._subtract
            done = subtract(table, tf.reshape(all_indices, [-1]), flat)
            with tf.control_dependencies([done]):
                return tf.constant(True)

        with tf.control_dependencies([put] if put is not None else []):
            full = tf.equal(tf.raw_ops.QueueSizeV2(handle=waiting), factor)
        return tf.cond(full, subtract_all, lambda: tf.constant(False))


def _scatter_sub(table: Any, indices: tf.Tensor, step: tf.Tensor) -> Any:
    if not isinstance(table, tf.Variable):
        raise ValueError(
            "A host embedding can only be trained if its embedding_tensor is a variable: make it "
            "with create_host_embedding, or use an optimizer_spec with a learning rate of 0."
        )
    return tf.compat.v1.scatter_sub(table, indices, step)


class HostEmbedding:
    """A table, [tokens, encoding], that lives on the host."""

    def __init__(
        self,
        name: str,
        embedding_tensor: Any,
        partition_strategy: str = "TOKEN",
        optimizer_spec: HostEmbeddingOptimizerSpec | None = None,
    ) -> None:
        if not tf.is_tensor(embedding_tensor):
            raise ValueError("HostEmbedding embedding_tensor is not a tensorflow tensor")
        if not isinstance(optimizer_spec, HostEmbeddingOptimizerSpec | None):
            raise ValueError(
                "HostEmbedding optimizer_spec is not a HostEmbeddingOptimizerSpec or None"
            )
        if partition_strategy not in ("TOKEN", "ENCODING"):
            raise ValueError(f"Unknown partition strategy {partition_strategy}")
        self._name = name
        self._embedding_tensor = embedding_tensor
        self._partition_strategy = partition_strategy
        self._optimizer_spec = optimizer_spec or HostEmbeddingOptimizerSpec(0)
        self._slot_vars = self._optimizer_spec.create_slot_variables(embedding_tensor, name)

    def get_embedding_tensor(self) -> Any:
        return self._embedding_tensor

    @contextlib.contextmanager
    def _registered(self, session: Any) -> Iterator[HostEmbedding]:
        table = (self._embedding_tensor, self._slot_vars, self._name)
        run = (lambda op: op) if session is None else session.run
        run(self._optimizer_spec.create_register_instruction(*table))
        try:
            yield self
        finally:
            run(self._optimizer_spec.create_deregister_instruction(*table))

    def register(self, session: Any = None) -> contextlib.AbstractContextManager[HostEmbedding]:
        """A context in which programs may look up in the table."""
        if session is None and not tf.executing_eagerly():
            raise ValueError(
                "HostEmbedding.register requires a session when eager execution is disabled."
            )
        return self._registered(session)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            "HostEmbedding.__call__ is not supported. Please use the context manager created with "
            "HostEmbedding.register."
        )

    def lookup(self, indices: Any, clip_indices: bool = True) -> tf.Tensor:
        """The rows `indices`, [..., encoding]; indices out of range mean the nearest row."""
        indices = tf.convert_to_tensor(indices)
        tokens, encoding = self._embedding_tensor.shape.as_list()
        if clip_indices:
            indices = tf.clip_by_value(indices, 0, tokens - 1)
        rows = self._optimizer_spec.create_lookup_instruction(
            self._embedding_tensor,
            tf.reshape(indices, [-1]),
            self._slot_vars,
            self._partition_strategy,
            self._name,
        )
        return tf.reshape(rows, tf.concat([tf.shape(indices), [encoding]], 0))


def create_host_embedding(
    name: str,
    shape: Any,
    dtype: Any,
    partition_strategy: str = "TOKEN",
    optimizer_spec: HostEmbeddingOptimizerSpec | None = None,
    initializer: Any = None,
) -> HostEmbedding:
    """A host embedding with a new table of zeros, or of what `initializer` gives."""
    if initializer is None:
        initializer = tf.zeros(shape, dtype)
    elif callable(initializer):
        initializer = initializer(shape, dtype)
    with tf.device("cpu"):
        # Not trainable: optimisers of the model must not find it, only its own spec trains it.
        table = tf.compat.v1.Variable(initializer, trainable=False, use_resource=True, name=name)
    return HostEmbedding(name, table, partition_strategy, optimizer_spec)
