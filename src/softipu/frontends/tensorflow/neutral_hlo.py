"""HLO as data: the text that XLA prints, read strictly.

Only what a machine model asks for is kept: shapes, opcodes, operands, attributes, and the
TensorFlow operator that each instruction came from. A line that is not understood is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from softipu.errors import HloUnreadable

#: The element type on an IPU; tokens and the like have none and take no memory.
ELEMENT_TYPES: Mapping[str, str] = {
    "f32": "float32", "f64": "float32", "f16": "float16", "bf16": "float16", "s64": "int32",
    "s32": "int32", "s16": "int16", "s8": "int8", "s4": "int8", "u64": "uint32", "u32": "uint32",
    "u16": "uint16", "u8": "uint8", "u4": "uint8", "pred": "bool", "c64": "float32",
    "c128": "float32",
}  # fmt: skip

_COMMENT = re.compile(r"/\*.*?\*/")
_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_LINE = re.compile(r"^(ROOT )?%?([\w.\-]+) = (.*)$")
_ARRAY = re.compile(r"^(\w+)\[([\d,<=? ]*)\]")
_NAME = re.compile(r"%?([A-Za-z_][\w.\-]*)$")
_QUOTED = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ALIAS = re.compile(r"\{(\d*)\}: \((\d+), \{\}")
_OPENING, _CLOSING = "([{", ")]}"


@dataclass(frozen=True)
class Shape:
    """An array, or a tuple of shapes."""

    dtype: str = ""
    sizes: tuple[int, ...] = ()
    parts: tuple[Shape, ...] | None = None

    @property
    def elements(self) -> int:
        count = 1
        for size in self.sizes:
            count *= size
        return count if self.dtype else 0


@dataclass
class Instruction:
    name: str
    opcode: str
    shape: Shape
    operands: tuple[str, ...]
    attributes: Mapping[str, str] = field(default_factory=dict)
    #: What stands between the parentheses of a constant or a parameter.
    literal: str = ""
    #: TensorFlow's operator and its name, such as `Conv2D` and `model/first/Conv2D`.
    op_type: str = ""
    op_name: str = ""

    def numbers(self, name: str) -> tuple[int, ...]:
        """An attribute such as `dimensions={0,2}`."""
        text = self.attributes.get(name, "{}").strip("{}")
        return tuple(int(number) for number in text.split(",") if number.strip())

    def called(self, name: str) -> str:
        """The computation that an attribute such as `to_apply=%add` names."""
        return self.attributes[name].lstrip("%")


@dataclass
class Computation:
    name: str
    instructions: list[Instruction] = field(default_factory=list)
    root: str = ""

    def by_name(self) -> dict[str, Instruction]:
        return {instruction.name: instruction for instruction in self.instructions}

    def parameters(self) -> list[Instruction]:
        found = [i for i in self.instructions if i.opcode == "parameter"]
        return sorted(found, key=lambda instruction: int(instruction.literal))


@dataclass
class Module:
    name: str
    computations: dict[str, Computation]
    entry: Computation
    #: Which output takes the place of which parameter.
    aliases: dict[int, int]


def parse(text: str) -> Module:
    """The module that `text` describes."""
    lines = [_COMMENT.sub("", line).strip() for line in text.splitlines()]
    lines = [line for line in lines if line]
    if not lines or not lines[0].startswith("HloModule "):
        raise HloUnreadable("The text does not begin with `HloModule`.")
    computations: dict[str, Computation] = {}
    entry: Computation | None = None
    current: Computation | None = None
    for number, line in enumerate(lines[1:], start=2):
        if current is None:
            header = _HEADER.match(line)
            if header is None:
                raise HloUnreadable(f"Line {number} begins no computation: {_short(line)}")
            current = computations[header[2]] = Computation(header[2])
            entry = current if header[1] else entry
        elif line == "}":
            _close(current, number)
            current = None
        else:
            _read(current, line, number)
    if current is not None or entry is None:
        raise HloUnreadable("The text ends in the middle of a module.")
    name = lines[0].split()[1].rstrip(",")
    return Module(name, computations, entry, _aliases(lines[0]))


def _close(computation: Computation, number: int) -> None:
    if not computation.root:
        raise HloUnreadable(f"{computation.name}, which ends in line {number}, has no ROOT.")
    known: set[str] = set()
    for instruction in computation.instructions:
        for operand in instruction.operands:
            if operand not in known:
                raise HloUnreadable(f"{instruction.name} reads {operand} before it exists.")
        known.add(instruction.name)


def _read(computation: Computation, line: str, number: int) -> None:
    match = _LINE.match(line)
    if match is None:
        raise HloUnreadable(f"Line {number} is no instruction: {_short(line)}")
    shape_text, rest = _first_word(match[3], number)
    opening = rest.find("(")
    if opening < 1:
        raise HloUnreadable(f"Line {number} has no operands: {_short(line)}")
    inside, after = _balanced(rest[opening:], number)
    opcode = rest[:opening].strip()
    attributes = dict(_attribute(item) for item in split(after) if "=" in item)
    metadata = dict(_QUOTED.findall(attributes.get("metadata", "")))
    plain = opcode in ("constant", "parameter", "iota")
    operands = () if plain else tuple(_operand(item, number) for item in split(inside))
    computation.instructions.append(
        Instruction(
            match[2], opcode, shape_of(shape_text, number), operands, attributes,
            inside if plain else "", metadata.get("op_type", ""), metadata.get("op_name", ""),
        )
    )  # fmt: skip
    if match[1]:
        computation.root = match[2]


def shape_of(text: str, number: int = 0) -> Shape:
    """`f32[2,3]{1,0}` or `(f32[], s32[4])`."""
    text = text.strip()
    if text.startswith("("):
        inside, _ = _balanced(text, number)
        return Shape(parts=tuple(shape_of(item, number) for item in split(inside)))
    match = _ARRAY.match(text)
    if match is None:
        raise HloUnreadable(f"Line {number}: {_short(text)} is no shape.")
    kind, sizes = match[1], match[2]
    if "?" in sizes:
        raise HloUnreadable(f"Line {number}: the shape {text} is not known in numbers.")
    dtype = "float8" if kind.startswith("f8") else ELEMENT_TYPES.get(kind, "")
    # Of what has only a bound (rows without repetition) an IPU has to hold as much as that.
    numbers = tuple(int(size.strip().removeprefix("<=")) for size in sizes.split(",") if size)
    return Shape(dtype, (*numbers, 2) if kind in ("c64", "c128") else numbers)


def split(text: str) -> list[str]:
    """Items between commas that are in no brackets and no quotes."""
    items, start = [], 0
    for position, letter, depth in _unquoted(text):
        if letter == "," and depth == 0:
            items.append(text[start:position].strip())
            start = position + 1
    return [item for item in (*items, text[start:].strip()) if item]


def _balanced(text: str, number: int) -> tuple[str, str]:
    """What is inside the first bracket, and what comes after it."""
    for position, letter, depth in _unquoted(text):
        if letter in _CLOSING and depth == 0:
            return text[1:position], text[position + 1 :]
    raise HloUnreadable(f"Line {number} has a bracket without its other half: {_short(text)}")


def _unquoted(text: str) -> Iterator[tuple[int, str, int]]:
    """Letters outside quotes, each with its place and how many brackets are open after it."""
    depth, quoted = 0, False
    for position, letter in enumerate(text):
        if letter == '"' and text[position - 1 : position] != "\\":
            quoted = not quoted
        if quoted:
            continue
        depth += (letter in _OPENING) - (letter in _CLOSING)
        yield position, letter, depth


def _first_word(text: str, number: int) -> tuple[str, str]:
    """A shape, which has blanks only inside its brackets, and the rest."""
    if text.startswith("("):
        inside, after = _balanced(text, number)
        return f"({inside})", after.strip()
    word, _, rest = text.partition(" ")
    return word, rest


def _attribute(item: str) -> tuple[str, str]:
    name, _, value = item.partition("=")
    return name.strip(), value.strip()


def _operand(item: str, number: int) -> str:
    match = _NAME.search(item)
    if match is None:
        raise HloUnreadable(f"Line {number}: {_short(item)} is no operand.")
    return match[1]


def _aliases(line: str) -> dict[int, int]:
    _, _, rest = line.partition("input_output_alias=")
    if not rest:
        return {}
    inside, _ = _balanced(rest, 1)
    return {int(out or 0): int(parameter) for out, parameter in _ALIAS.findall(inside)}


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
