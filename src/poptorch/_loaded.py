"""Models and optimisers as `save` writes them and `load` restores them: names, numbers, tensors.

The user's classes are not needed: a loaded model has the same parameters under the same names and
runs from the captured graph.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

from softipu.errors import ExecutableCorrupt, NotPortable

from . import optim
from ._arg_parsers import flatten, rebuild
from ._graph_tensors import from_bytes, to_bytes
from ._inputs import Signature
from ._program_file import Compiled
from ._structures import decode, encode
from .optim import VariableAttributes

_OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    f"{home}.{kind.__name__}": kind
    for home, kinds in {
        "poptorch": (optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop, optim.LAMB),
        "torch": (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop),
    }.items()
    for kind in kinds
}
_KINDS = {kind.name: kind for kind in inspect._ParameterKind}


def describe_model(model: Any, signature: Signature) -> tuple[dict[str, Any], bytes]:
    """The model without its code: what forward takes, and all parameters and buffers."""
    rows = []
    for parameter in signature.parameters:
        has_default = parameter.default is not inspect.Parameter.empty
        default = encode(parameter.default) if has_default else None
        rows.append([parameter.name, parameter.kind.name, has_default, default])
    tensors: dict[str, torch.Tensor] = {}
    aliases: dict[str, str] = {}
    first: dict[int, str] = {}
    frozen: list[str] = []
    buffers: list[str] = []
    passing: list[str] = []
    if isinstance(model, torch.nn.Module):
        named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        buffers = [name for name, _ in model.named_buffers()]
        first = {id(value): name for name, value in named.items()}
        tensors = {name: value.detach().contiguous() for name, value in named.items()}
        frozen = [n for n, p in model.named_parameters() if not p.requires_grad]
        for name, value in (
            *model.named_parameters(remove_duplicate=False),
            *model.named_buffers(remove_duplicate=False),
        ):
            if first[id(value)] != name:
                aliases[name] = first[id(value)]
        passing = sorted(
            f"{prefix}.{name}" if prefix else name
            for prefix, module in model.named_modules()
            for name in module._non_persistent_buffers_set
        )
    meta = {
        "name": getattr(type(model), "_original", type(model)).__name__,
        "signature": rows,
        "order": list(tensors),
        "buffers": buffers,
        "not_persistent": passing,
        "frozen": frozen,
        "aliases": aliases,
    }
    return meta, to_bytes({name: tensor.clone() for name, tensor in tensors.items()})


class LoadedModel(torch.nn.Module):
    """A model restored from a file. On the host its `forward` takes one micro-batch."""

    def __init__(self, meta: dict[str, Any], weights: bytes, compiled: Compiled) -> None:
        super().__init__()
        buffers, frozen = set(meta["buffers"]), set(meta["frozen"])
        passing = set(meta["not_persistent"])
        values = from_bytes(weights)
        for name in meta["order"]:
            value = values[name]
            module, leaf = self._home(name)
            if name in buffers:
                module.register_buffer(leaf, value, persistent=name not in passing)
            else:
                module.register_parameter(leaf, torch.nn.Parameter(value, name not in frozen))
        for alias, original in meta["aliases"].items():
            module, leaf = self._home(alias)
            source, source_leaf = self._home(original)
            if original in buffers:
                shared = source._buffers[source_leaf]
                module.register_buffer(leaf, shared, persistent=alias not in passing)
            else:
                module.register_parameter(leaf, source._parameters[source_leaf])
        self._compiled = compiled
        self.title = str(meta["name"])
        self.forward_signature = _signature(meta["signature"])

    def _home(self, name: str) -> tuple[torch.nn.Module, str]:
        """The module that holds a parameter of that dotted name; made where missing."""
        module: torch.nn.Module = self
        *path, leaf = name.split(".")
        for part in path:
            if part not in module._modules:
                module.add_module(part, torch.nn.Module())
            module = module.get_submodule(part)
        return module, leaf

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        bound = self.forward_signature.bind(*args, **kwargs)
        bound.apply_defaults()
        program = self._compiled.plan.program
        parameters = dict(self.named_parameters())
        buffers = dict(self.named_buffers())
        flat: list[torch.Tensor] = [parameters[spec.name] for spec in program.parameters]
        flat += [buffers[spec.name] for spec in program.buffers]
        flat += flatten(tuple(bound.arguments.values()))
        if program.loss_scaling:
            flat.append(torch.ones(()))
        with torch.no_grad():
            results = program.micro(*flat)
        return rebuild(self._compiled.structure, iter(results[: len(program.outputs)]))

    def __repr__(self) -> str:
        return f"LoadedModel({self.title})"


def _signature(rows: list[Any]) -> inspect.Signature:
    try:
        return inspect.Signature(
            [
                inspect.Parameter(
                    name,
                    _KINDS[kind],
                    default=decode(default) if has_default else inspect.Parameter.empty,
                )
                for name, kind, has_default, default in rows
            ]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ExecutableCorrupt(f"The file describes forward wrongly: {error}.") from error


def describe_optimizer(
    optimizer: Any, named: dict[str, torch.Tensor]
) -> tuple[dict[str, Any], bytes]:
    """An optimiser of the known classes: its numbers by group, and its state."""
    kinds = {kind: name for name, kind in _OPTIMIZERS.items()}
    kind = type(optimizer)
    if kind not in kinds:
        raise NotPortable(
            f"The optimiser {kind.__name__} is not one of PopTorch's or PyTorch's own.",
            remedy="Save with export_model=False, and make model and optimiser anew when loading.",
        )
    names = {id(value): name for name, value in named.items()}
    groups = []
    for group in optimizer.param_groups:
        values = {key: encode(value) for key, value in group.items() if key != "params"}
        groups.append({"params": [names[id(p)] for p in group["params"]], "values": values})
    state: dict[str, torch.Tensor] = {}
    if isinstance(optimizer, optim.Optimizer):
        saved = optimizer.state_dict()
        for part in ("ipu_state", "ipu_param"):
            for name, value in (saved.get(part) or {}).items():
                state[f"{part}/{name}"] = value
    plain = {
        key: encode(value)
        for key, value in vars(optimizer).items()
        if isinstance(value, int | float | str | torch.dtype | None) and not key.startswith("_")
    }
    variable = getattr(optimizer, "variable_attrs", None)
    meta = {
        "kind": kinds[kind],
        "groups": groups,
        "attributes": plain,
        "defaults": {key: encode(value) for key, value in optimizer.defaults.items()},
        "variable": sorted({*variable._variable_attributes} & {*variable._allowed_attributes})
        if isinstance(variable, VariableAttributes)
        else [],
    }
    return meta, to_bytes(state)


def restored_optimizer(
    meta: dict[str, Any], state: bytes, model: torch.nn.Module
) -> torch.optim.Optimizer:
    """The optimiser that `describe_optimizer` wrote, over the parameters of a loaded model."""
    kind = _OPTIMIZERS.get(meta["kind"])
    if kind is None:
        raise ExecutableCorrupt(f"The file names an unknown optimiser {meta['kind']!r}.")
    named = dict(model.named_parameters())
    groups = [{"params": [named[name] for name in row["params"]]} for row in meta["groups"]]
    defaults = {key: decode(value) for key, value in meta["defaults"].items()}
    attributes = {key: decode(value) for key, value in meta["attributes"].items()}
    accepted = inspect.signature(kind).parameters
    wanted = {
        k: v for k, v in {**defaults, **attributes}.items() if k in accepted and v is not None
    }
    optimizer: torch.optim.Optimizer = kind(groups, **wanted)
    for group, row in zip(optimizer.param_groups, meta["groups"], strict=True):
        group.update({key: decode(value) for key, value in row["values"].items()})
    variable = getattr(optimizer, "variable_attrs", None)
    if isinstance(variable, VariableAttributes):
        # All were given to the constructor here, which says nothing about which may change.
        for name in set(variable._allowed_attributes):
            variable.markAsConstant(name)
        for name in meta["variable"]:
            variable.markAsVariable(name)
    tensors = from_bytes(state)
    if isinstance(optimizer, optim.Optimizer) and tensors:
        parts: dict[str, dict[str, torch.Tensor]] = {"ipu_state": {}, "ipu_param": {}}
        for name, value in tensors.items():
            part, _, key = name.partition("/")
            parts[part][key] = value
        optimizer.load_state_dict({**torch.optim.Optimizer.state_dict(optimizer), **parts})
    return optimizer
