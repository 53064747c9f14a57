"""Executables of the embedded runtime: a traced program with its streams, in one checked file.

The program runs as it was written, loops and all. What it captured is given back to it when it is
loaded: its variables, an iterator in place of its infeed, a queue in place of its outfeed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto

from softipu import executable

PRODUCER = executable.Producer("tensorflow", 1)


@dataclass(frozen=True)
class TensorDescription:
    name: str
    dtype: str
    shape: list[int]

    @staticmethod
    def of(name: str, dtype: Any, shape: Any) -> TensorDescription:
        shape = tf.TensorShape(shape)
        if not shape.is_fully_defined():
            raise ValueError(f"The tensor {name} of an application has no fixed shape: {shape}.")
        return TensorDescription(name, tf.as_dtype(dtype).base_dtype.name, shape.as_list())

    @property
    def tf_dtype(self) -> tf.DType:
        return tf.as_dtype(self.dtype)


@dataclass(frozen=True)
class Signature:
    """What goes into a program once, what comes out of it once, and what streams."""

    inputs: list[TensorDescription] = field(default_factory=list)
    outputs: list[TensorDescription] = field(default_factory=list)
    streamed_inputs: list[TensorDescription] = field(default_factory=list)
    streamed_outputs: list[TensorDescription] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """What the captures of a traced program are, by the names of their placeholders."""

    signature: Signature
    #: Placeholder -> number of the input whose value it takes.
    tensors: dict[str, int]
    #: Placeholder of a variable's handle -> number of the input that is its value.
    variables: dict[str, int]
    #: Placeholders of the infeed and the outfeed.
    infeed: str | None
    outfeed: str | None
    #: What to fetch and what to run.
    fetches: list[str]
    targets: list[str]


def plan(traced: Any, argument_names: list[str]) -> tuple[Plan, list[Any]]:
    """How to run a traced program, and the tensors and variables that are its inputs."""
    graph = traced.graph
    variables = {id(v.handle): v for v in graph.variables}
    inputs: list[Any] = []
    signature = Signature()
    tensors: dict[str, int] = {}
    handles: dict[str, int] = {}
    feeds: dict[str, str] = {}
    captures = [(outer, inner) for outer, inner in graph.captures]
    placeholders = graph.inputs[: len(graph.inputs) - len(captures)]
    for name, placeholder in zip(argument_names, placeholders, strict=True):
        tensors[placeholder.name] = len(inputs)
        signature.inputs.append(TensorDescription.of(name, placeholder.dtype, placeholder.shape))
        inputs.append(None)
    for outer, inner in captures:
        if id(outer) in variables:
            variable = variables[id(outer)]
            handles[inner.name] = len(inputs)
            signature.inputs.append(_variable_input(variable))
            inputs.append(variable)
        elif inner.dtype == tf.resource:
            kind, streamed = _stream(graph, inner)
            if kind in feeds:
                raise NotImplementedError(f"An application with more than one {kind} can't run.")
            feeds[kind] = inner.name
            target = signature.streamed_inputs if kind == "infeed" else signature.streamed_outputs
            target.extend(streamed)
        else:
            tensors[inner.name] = len(inputs)
            signature.inputs.append(TensorDescription.of(inner.op.name, inner.dtype, inner.shape))
            inputs.append(outer)
    for number, output in enumerate(graph.outputs):
        signature.outputs.append(
            TensorDescription.of(f"output_{number}", output.dtype, output.shape)
        )
    return (
        Plan(
            signature, tensors, handles, feeds.get("infeed"), feeds.get("outfeed"),
            [t.name for t in graph.outputs], [op.name for op in graph.control_outputs],
        ),
        inputs,
    )  # fmt: skip


def _variable_input(variable: Any) -> TensorDescription:
    return TensorDescription.of(
        f"XLA_Args/{variable.name.split(':')[0]}", variable.dtype, variable.shape
    )


def _stream(graph: Any, handle: Any) -> tuple[str, list[TensorDescription]]:
    """Whether a handle is an infeed or an outfeed, and of which tensors."""
    for op in _users(graph, handle):
        if op.type == "IteratorGetNext":
            types, shapes = op.get_attr("output_types"), op.get_attr("output_shapes")
            kinds = list(zip(types, shapes, strict=True))
            name = "infeed"
        elif op.type == "QueueEnqueueV2":
            kinds = [(t.dtype, t.shape) for t in op.inputs[1:]]
            name = "outfeed"
        else:
            raise NotImplementedError(
                f"An application can't contain the operation {op.name} ({op.type}) on a resource "
                "that is no variable, no infeed, and no outfeed of mode ALL."
            )
        return name, [TensorDescription.of(f"{name}_{i}", *kind) for i, kind in enumerate(kinds)]
    raise NotImplementedError(f"An application captures {handle.name}, but does not use it.")


def _users(graph: Any, tensor: Any) -> Iterator[Any]:
    """The operations that use a tensor, also inside the functions that it is passed to."""
    for op in tensor.consumers():
        functions = [value.name for value in _attributes(op) if hasattr(value, "name")]
        inner = [graph._functions[n].graph for n in functions if n in graph._functions]
        if not inner:
            if op.type not in ("Identity", "While", "StatelessWhile"):
                yield op
            continue
        # Branches don't get the condition that is the first input of If and Case.
        skip = 1 if op.type in ("If", "StatelessIf", "Case", "StatelessCase") else 0
        for index, given in enumerate(op.inputs):
            if given is tensor:
                for function in inner:
                    yield from _users(function, function.inputs[index - skip])


def _attributes(op: Any) -> list[Any]:
    definition = op.node_def.attr
    found = [value.func for value in definition.values() if value.HasField("func")]
    return found + [f for value in definition.values() for f in value.list.func]


def write(path: str, graph_def: bytes, plan: Plan, frozen: dict[int, Any]) -> None:
    """Saves a program; `frozen` are the inputs whose values go with it, by number."""
    meta = {"plan": asdict(plan), "frozen": sorted(frozen)}
    blobs = {"graph": graph_def}
    for number, value in frozen.items():
        blobs[f"inputs/{number}"] = tf.make_tensor_proto(value).SerializeToString()
    executable.write(path, meta, blobs, producer=PRODUCER)


@dataclass(frozen=True)
class Application:
    """A program as it was read from a file."""

    path: str
    graph_def: bytes
    plan: Plan
    #: Number of an input -> its value.
    frozen: dict[int, Any]

    @property
    def open_inputs(self) -> list[int]:
        """The inputs that must be given at the start."""
        return [n for n in range(len(self.plan.signature.inputs)) if n not in self.frozen]

    @property
    def signature(self) -> Signature:
        """The program as seen from outside: what is frozen is no input."""
        everything = self.plan.signature.inputs
        return replace(self.plan.signature, inputs=[everything[n] for n in self.open_inputs])


def read(path: str) -> Application:
    """Refuses what is not an executable of TensorFlow, or not as it was written."""
    with executable.read(path, producer=PRODUCER) as container:
        body = container.meta["plan"]
        signature = Signature(
            **{k: [TensorDescription(**row) for row in v] for k, v in body["signature"].items()}
        )
        plan = Plan(**{**body, "signature": signature})
        frozen = {
            number: tf.make_ndarray(TensorProto.FromString(container.blob(f"inputs/{number}")))
            for number in container.meta["frozen"]
        }
        return Application(path, container.blob("graph"), plan, frozen)
