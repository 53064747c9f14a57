"""The neutral op graph: what a program does, in terms that any framework's graph can be put in.

`model` holds the data, `spec` says which op kinds exist and what each must look like, `checks`
holds a graph to it, `text` prints one. Importers live with their front ends; costs in
`softipu.machine`.
"""

from .build import Builder
from .checks import check
from .model import DTYPE_BYTES, Graph, Op, Phase, Role, Schedule, Tensor
from .spec import KINDS, Kind
from .text import show

__all__ = [
    "DTYPE_BYTES",
    "KINDS",
    "Builder",
    "Graph",
    "Kind",
    "Op",
    "Phase",
    "Role",
    "Schedule",
    "Tensor",
    "check",
    "show",
]
