"""Options in files and environment variables: lines of Python, or JSON by name of the setter.

What is set, and how, is the business of the options object; this is only reading.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
from pathlib import Path
from types import CodeType
from typing import Any

from . import enums


class ConfigFileError(Exception):
    """A line of an options file is not Python."""


# Users know it as poptorch.options.ConfigFileError.
ConfigFileError.__module__ = "poptorch.options"


def _compiled(line: str, path: Path, line_number: int, option_number: int) -> CodeType:
    source = f"options.{line}"
    try:
        tree = ast.parse(source, filename=str(path))
    except SyntaxError as error:
        # Python's words for a missing bracket changed with 3.10; people and scripts know these.
        detail = "unexpected EOF while parsing" if "never closed" in error.msg else error.msg
        raise ConfigFileError(
            f"{type(error).__name__} at line {option_number} of {path.name}: {detail}\n"
            f"> {source}\n"
            f"(Lines with options are counted; it is line {line_number} of the whole file.)"
        ) from None
    code: CodeType = compile(ast.increment_lineno(tree, line_number - 1), str(path), "exec")
    return code


def set_from_file(options: Any, filepath: str | os.PathLike[str]) -> None:
    """Call the setters in a file, one per line, written without the leading `options.`.

    All lines are parsed before the first is carried out: a file with a mistake changes nothing.
    """
    path = Path(filepath)
    statements: list[CodeType] = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        line = line.strip()
        if line and not line.startswith("#"):
            statements.append(_compiled(line, path, number, len(statements) + 1))
    names = {"poptorch": importlib.import_module(__package__), "options": options}
    for statement in statements:
        exec(statement, names)


def set_from_json(options: Any, text: str) -> None:
    """Call the setters named in a JSON object: `{"Training.gradientAccumulation": 4}`.

    A list gives several arguments. `"OutputMode.All"` is the member of that enum.
    """
    try:
        settings = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"These options are not JSON: {error}. They were: {text}") from None
    if not isinstance(settings, dict):
        raise ValueError(
            'Options in JSON are an object of values by setter, for example {"deviceIterations": '
            f"2}}, not {text}"
        )
    for name, value in settings.items():
        setter = options
        for part in name.split("."):
            setter = getattr(setter, part)
        arguments = value if isinstance(value, list) else [value]
        setter(*(_enum_member(argument) for argument in arguments))


def _enum_member(value: Any) -> Any:
    if not isinstance(value, str) or value.count(".") != 1:
        return value
    kind, member = value.split(".")
    if kind not in enums.__all__:
        return value
    return getattr(getattr(enums, kind), member, value)
