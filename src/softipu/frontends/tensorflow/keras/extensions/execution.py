"""The functions that fit, evaluate and predict run: all steps of an execution in one graph.

A step is traced once; the loop over the steps calls it. With replicas the whole loop runs once for
each, with its own batches.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib
from tensorflow.python.ops import resource_variable_ops

from softipu.estimating.modelled import Call
from softipu.frontends.tensorflow import (
    cycles,
    descriptions,
    float_trap,
    leftovers,
    modelled,
    replicas,
    sessions,
    system,
)

from . import checks, choice
from .accumulation import Accumulator
from .choice import Choice, Form
from .step_queue import StepQueue


class Program:
    """A traced loop for the iterators that it was traced for: that these are such is not checked
    again, which takes as long as a small model's step."""

    def __init__(self, traced: Any) -> None:
        self.traced = traced

    def __call__(self, iterator: Any) -> Any:
        flat = tf.nest.flatten(iterator, expand_composites=True)
        return self.traced._call_flat(flat, self.traced.captured_inputs)


class Execution:
    """One of a model's three functions, for one kind of batch."""

    def __init__(self, model: Any, mode: str, step: Callable[[Any], Any], counter: Any) -> None:
        """`mode` is `train`, `test` or `predict`."""
        self._model = model
        self.mode = mode
        self.step = step
        self._counter = counter
        self._replicas: int = model._get_replication_factor()
        self._instance = system.instance()
        self.accumulator: Accumulator | None = None
        self._micro_steps = 1
        self._every_step = False
        self.queue: StepQueue | None = None
        #: For which batches, whether for one step only (which needs no loop), what, and what of it
        #: a failure may leave behind.
        self._built: tuple[Any, bool, Callable[[Any, int], Any], leftovers.Leftovers] | None = None
        self._step_traced: Any = None
        self._step_outputs: Any = None
        self._bytes_per_step = (0, 0)  # from and to the host
        self._modelled: Call | None = None
        #: At which numbers the built function stops.
        self._trap = float_trap.asked()
        #: How the steps run, where there is a choice.
        self.choice: Choice | None = None

    def suits_configuration(self) -> bool:
        """Whether the IPUs are still configured for as many replicas."""
        now = self._model._get_replication_factor(), system.instance()
        return now == (self._replicas, self._instance)

    @property
    def total_replicas(self) -> int:
        """Of all instances."""
        return self._replicas * self._instance[1]

    @property
    def element_spec(self) -> Any:
        """What a batch looks like, once the function has run."""
        return self._built[0] if self._built is not None else None

    def accumulate(self, accumulator: Accumulator, steps: int) -> Execution:
        self.accumulator, self._micro_steps = accumulator, steps
        return self

    def keep_every_step(self) -> Execution:
        """Results of all steps, joined along the batch, instead of the last step's."""
        self._every_step = True
        return self

    def tell_every_step(self, queue: StepQueue) -> Execution:
        """Each step's results can be read while the function still runs."""
        self.queue = queue
        self._built = None
        return self

    def __call__(self, iterator: Any) -> Any:
        """Runs one execution; results by the model's reduction over replicas."""
        trap = float_trap.asked()
        steps = self._steps()
        built = self._built  # another thread may build for other batches meanwhile
        if (
            built is None
            or built[0] != iterator.element_spec
            or self._trap != trap
            or (built[1] and steps > 1)
        ):
            self._trap = trap
            single = steps == 1 and self.accumulator is None
            left = leftovers.Leftovers()
            run = self._build(iterator, single, left)
            built = self._built = (iterator.element_spec, single, run, left)
            self._ask_the_model()
        if system.pre_compiling():
            return self._zeros()
        moved = steps * self._replicas
        bytes_in, bytes_out = self._bytes_per_step
        ordinal = self._model.distribute_strategy._device_ordinal
        with (
            sessions.on_ipus([ordinal], moved * bytes_in, moved * bytes_out),
            sessions.translated_errors(),
            built[3].removed_on_failure(),
        ):
            results = built[2](iterator, steps)
        cycles.count(self._modelled, ordinal, max(1, steps // self._micro_steps))
        if float_trap.enabled():
            float_trap.check(results, self._model.trainable_variables)
        return results

    def _steps(self) -> int:
        """How many this execution has. Keras's data handler writes it for the last one, so it is
        read each time, without what a variable's own methods take for it."""
        steps = self._model._steps_per_execution
        if not isinstance(steps, resource_variable_ops.BaseResourceVariable):
            return int(steps.numpy())  # several instances have one each
        read = tf.raw_ops.ReadVariableOp(resource=steps.handle, dtype=steps.dtype)
        return int(read.numpy())

    def _ask_the_model(self) -> None:
        """Warn about, or refuse, what has no room on the real IPU; write the report asked for."""
        try:
            found = modelled.ask_about_keras(self._model, self, self._step_traced)
            self._modelled = found.call
        except BaseException:
            self._built = None
            raise

    def _build(
        self, iterator: Any, single: bool, left: leftovers.Leftovers
    ) -> Callable[[Any, int], Any]:
        with left.noted(), self._tracing() as current:
            step = self._step_traced = self._traced_step(iterator.element_spec)
            self._step_outputs = step.structured_outputs
            self._bytes_per_step = _bytes(iterator.element_spec), _bytes(self._step_outputs)
            run = self._traced(iterator.element_spec, step, single)
        if self._replicas == 1:
            if current.instance()[1] > 1:  # XLA can't compile what goes to other instances
                return lambda it, steps: run(it)
            return self._fastest_of(run, iterator.element_spec, step, single)
        structure = run.structured_outputs
        runs = replicas.Replicated(run, current, self._replicas)

        def replicated(it: Any, steps: int) -> Any:
            del steps  # each replica reads it from its variable
            flat = runs(tf.nest.flatten(it, expand_composites=True))
            each = [tf.nest.pack_sequence_as(structure, outputs) for outputs in flat]
            return self._joined(each)

        return replicated

    def _zeros(self) -> Any:
        """What a program that is only compiled gives back: nothing runs, no data is read."""
        leading = [self._steps()] if self._every_step else []

        def zeros(output: tf.Tensor) -> tf.Tensor:
            made = tf.zeros([*leading, *output.shape], output.dtype)
            return _merged(made, 2) if leading and self._replicas == 1 else made

        each = tf.nest.map_structure(zeros, self._step_outputs)
        return each if self._replicas == 1 else self._joined([each] * self._replicas)

    @contextlib.contextmanager
    def _tracing(self) -> Iterator[replicas.Tracing]:
        strategy = self._model.distribute_strategy
        context = distribute_lib.ReplicaContext(strategy, replica_id_in_sync_group=0)
        device = strategy.extended.non_slot_devices(None)
        # Not while a description of the same model is traced in the background.
        with (
            descriptions.LOCK,
            replicas.trace(self._replicas) as current,
            context,
            tf.device(device),
        ):
            yield current

    def _joined(self, each: list[Any]) -> Any:
        if not self._every_step:
            return self._model._reduce_over_replicas(each)
        # [steps, batch, …] of each replica: batches go to replicas in turns.
        return tf.nest.map_structure(lambda *parts: _merged(tf.stack(parts, 1), 3), *each)

    def _fastest_of(self, run: Any, spec: Any, step: Any, single: bool) -> Choice:
        def form(name: str, step: Any) -> Form:
            with self._tracing():
                return Form(name, Program(self._traced(spec, step, single)))

        def rivals() -> list[Form]:
            if choice.draws_numbers(run):  # the step, or the update
                return []
            fits = choice.fits_one_thread(step)
            made = [form("one thread", choice.OnOneThread(step))] if fits else []
            compiled = choice.compiled_step(step)
            return made if compiled is None else [*made, form("XLA", compiled)]

        self.choice = Choice(Program(run), rivals)
        return self.choice

    def _traced(self, spec: Any, step: Any, single: bool) -> Any:
        """The concrete function of the loop, for iterators over elements like `spec`."""
        update = self._traced_update()
        steps = self._model._steps_per_execution

        def one_step(it: Any) -> Any:
            data = replicas.shared_feed(lambda: it.get_next(), spec)
            results = step(data)
            if self.queue is not None:
                self.queue.put(results)
            return results

        @tf.function(autograph=False)
        def run(it: Any) -> Any:
            if single:
                return self._single(one_step(it), step)
            count = tf.cast(steps, tf.int32)
            if update is not None:
                return self._updates(count // self._micro_steps, it, one_step, update, step)
            return self._loop(count, lambda: one_step(it), step)

        return run.get_concrete_function(tf.data.IteratorSpec(spec))

    def _traced_step(self, spec: Any) -> Any:
        counter = self._counter

        def step(data: Any) -> Any:
            results = self.step(data)
            checks.demand_values(results, f"{self.mode}_step of the model {self._model.name}")
            with tf.control_dependencies(_tensors(results)):
                counter.assign_add(1)
            return results

        if self.accumulator is None:
            return tf.function(step).get_concrete_function(spec)
        with self.accumulator.collecting():
            return tf.function(step).get_concrete_function(spec)

    def _traced_update(self) -> Any:
        if self.accumulator is None:
            return None
        return tf.function(self.accumulator.update, autograph=False).get_concrete_function()

    def _single(self, results: Any, step: Any) -> Any:
        """Results of an execution of one step, in the form that a loop gives them."""
        flat = tf.nest.flatten(results)
        if self._every_step and self._replicas > 1:
            flat = [tf.expand_dims(tensor, 0) for tensor in flat]
        return tf.nest.pack_sequence_as(step.structured_outputs, flat)

    def _updates(self, count: Any, it: Any, one_step: Any, update: Any, step: Any) -> Any:
        def micro_steps() -> Any:
            results = self._loop(self._micro_steps, lambda: one_step(it), step)
            with tf.control_dependencies(_tensors(results)):
                update()
            return results

        return self._loop(count, micro_steps, step)

    def _loop(self, count: Any, body: Callable[[], Any], step: Any) -> Any:
        """Runs `body` that often; its last results, or all of them along a new axis."""
        structure = step.structured_outputs
        specs = _specs(structure)

        if not self._every_step:

            def turn(i: Any, _last: Any) -> Any:
                return i + 1, tf.nest.flatten(body())

            zeros = [tf.zeros(spec.shape, spec.dtype) for spec in specs]
            _, last = tf.while_loop(lambda i, _: i < count, turn, (0, zeros))
            return tf.nest.pack_sequence_as(structure, last)

        def keep(i: Any, arrays: Any) -> Any:
            flat = tf.nest.flatten(body())
            return i + 1, [a.write(i, t) for a, t in zip(arrays, flat, strict=True)]

        arrays = [tf.TensorArray(s.dtype, size=count, element_shape=s.shape) for s in specs]
        _, arrays = tf.while_loop(lambda i, _: i < count, keep, (0, arrays))
        joined = [array.stack() for array in arrays]
        if self._replicas == 1:
            joined = [_merged(tensor, 2) for tensor in joined]
        return tf.nest.pack_sequence_as(structure, joined)


def _merged(tensor: tf.Tensor, axes: int) -> tf.Tensor:
    """The first axes (steps, replicas, batch) as one."""
    return tf.reshape(tensor, [-1, *tensor.shape[min(axes, tensor.shape.rank) :]])


def _specs(structure: Any) -> list[tf.TensorSpec]:
    return [tf.TensorSpec(t.shape, t.dtype) for t in tf.nest.flatten(structure)]


def _bytes(structure: Any) -> int:
    """Of tensors, or of specifications of them, with known shapes."""
    flat = tf.nest.flatten(structure, expand_composites=True)
    return sum((t.shape.num_elements() or 0) * t.dtype.size for t in flat)


def _tensors(results: Any) -> list[Any]:
    flat = tf.nest.flatten(results, expand_composites=True)
    return [t for t in flat if isinstance(t, tf.Tensor | tf.Operation)]
