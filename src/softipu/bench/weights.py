"""Weights from a file: a state dict by `torch.save`, bare or in a checkpoint, or safetensors."""

from __future__ import annotations

import os
import pickle
from typing import Any

import torch
from torch import nn

from ..errors import WeightsUnusable

#: Under which names checkpoints keep the state dict.
_IN_CHECKPOINTS = ("model_state_dict", "state_dict", "model")
_LISTED = 3
#: What batch norms count for training; torch takes files from before it was counted without.
_COUNTER = "num_batches_tracked"


def load(model: nn.Module, path: str) -> None:
    """Fill the model; every tensor that inference needs must be there, and no unknown one."""
    state = _state(path)
    own = model.state_dict()
    wrong = [
        *(f"{name} is missing" for name in own if name not in state and not _is_counter(name)),
        *(f"{name} is unknown" for name in state if name not in own),
        *(
            f"{name} is {list(state[name].shape)}, not {list(own[name].shape)}"
            for name in own
            if name in state and state[name].shape != own[name].shape
        ),
    ]
    if wrong:
        more = f" and {len(wrong) - _LISTED} more" if len(wrong) > _LISTED else ""
        raise WeightsUnusable(
            f"The weights in {path} don't fit the model: {'; '.join(wrong[:_LISTED])}{more}."
        )
    # The names were checked above; all that can be missing now are counters.
    model.load_state_dict(state, strict=False)


def _is_counter(name: str) -> bool:
    return name.rpartition(".")[2] == _COUNTER


def _state(path: str) -> dict[str, torch.Tensor]:
    found = _read(path)
    for name in _IN_CHECKPOINTS:
        if isinstance(found, dict) and isinstance(found.get(name), dict):
            found = found[name]
            break
    if not isinstance(found, dict) or not found:
        raise WeightsUnusable(f"{path} holds no state dict.")
    if not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise WeightsUnusable(f"{path} holds no state dict: not all of its values are tensors.")
    return found


def _read(path: str) -> Any:
    """What the file holds; files can come from anywhere, so nothing in them is executed."""
    try:
        if os.fspath(path).endswith(".safetensors"):
            import safetensors.torch

            return safetensors.torch.load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise WeightsUnusable(
            f"The weights in {path} can't be read: {error.strerror or error}."
        ) from error
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise WeightsUnusable(f"{path} is no file of weights.") from error
    except Exception as error:
        if type(error).__name__ != "SafetensorError":
            raise
        raise WeightsUnusable(f"{path} is no file of weights: {error}.") from error
