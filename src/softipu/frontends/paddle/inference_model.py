"""Model files of Paddle: what a program takes, and whether its files are whole.

Paddle itself ends the process on some damaged files, so that they are read here first: only
headers, never the weights. Rounding weights to half precision happens here too.
"""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from softipu.errors import InferenceModelMissing, InferenceModelUnreadable, InferenceUnsupported

#: Element types of saved tensors, by their number: name, bytes.
_ELEMENTS = {
    0: ("bool", 1), 1: ("int16", 2), 2: ("int32", 4), 3: ("int64", 8), 4: ("float16", 2),
    5: ("float32", 4), 6: ("float64", 8), 19: ("uint64", 8), 20: ("uint8", 1), 21: ("int8", 1),
    22: ("bfloat16", 2), 23: ("complex64", 8), 24: ("complex128", 16),
    32: ("float8_e4m3fn", 1), 33: ("float8_e5m2", 1),
}  # fmt: skip
_FLOAT32 = 5
#: Element types as the JSON format spells them.
JSON_ELEMENTS = {
    "bool": "bool", "i8": "int8", "ui8": "uint8", "i16": "int16", "i32": "int32", "i64": "int64",
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
    "c64": "complex64", "c128": "complex128",
}  # fmt: skip
#: Variables that a program has beside its weights.
_NO_WEIGHTS = ("FEED_MINIBATCH", "FETCH_LIST", "RAW", "READER")


