"""Options that a class declares in its `__init__`: `self.name: type = default`, text above it.

Python keeps neither annotations of attributes nor texts above them, so the source is read.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import dataclass
from typing import Any

from ._config_metadata import NOTHING_SAID


@dataclass(frozen=True)
class Declaration:
    doc: str = NOTHING_SAID
    #: The annotation as written, on one line; None: the default's type counts.
    annotation: str | None = None


_known: dict[type, dict[str, Declaration]] = {}


def declarations(owner: type) -> dict[str, Declaration]:
    """The attributes that the class assigns in its `__init__`, by name."""
    if owner not in _known:
        _known[owner] = _read(owner)
    return _known[owner]


def _read(owner: type) -> dict[str, Declaration]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(owner.__init__)))  # type: ignore[misc]
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    found = {}
    above: ast.stmt | None = None
    for statement in function.body:
        target = _assigned(statement)
        if isinstance(target, ast.Attribute):
            annotation = (
                ast.unparse(statement.annotation) if isinstance(statement, ast.AnnAssign) else None
            )
            found[target.attr] = Declaration(_text(above), annotation)
        above = statement
    return found


def evaluate(owner: type, annotation: str) -> Any:
    """The annotation's value, in the module of the class."""
    return eval(annotation, owner.__init__.__globals__)  # type: ignore[misc]


def _assigned(statement: ast.stmt) -> ast.expr | None:
    if isinstance(statement, ast.AnnAssign):
        return statement.target
    return statement.targets[0] if isinstance(statement, ast.Assign) else None


def _text(statement: ast.stmt | None) -> str:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return str(statement.value.value)
    return NOTHING_SAID
