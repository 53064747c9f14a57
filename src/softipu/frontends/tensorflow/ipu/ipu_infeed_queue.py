"""Infeeds: the elements of a `tf.data.Dataset`, taken by the program on the IPUs.

An infeed is an iterator of tf.data that any graph of the process can name. Replicas take elements
in turns: element i goes to replica i modulo their number.
"""

from __future__ import annotations

import weakref
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops, iterator_ops
from tensorflow.python.data.util import structure
from tensorflow.python.framework import errors, type_spec

from softipu.frontends.tensorflow import (
    argument_options,
    descriptions,
    flags,
    replicas,
    sessions,
)

from . import _feeds, _run, loops

_DEFAULT_PREFETCH = 3
_MOST_PREFETCHED = 255
#: An argument with which two queues can be one stream.
_internal_id = "_internal_id"


class IPUInfeedQueue:
    """A data set as a stream into loops on the IPUs."""

    def __init__(
        self,
        dataset: Any,
        device_ordinal: int | None = None,
        prefetch_depth: int | None = None,
        optimise_latency: bool = False,
        **kwargs: Any,
    ) -> None:
        _check_shapes(dataset._flat_structure["output_shapes"])
        self._prefetch_depth = _checked_depth(prefetch_depth)
        self._device_ordinal = _feeds.checked_ordinal(device_ordinal)
        self._optimise_latency = optimise_latency
        argument_options.warn_of_ignored(argument_options.INFEED, optimise_latency=optimise_latency)
        self._id = kwargs.get(_internal_id) or _feeds.unique_name()
        self._dataset = dataset
        self._structure = dataset_ops.get_structure(dataset)
        self._flat_structure = dataset._flat_structure
        self._dequeued = False
        self._initialized = False
        self._from_spec = False
        self._source = _Source(self._id, dataset, self._prefetch_depth)
        if not tf.executing_eagerly():
            # Made now: who runs them may have finalised the graph.
            self._init_op, self._delete_op = self._source.start(), self._source.stop()
        _sources[self._id] = self._source

    def _dequeue(self) -> Any:
        """The next element, for the replica that runs this."""
        asked = descriptions.current()
        if asked is not None:
            flat = self._flat_structure
            specs = map(tf.TensorSpec, flat["output_shapes"], flat["output_types"])
            return structure.from_tensor_list(self._structure, asked.take(list(specs)))
        self._dequeued = True
        if flags.synthetic("infeed"):
            flat = _feeds.synthetic_element(**self._flat_structure)
            return structure.from_tensor_list(self._structure, flat)
        _run.when_settled(self._source.read_by)
        return replicas.shared_feed(self._take, self._structure)

    def _take(self) -> Any:
        flat = tf.raw_ops.IteratorGetNext(iterator=self._source.handle(), **self._flat_structure)
        return structure.from_tensor_list(self._structure, list(flat))

    @property
    def dequeued(self) -> bool:
        """Whether a program takes elements from this queue."""
        return self._dequeued

    @property
    def number_of_tuple_elements(self) -> int:
        """How many arguments a loop body gets from this queue."""
        args, kwargs = loops._body_arguments(self._structure)
        return len(args) + len(kwargs)

    @property
    def initializer(self) -> Any:
        """The operation that must run before elements can be taken; runs now in eager mode."""
        if self._from_spec:
            raise RuntimeError("IPUInfeedQueue created from spec should already be initialized.")
        if tf.executing_eagerly():
            self._source.start()
            self._initialized = True
            return None
        if self._initialized:
            raise ValueError("The IPUInfeedQueue `initializer` function can only be accessed once.")
        self._initialized = True
        return self._init_op

    @property
    def deleter(self) -> Any:
        """The operation that frees what the queue holds; runs now in eager mode."""
        if self._from_spec:
            raise RuntimeError("IPUInfeedQueue created from spec cannot be deleted.")
        return self._source.stop() if tf.executing_eagerly() else self._delete_op

    def get_next(self) -> None:
        raise ValueError(
            "`get_next()` is now obsolete as the IPUInfeedQueue is now automatically dequeued by "
            "the loop."
        )

    @property
    def _type_spec(self) -> _IPUInfeedQueueSpec:
        if not self._initialized:
            raise RuntimeError(
                "Spec for IPUInfeedQueue can only be created for already initialized queues."
            )
        return _IPUInfeedQueueSpec(*(getattr(self, name) for name in _IPUInfeedQueueSpec.FIELDS))

    @classmethod
    def _from_type_spec(cls, spec: _IPUInfeedQueueSpec, handle: Any = None) -> IPUInfeedQueue:
        """A stream again, without owning it: that of a handle, or that of the spec's id."""
        queue = cls.__new__(cls)
        for name in _IPUInfeedQueueSpec.FIELDS:
            setattr(queue, name, getattr(spec, name))
        queue._source = _sources[spec._id] if handle is None else _GivenSource(handle)
        queue._initialized = queue._dequeued = queue._from_spec = True
        return queue


