"""NumPy's values in a fingerprint, where NumPy is loaded; it is never imported for them.

Arrays become constants of the graph, so their content counts.
"""

from __future__ import annotations

import hashlib
import sys
from typing import TYPE_CHECKING, Any

from ._fingerprint_origin import full_name
from ._fingerprint_reach import use_library

if TYPE_CHECKING:
    from ._fingerprint_walk import Path, Walker

_FUNCTIONS = ("numpy.ufunc", "numpy._ArrayFunctionDispatcher")


def describe(walker: Walker, value: Any, kind: type, path: Path) -> bool:
    """Writes an array, scalar, type or function of NumPy; False for anything else."""
    np: Any = sys.modules["numpy"]
    if kind is np.ndarray or kind is np.memmap or np.generic in kind.__mro__:
        if value.dtype.hasobject:
            raise walker.refuse(path, "an array of Python objects")
        digest = hashlib.sha256(value.tobytes()).hexdigest()
        walker.put("array", repr(value.dtype.descr), repr(value.shape), repr(value.strides), digest)
    elif np.dtype in kind.__mro__:
        walker.put("dtype", repr(value.descr))
    elif full_name(kind) in _FUNCTIONS:
        module = str(getattr(value, "__module__", None) or "numpy")
        walker.put("numpy function", value.__name__)
        use_library(walker, "numpy", module, value.__name__, path)
        return True
    else:
        return False
    walker.library("numpy")
    return True
