"""What capture hands to the engine: graphs of ATen calls and the facts needed to run them.

A `Program` holds no weights and no Python of the user, so it can be written to a file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node


@dataclass(frozen=True)
class Source:
    """A model to capture, with one micro-batch of inputs."""

    model: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    training: bool
    options: Any
    parameters: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]
    optimised: frozenset[str] = frozenset()
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    loss_scaling: str | None = None
    sharded: frozenset[str] = frozenset()
    #: What `model` is a shallow copy of, where it is one.
    original: Any = None


@dataclass(frozen=True)
class TensorSpec:
    """A named tensor of the program: parameter, buffer, input, output or optimiser state."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, name: str, tensor: torch.Tensor) -> TensorSpec:
        return cls(name, tuple(tensor.shape), tensor.dtype)


@dataclass
class Program:
    """One micro-batch of a model, and the update that follows the last micro-batch of a step.

    `micro` takes parameters, buffers and inputs (in this order) and returns the outputs, then one
    gradient per entry of `trained`, then the anchored tensors. It changes buffers, and inputs that
    the model writes to, in place. `update` takes parameters, gradients, optimiser state and
    hyper-parameters and changes parameters and state in place.
    """

    training: bool
    micro: GraphModule
    parameters: list[TensorSpec]
    buffers: list[TensorSpec]
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    trained: list[str] = field(default_factory=list)
    anchors: list[str] = field(default_factory=list)
    update: GraphModule | None = None
    state: list[TensorSpec] = field(default_factory=list)
    hypers: list[str] = field(default_factory=list)
    #: The types, by name, in which gradients of several micro-batches are added up.
    accumulators: list[str] = field(default_factory=list)
    groups: list[list[str]] = field(default_factory=list)
    loss_scaling: str | None = None
    automatic_loss_scaling: bool = False
    loss_node: str | None = None
    forward_replays: bool = True
    written_buffers: list[str] = field(default_factory=list)
    written_inputs: list[int] = field(default_factory=list)
    loose_buffers: list[str] = field(default_factory=list)
    tensor_names: dict[str, str] = field(default_factory=dict)

    @property
    def nodes(self) -> list[Node]:
        return [node for node in self.micro.graph.nodes if node.op == "call_function"]

    @property
    def random(self) -> bool:
        """Whether the program draws random numbers, which fixes how it may be executed."""
        return any(is_random(node) for node in self.nodes)

    @property
    def calls_host(self) -> bool:
        return any(namespace(node) == "poptorch" for node in self.nodes)

    def place_of(self, node: Node) -> dict[str, Any]:
        place: dict[str, Any] = node.meta.get("softipu", {})
        return place


def namespace(node: Node) -> str:
    return getattr(node.target, "namespace", "")


def is_random(node: Node) -> bool:
    """Whether a node draws random numbers; fused attention without dropout only could."""
    tags = getattr(node.target, "tags", ())
    if torch.Tag.nondeterministic_seeded not in tags:
        return False
    return bool(_argument(node, "dropout_p") != 0)


def _argument(node: Node, name: str) -> Any:
    """What an operator's parameter has in this call, its default included; None without one."""
    for index, parameter in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if parameter.name == name:
            given = node.args[index] if index < len(node.args) else node.kwargs.get(name)
            return parameter.default_value if given is None else given
    return None