class _Source:
    """The iterator behind an infeed, by name, in whichever graph it is used."""

    def __init__(self, name: str, dataset: Any, prefetch_depth: int) -> None:
        self._name = name
        self._dataset = dataset
        self._types = dataset._flat_structure["output_types"]
        self._shapes = dataset._flat_structure["output_shapes"]
        self._prefetch_depth = prefetch_depth
        self._handles: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._eager_handle: Any = None
        self._replicas: int | None = None

    def handle(self) -> Any:
        with tf.init_scope():
            if tf.executing_eagerly():
                if self._eager_handle is None:
                    self._eager_handle = self._make_handle()
                return self._eager_handle
            graph = tf.compat.v1.get_default_graph()
            if graph not in self._handles:
                self._handles[graph] = self._make_handle()
            return self._handles[graph]

    def _make_handle(self) -> Any:
        with tf.device("/device:CPU:0"):
            if tf.executing_eagerly():  # ends with whoever refers to it
                return tf.raw_ops.AnonymousIteratorV3(
                    output_types=self._types, output_shapes=self._shapes
                )
            return tf.raw_ops.IteratorV2(
                shared_name=f"softipu_infeed_{self._name}_{id(self)}",
                container="",
                output_types=self._types,
                output_shapes=self._shapes,
            )

    def _is_running(self) -> Any:
        """The handle of a variable that exists from start to stop."""
        with tf.device("/device:CPU:0"):
            return tf.raw_ops.VarHandleOp(
                dtype=tf.bool, shape=[], shared_name=f"softipu_running_{self._name}_{id(self)}"
            )

    def start(self) -> Any:
        checks = _feeds.check_types(self._types)
        checks += _feeds.check_sizes(self._shapes, "an input tensor to an infeed queue")
        self._replicas = None
        with tf.device("/device:CPU:0"):
            started = self._iterate(self._dataset.prefetch(self._prefetch_depth), checks)
            with tf.control_dependencies(started):
                return tf.raw_ops.AssignVariableOp(
                    resource=self._is_running(), value=tf.constant(True)
                )

    def stop(self) -> Any:
        """Nothing is destroyed, because graphs know the iterator: it becomes an empty one."""
        running = self._is_running()
        checks = sessions.require(
            tf.raw_ops.VarIsInitializedOp(resource=running),
            errors.NotFoundError,
            f"Infeed with id='{self._name}' cannot be deleted because it was not initialized. "
            "Run the queue's `initializer` first.",
        )
        with tf.device("/device:CPU:0"):
            emptied = self._iterate(self._dataset.take(0), checks)
            with tf.control_dependencies(emptied):
                return tf.raw_ops.DestroyResourceOp(resource=running)

    def _iterate(self, dataset: Any, checks: list[Any]) -> list[Any]:
        dataset = dataset._apply_debug_options()
        with tf.control_dependencies(checks):
            made = tf.raw_ops.MakeIterator(dataset=dataset._variant_tensor, iterator=self.handle())
        return [] if made is None else [made]

    def read_by(self, replicas_now: int) -> None:
        """A program with so many replicas takes elements."""
        first, self._replicas = self._replicas or replicas_now, replicas_now
        if first != replicas_now:
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                f"The infeed with id='{self._name}' is read by a program with {first} replicas "
                f"and by one with {replicas_now}. Give each program an infeed of its own.",
            )


