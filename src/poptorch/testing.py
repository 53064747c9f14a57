"""Comparison of results for tests of IPU programs; not a test framework."""

from __future__ import annotations

from typing import Any

import torch


def allclose(ref: Any, other: Any) -> bool:
    """Whether two tensors, or tuples, lists and dicts of them, agree in structure and values."""
    if isinstance(ref, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.allclose(other, ref)
    for kind in (tuple, list):
        if isinstance(ref, kind):
            alike = isinstance(other, kind) and len(ref) == len(other)
            return alike and all(map(allclose, ref, other))
    if isinstance(ref, dict):
        alike = isinstance(other, dict) and ref.keys() == other.keys()
        return alike and all(allclose(value, other[key]) for key, value in ref.items())
    raise TypeError(f"{type(ref)} not supported: expected tensors in tuples, lists or dicts")