@dataclass(frozen=True)
class Feed:
    """An input or output: -1 in the shape stands for any size."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Files:
    """Where a model is: a program with its weights in one file, or in a file each."""

    program: Path
    weights: Path | None
    folder: Path | None = None

    @property
    def is_json(self) -> bool:
        return self.program.suffix == ".json"


Shapes = dict[str, tuple[int, ...]]
Buffer = bytes | bytearray | mmap.mmap


@dataclass(frozen=True)
class Program:
    feeds: dict[str, Feed]
    fetches: dict[str, Feed]
    weights: Shapes


@dataclass(frozen=True)
class Model:
    name: str
    feeds: dict[str, Feed]
    fetches: dict[str, Feed]
    #: Bytes of all weights.
    weight_bytes: int
    #: The program as it was saved, which the machine model reads.
    source: bytes | None = field(default=None, repr=False)


def files_of(config: Any) -> Files | None:
    """The files that a Config names, or None for a model in memory."""
    if config.model_from_memory():
        return None
    if config.prog_file():
        weights = config.params_file()
        return Files(Path(config.prog_file()), Path(weights) if weights else None)
    if config.model_dir():
        folder = Path(config.model_dir())
        if not folder.is_dir():
            raise InferenceModelMissing(f"The model directory {str(folder)!r} does not exist.")
        return Files(folder / "__model__", None, folder)
    raise InferenceModelMissing(
        "The Config names no model.", cause="Neither a program file nor a directory was given."
    )


def read(files: Files, core: Any) -> Model:
    """What the program takes; raises an error of ours when a file is missing or damaged."""
    source = _bytes_of(files.program)
    program = parse(source, core, str(files.program), is_json=files.is_json)
    weights, size = program.weights, 0
    if files.folder is not None:
        size = sum(_check_weights(files.folder / name, {name: weights[name]}) for name in weights)
    elif files.weights is not None:
        size = _check_weights(files.weights, weights)
    elif weights:
        raise InferenceModelMissing(
            f"{str(files.program)!r} has weights, but the Config names no file of them."
        )
    name = files.folder.name if files.folder is not None else files.program.stem
    return Model(name, program.feeds, program.fetches, size, source)


def of_config(config: Any, buffers: tuple[bytes, bytes] | None, core: Any) -> Model:
    """The model of a Config, from its files or from what `set_model_buffer` was given."""
    files = files_of(config)
    if files is not None:
        return read(files, core)
    if buffers is None:
        raise InferenceUnsupported(
            "The model was given to set_model_buffer as text.", remedy="Give it as bytes."
        )
    if looks_like_json(buffers[0]):
        raise InferenceUnsupported(
            "A model of the JSON format in memory.",
            cause="Paddle's set_model_buffer takes the binary format (.pdmodel) only.",
            remedy="Save the model to files, and name them in the Config.",
        )
    return from_memory(*buffers, core)


def from_memory(program: bytes, weights: bytes, core: Any) -> Model:
    parsed = parse(program, core, "the program in memory", is_json=looks_like_json(program))
    where = "the weights in memory"
    _compare(list(saved_tensors(weights, where)), parsed.weights, where)
    return Model("memory", parsed.feeds, parsed.fetches, len(weights), program)


def looks_like_json(program: bytes) -> bool:
    return program[:64].lstrip().startswith(b"{")


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> InferenceModelMissing:
    return InferenceModelMissing(f"The model file {str(path)!r} cannot be read: {error.strerror}.")


def parse(program: bytes, core: Any, where: str, *, is_json: bool) -> Program:
    """Inputs, outputs and weights of a program."""
    try:
        return _parse_json(program) if is_json else _parse_binary(program, core)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RuntimeError) as error:
        kind = "Paddle's JSON format (PIR)" if is_json else "Paddle's binary format (.pdmodel)"
        lines = str(error).strip().splitlines() or ["nothing in it"]
        raise InferenceModelUnreadable(
            f"{where} is not a program in {kind}: {type(error).__name__}: {lines[0][:200]}"
        ) from None


def _parse_binary(program: bytes, core: Any) -> Program:
    desc = core.ProgramDesc(program)
    if desc.num_blocks() == 0:
        raise ValueError("it is empty")
    block = desc.block(0)
    slots: dict[str, dict[str, Feed]] = {"feed": {}, "fetch": {}}
    for op in (block.op(index) for index in range(block.op_size())):
        if op.type() in slots:
            name = (op.output("Out") if op.type() == "feed" else op.input("X"))[0]
            var = block.find_var(name.encode())
            slots[op.type()][name] = Feed(name, tuple(var.shape()), _dtype_name(var.dtype()))
    weights = {
        var.name(): tuple(var.shape())
        for var in block.all_vars()
        if var.persistable() and _type_name(var.type()) not in _NO_WEIGHTS
    }
    return Program(slots["feed"], slots["fetch"], weights)


def _type_name(kind: Any) -> str:
    return str(getattr(kind, "name", kind)).rsplit(".", 1)[-1]


def _dtype_name(dtype: Any) -> str:
    name = _type_name(dtype).lower()
    return {"fp32": "float32", "fp16": "float16", "fp64": "float64", "bf16": "bfloat16"}.get(
        name, name
    )


def _parse_json(program: bytes) -> Program:
    document = json.loads(program)
    if document["base_code"]["magic"] != "pir":
        raise ValueError("it lacks PIR's mark")
    found = Program({}, {}, {})
    for op in document["program"]["regions"][0]["blocks"][0]["ops"]:
        kind = op["#"].rsplit(".", 1)[-1]
        if kind == "p":
            found.weights[op["A"][3]] = tuple(op["O"]["TT"]["D"][1])
        elif kind in ("data", "fetch"):
            given = {attribute["N"]: attribute["AT"]["D"] for attribute in op["A"]}
            element, shape = op["O"][0]["TT"]["D"][:2]
            dtype = JSON_ELEMENTS.get(element["#"].rsplit("_", 1)[-1], element["#"])
            slot = Feed(given["name"], tuple(shape), dtype)
            (found.feeds if kind == "data" else found.fetches)[slot.name] = slot
    return found


# --- weights ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class SavedTensor:
    element: int
    shape: tuple[int, ...]
    start: int
    size: int


def _check_weights(path: Path, expected: Shapes) -> int:
    """The size of a file of weights that has these tensors."""
    tensors, size = _tensors_of(path)
    _compare(tensors, expected, repr(str(path)))
    return size


def _tensors_of(path: Path) -> tuple[list[SavedTensor], int]:
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            if size == 0:
                return [], 0
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
                return list(saved_tensors(view, repr(str(path)))), size
    except OSError as error:
        raise _unreadable(path, error) from None


def _compare(tensors: list[SavedTensor], expected: Shapes, where: str) -> None:
    """Weights are saved without names, in the order of their names."""
    if len(tensors) != len(expected):
        raise InferenceModelUnreadable(
            f"{where} holds {len(tensors)} weights, but the program has {len(expected)}."
        )
    for name, tensor in zip(sorted(expected), tensors, strict=True):
        if expected[name] != tensor.shape:
            raise InferenceModelUnreadable(
                f"{where} holds a weight of shape {list(tensor.shape)} where {name!r} of the "
                f"program has {list(expected[name])}."
            )


def saved_tensors(data: Buffer, where: str) -> Iterator[SavedTensor]:
    """Each tensor of a file of weights; an error of ours where the file is not one."""
    position, number = 0, 0
    while position < len(data):
        number += 1
        try:
            tensor = _saved_tensor(data, position)
        except (struct.error, IndexError, ValueError) as error:
            raise InferenceModelUnreadable(
                f"{where} is not a whole file of weights: tensor {number}, at byte {position}: "
                f"{error}."
            ) from None
        yield tensor
        position = tensor.start + tensor.size


def _saved_tensor(data: Buffer, at: int) -> SavedTensor:
    version, levels = struct.unpack_from("<IQ", data, at)
    if version != 0 or levels > 64:
        raise ValueError("no header of a tensor")
    at += 12
    for _ in range(levels):
        (size,) = struct.unpack_from("<Q", data, at)
        at += 8 + size
    version, length = struct.unpack_from("<Ii", data, at)
    at += 8
    if version != 0 or not 0 < length < 4096:
        raise ValueError("no description of a tensor")
    element, shape = _description(bytes(data[at : at + length]))
    at += length
    if element not in _ELEMENTS or any(size < 0 for size in shape):
        raise ValueError(f"element type {element} of shape {list(shape)} is unknown")
    size = _ELEMENTS[element][1]
    for dimension in shape:
        size *= dimension
    if at + size > len(data):
        raise ValueError(f"{at + size - len(data)} bytes are missing")
    return SavedTensor(element, shape, at, size)


def _description(message: bytes) -> tuple[int, tuple[int, ...]]:
    """Element type and shape from the protobuf message before a tensor's values."""
    element, shape, at = -1, [], 0
    while at < len(message):
        tag, at = _varint(message, at)
        if tag == 0x12:  # packed dimensions
            length, at = _varint(message, at)
            end = at + length
            while at < end:
                value, at = _varint(message, at)
                shape.append(value)
        elif tag in (0x08, 0x10):
            value, at = _varint(message, at)
            if tag == 0x08:
                element = value
            else:
                shape.append(value)
        else:
            raise ValueError("no description of a tensor")
    return element, tuple(shape)


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value - (1 << 64) if value >> 63 else value), at


def round_to_half(weights: bytearray, where: str) -> None:
    """Round every float of a file of weights to what half precision can hold, in place."""
    for tensor in list(saved_tensors(weights, where)):
        if tensor.element == _FLOAT32:
            values = np.frombuffer(weights, "<f4", tensor.size // 4, tensor.start)
            with np.errstate(over="ignore"):  # becomes infinite, as on the IPU
                values[:] = values.astype(np.float16)