class _GivenSource(_Source):
    """The iterator of an infeed that a function got as an argument."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle  # and nothing else: it is not ours to start or stop

    def handle(self) -> Any:
        return self._handle

    def read_by(self, replicas_now: int) -> None:
        """Other programs get other arguments."""


#: The sources of live infeeds, by id.
_sources: weakref.WeakValueDictionary[str, _Source] = weakref.WeakValueDictionary()


class _IPUInfeedQueueSpec(type_spec.TypeSpec):
    """An infeed as an argument of a `tf.function`: its stream is known by its id."""

    FIELDS = (
        "_id", "_structure", "_flat_structure", "_device_ordinal", "_prefetch_depth",
        "_optimise_latency",
    )  # fmt: skip
    __slots__ = list(FIELDS)

    def __init__(self, *values: Any) -> None:
        for name, value in zip(self.FIELDS, values, strict=True):
            setattr(self, name, value)

    def nameless(self) -> _IPUInfeedQueueSpec:
        """What infeeds that differ only in their data have in common."""
        return _IPUInfeedQueueSpec("", *self._serialize()[1:])

    @property
    def value_type(self) -> type:
        return IPUInfeedQueue

    def _serialize(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.FIELDS)

    @property
    def _component_specs(self) -> tuple[Any, ...]:
        return ()

    def _to_components(self, value: Any) -> tuple[Any, ...]:
        del value
        return ()

    def _from_components(self, components: Any) -> IPUInfeedQueue:
        del components
        return IPUInfeedQueue._from_type_spec(self)


class IPUIterator(iterator_ops.OwnedIterator):
    """An infeed as an iterator, for use inside `tf.function`s."""

    def __init__(
        self, dataset: Any = None, infeed_spec: Any = None, element_spec: Any = None, **kwargs: Any
    ) -> None:
        handle = kwargs.pop("_handle", None)
        super(iterator_ops.OwnedIterator, self).__init__()
        from_spec = infeed_spec is not None and element_spec is not None
        if (dataset is None) != from_spec or (
            dataset is not None and (infeed_spec is not None or element_spec is not None)
        ):
            raise ValueError(
                "Either `dataset` or both `infeed_spec` and `element_spec` need to be provided."
            )
        if from_spec:
            self._element_spec = element_spec
            self._infeed_queue = IPUInfeedQueue._from_type_spec(infeed_spec, handle)
        else:
            self._element_spec = dataset.element_spec
            self._infeed_queue = IPUInfeedQueue(dataset, **kwargs)
            _ = self._infeed_queue.initializer
        self._flat_output_types = structure.get_flat_tensor_types(self._element_spec)
        self._flat_output_shapes = structure.get_flat_tensor_shapes(self._element_spec)
        self._infeed_spec = self._infeed_queue._type_spec

    def __iter__(self) -> IPUIterator:
        return self

    def __next__(self) -> Any:
        return self.get_next()

    next = __next__

    def get_next(self) -> Any:
        if tf.executing_eagerly():
            raise RuntimeError(
                "Accessing dataset elements can not be accessed in eager mode when inside "
                "'IPUStrategy'. The dataset elements should be accessed inside of a 'tf.function' "
                "with 'jit_compile=True' set in order to achieve optimal performance. If this "
                "behavior is required please set 'enable_dataset_iterators=False' when creating "
                "an 'IPUStrategy'."
            )
        return self._infeed_queue._dequeue()

    _next_internal = get_next

    def get_next_as_optional(self) -> None:
        raise NotImplementedError("IPU Dataset iterator does not support get_next_as_optional().")

    def _gather_saveables_for_checkpoint(self) -> None:
        raise NotImplementedError("IPU Dataset iterator is not currently saveable.")

    @property
    def element_spec(self) -> Any:
        return self._element_spec

    @property
    def infeed_spec(self) -> Any:
        return self._infeed_spec

    @property
    def _type_spec(self) -> _IPUIteratorSpec:
        return _IPUIteratorSpec(self._infeed_spec.nameless(), self._element_spec)


class IPUOwnedIterator(IPUIterator):
    """An iterator whose infeed ends with it."""

    @property
    def _type_spec(self) -> _IPUIteratorSpec:
        return _IPUOwnedIteratorSpec(self._infeed_spec.nameless(), self._element_spec)


class _IPUIteratorSpec(type_spec.TypeSpec):
    """An iterator as an argument of a `tf.function`, which takes others like it too."""

    __slots__ = ["_element_spec", "_infeed_spec"]

    def __init__(self, infeed_spec: Any, element_spec: Any) -> None:
        self._infeed_spec = infeed_spec
        self._element_spec = element_spec

    @property
    def value_type(self) -> type:
        return IPUIterator

    def _serialize(self) -> tuple[Any, ...]:
        return self._infeed_spec, self._element_spec

    @property
    def _component_specs(self) -> tuple[Any, ...]:
        return (tf.TensorSpec([], tf.resource),)

    def _to_components(self, value: Any) -> tuple[Any, ...]:
        return (value._infeed_queue._source.handle(),)

    def _from_components(self, components: Any) -> Any:
        return self.value_type(
            infeed_spec=self._infeed_spec, element_spec=self._element_spec, _handle=components[0]
        )


class _IPUOwnedIteratorSpec(_IPUIteratorSpec):
    @property
    def value_type(self) -> type:
        return IPUOwnedIterator


def _check_shapes(shapes: Any) -> None:
    for shape in shapes:
        if isinstance(shape, list | tuple):
            raise ValueError("Nested list/tuple input shapes are not supported")
        if not shape.is_fully_defined():
            raise ValueError(
                f"Output shape {shape} is not fully defined. If using tf.Dataset.batch, set "
                "`drop_remainder=True`."
            )


def _checked_depth(depth: int | None) -> int:
    depth = depth or _DEFAULT_PREFETCH
    if depth <= 0:
        raise ValueError(f"prefetch_depth must be greater than zero, but it is {depth}")
    if depth > _MOST_PREFETCHED:
        raise ValueError(
            f"prefetch_depth must be less than {_MOST_PREFETCHED + 1}, but it is {depth}"
        )
    return depth
