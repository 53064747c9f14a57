"""Repository entries from PopTorch inference models: executable, names, configuration."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

from softipu import SDK_VERSION

from .. import executable as container
from ..errors import ExportRefused
from .binding import EXECUTABLE, NAME_MAP
from .installation import BACKEND
from .types import triton_name

VERSION = "1"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def export(
    poptorch_model: Any,
    example_inputs: Any,
    directory: str | os.PathLike[str],
    name: str,
    **choices: Any,
) -> Path:
    """Compiles the model if need be, and writes DIRECTORY/NAME; returns that path.

    `example_inputs` is a tensor or a sequence of tensors, each a whole batch. `choices` are those
    of `entry_config`, and `overwrite=True` to replace an entry.
    """
    inputs = (example_inputs,) if hasattr(example_inputs, "shape") else tuple(example_inputs)

    def save(path: Path) -> None:
        if not hasattr(poptorch_model, "isCompiled"):
            raise ExportRefused(
                f"A {type(poptorch_model).__name__} is no PopTorch model.",
                cause="What is served is an executable, which PopTorch makes of a module.",
                remedy="Export poptorch.inferenceModel(module).",
            )
        if not poptorch_model.isCompiled():
            poptorch_model.compile(*inputs)
        poptorch_model.save(str(path), export_model=False)

    return _entry(save, Path(directory), name, **choices)


def export_file(
    executable: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    name: str,
    **choices: Any,
) -> Path:
    """The same from a file that `compileAndExport` or `save` of an inference model wrote."""

    def copy(path: Path) -> None:
        path.parent.mkdir()
        shutil.copyfile(executable, path)

    # Before it is copied: errors should name this file, not a copy that is gone by then.
    container.read(executable).close()
    return _entry(copy, Path(directory), name, **choices)


def _entry(
    write: Callable[[Path], None],
    directory: Path,
    name: str,
    *,
    overwrite: bool = False,
    **choices: Any,
) -> Path:
    check_name(name)
    target = directory / name
    if target.exists() and not overwrite:
        raise ExportRefused(f"{target} is there already.")
    with _explained(directory):
        directory.mkdir(parents=True, exist_ok=True)
        # Beside the target and hidden: a server that polls never sees half an entry.
        folder = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=directory))
    try:
        with _explained(target):
            write(folder / VERSION / EXECUTABLE)
            _describe(folder, name, choices)
            folder.chmod(0o755)
            if target.exists():
                shutil.rmtree(target)
            folder.rename(target)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return target


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ExportRefused(
            f"{name!r} is no name for a model.",
            cause="It becomes a directory and part of an address.",
            remedy="Use letters, digits, '.', '_' and '-', beginning with a letter or digit.",
        )
    return name


def _describe(folder: Path, name: str, choices: dict[str, Any]) -> None:
    from poptorch._served import ServedExecutable

    executable = ServedExecutable(folder / VERSION / EXECUTABLE, SDK_VERSION)
    names = {tensor.name: f"input_{i}" for i, tensor in enumerate(executable.inputs)}
    names |= {tensor.name: f"output_{i}" for i, tensor in enumerate(executable.outputs)}
    config = entry_config(executable, name, **choices)
    (folder / VERSION / NAME_MAP).write_text(json.dumps(names, indent=4) + "\n")
    (folder / "config.pbtxt").write_text(text_of(config))


def entry_config(
    executable: Any,
    name: str,
    *,
    max_batch_size: int | None = None,
    instances: int = 1,
    queue_delay_us: int = 0,
    threads: int | None = None,
) -> dict[str, Any]:
    """The configuration of a model, in the form in which the server gives it to backends.

    A request has up to `max_batch_size` samples (default: a whole batch). Requests that wait are
    joined, after up to `queue_delay_us` microseconds. Each instance is a process that holds IPUs.
    """
    largest = executable.batch if max_batch_size is None else max_batch_size
    _check_number("max_batch_size", largest, 1)
    _check_number("instances", instances, 1)
    _check_number("queue_delay_us", queue_delay_us, 0)
    if threads is not None:
        _check_number("threads", threads, 1)
    config: dict[str, Any] = {
        "name": name,
        "backend": BACKEND,
        "max_batch_size": largest,
        "input": _rows("input", executable.inputs),
        "output": _rows("output", executable.outputs),
        "instance_group": [{"kind": "KIND_CPU", "count": instances}],
        "dynamic_batching": {"max_queue_delay_microseconds": queue_delay_us},
    }
    if threads is not None:
        config["parameters"] = {"threads": {"string_value": str(threads)}}
    return config


def _check_number(name: str, value: object, least: int) -> None:
    """The server would refuse the whole entry, later and in other words."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ExportRefused(
            f"{name} is {value!r}, not a whole number from {least}.",
            cause="The server could not use the configuration.",
            remedy=f"Give another {name}, or leave it out.",
        )


def _rows(kind: str, tensors: Sequence[Any]) -> list[dict[str, Any]]:
    rows = []
    for index, tensor in enumerate(tensors):
        data_type = triton_name(tensor.dtype)
        if data_type is None:
            raise ExportRefused(
                f"The {kind} {index} is {tensor.dtype}.",
                cause="Triton has no such data type.",
                remedy="Convert it inside the model, to float32 for example.",
            )
        rows.append(
            {
                "name": f"{kind}_{index}",
                "data_type": f"TYPE_{data_type}",
                "dims": list(tensor.shape) or [1],
            }
        )
    return rows


def text_of(config: Mapping[str, Any]) -> str:
    """A configuration as config.pbtxt has it."""
    return "\n".join(_lines(config)) + "\n"


def _lines(config: Mapping[str, Any]) -> Iterator[str]:
    for key, value in config.items():
        if key == "parameters":
            for name, held in value.items():
                inner = f'key: "{name}" value: {{ string_value: "{held["string_value"]}" }}'
                yield f"parameters {{ {inner} }}"
        elif isinstance(value, Mapping):
            yield f"{key} {{ {_inline(value)} }}"
        elif isinstance(value, list):
            yield f"{key} ["
            yield ",\n".join(f"  {{ {_inline(row)} }}" for row in value)
            yield "]"
        else:
            yield f"{key}: {_value(value)}"


def _inline(row: Mapping[str, Any]) -> str:
    return " ".join(f"{key}: {_value(value)}" for key, value in row.items())


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[ {', '.join(str(size) for size in value)} ]"
    word = str(value)
    # Names of an enumeration stand without quotes.
    plain = not isinstance(value, str) or word.startswith(("TYPE_", "KIND_"))
    return word if plain else f'"{word}"'


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """What the file system refuses, as an error that names the path."""
    try:
        yield
    except OSError as error:
        raise ExportRefused(
            f"{path} cannot be written: {error.strerror or error}.",
            cause="The directory may not be written by this user, or its disk is full.",
            remedy="Choose another directory.",
        ) from error
