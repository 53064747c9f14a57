"""PopTorch's optimisers, and what the rest of poptorch needs to run them on a software IPU.

User code sees the classes below; `_attributes` describes any supported optimiser as plain data, and
`_rules` turns such a description into tensor code. Nothing here knows about models or devices.
"""

from __future__ import annotations

from ._classes import LAMB, SGD, Adam, AdamW, Optimizer, RMSprop, VariableAttributes

__all__ = ["LAMB", "SGD", "Adam", "AdamW", "Optimizer", "RMSprop", "VariableAttributes"]
