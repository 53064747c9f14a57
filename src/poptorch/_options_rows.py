"""What a row of the option tables is, and how a setter is made from it.

A row says how an option is called, what it takes, where it is kept and what it means; signature,
checks, docstring, warnings and documentation all follow from it.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from ._logging import logger, warnOnce

Support = Literal["used", "modelled", "ignored, warned once"]
Where = Literal["values", "popart", "private"]
Owner = TypeVar("Owner", bound=type)

#: An option that is not stored until somebody sets it.
UNSET: Any = type("Unset", (), {"__repr__": lambda _: "not set"})()
_REQUIRED = inspect.Parameter.empty


def _as_it_is(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Kind:
    """What an argument may be. `words` completes "must be …"."""

    words: str
    types: tuple[type, ...] = (object,)
    within: Callable[[Any], bool] = lambda _: True
    stored: Callable[[Any], Any] = _as_it_is
    #: PopTorch's own exception and wording, where it has one for wrong types or values.
    error: type[Exception] | None = None
    message: str = ""

    def check(self, option: str, value: Any) -> Any:
        """The value as it is stored; AssertionError for a wrong type, ValueError out of range."""
        right_type = isinstance(value, self.types)
        if right_type and self.within(value):
            return self.stored(value)
        if self.message:
            raise (self.error or AssertionError)(self.message)
        if not right_type:
            expected = " or ".join(kind.__name__ for kind in self.types)
            raise AssertionError(
                f"Unexpected type {type(value)} for option {option}. Expected {expected}: "
                f"it must be {self.words}."
            )
        raise (self.error or ValueError)(f"{option} must be {self.words}, not {value!r}.")

    @property
    def annotation(self) -> Any:
        if self.types == (object,):
            return Any
        shape: Any = self.types[0]
        for other in self.types[1:]:
            shape = shape | (None if other is type(None) else other)
        return shape


flag = Kind("True or False", (bool,))
#: Where PopTorch asks for truth only, and programs pass numbers.
truth = Kind("True or False, or a number", (bool, int), stored=bool)
text = Kind("a text", (str,))
anything = Kind("any value")
mapping = Kind("a dictionary", (dict,))
names = Kind(
    "a list of texts",
    (list, tuple),
    lambda entries: all(isinstance(entry, str) for entry in entries),
    list,
)


def whole(least: int | None = None, most: int | None = None) -> Kind:
    """A whole number in a range."""
    words = "a whole number"
    if least is not None:
        words += f" from {least}"
    if most is not None:
        words += f" to {most}"
    return Kind(
        words,
        (int,),
        lambda n: (least is None or n >= least) and (most is None or n <= most),
    )


def one_of(choices: type[enum.Enum], *, as_value: bool = False) -> Kind:
    """A member of a PopTorch enum; PopTorch keeps some of them as plain numbers (`as_value`)."""
    words = f"a member of poptorch.{choices.__name__}"
    return Kind(words, (choices,), stored=(lambda m: m.value) if as_value else _as_it_is)


def optional(kind: Kind) -> Kind:
    """The same, or None."""
    return Kind(
        f"{kind.words}, or None",
        (*kind.types, type(None)),
        lambda value: value is None or kind.within(value),
        lambda value: None if value is None else kind.stored(value),
        kind.error,
        kind.message,
    )


@dataclass(frozen=True)
class Param:
    """A parameter of a setter."""

    name: str
    kind: Kind
    default: Any = _REQUIRED
    variadic: bool = False

    def signature(self) -> inspect.Parameter:
        if self.variadic:
            how = inspect.Parameter.VAR_POSITIONAL
            return inspect.Parameter(self.name, how, annotation=self.kind.annotation)
        return inspect.Parameter(
            self.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=self.default,
            annotation=self.kind.annotation,
        )

    def check(self, value: Any) -> Any:
        if self.variadic:
            return [self.kind.check(self.name, each) for each in value]
        return self.kind.check(self.name, value)


@dataclass(frozen=True)
class Row:
    """One option: `group.setter(params)`, kept under `key`, `default` while nobody sets it.

    A class as default means a new instance of it. `also` are further values that the option keeps.
    `write(owner, **arguments)` is for what is more than storing the only argument. `deprecated` is
    PopTorch's own explanation of why the call should go.
    """

    group: str
    setter: str
    params: tuple[Param, ...]
    meaning: str
    support: Support
    key: str = ""
    default: Any = UNSET
    where: Where = "values"
    also: dict[str, Any] = field(default_factory=dict)
    write: Callable[..., None] | None = None
    deprecated: str = ""

    @property
    def name(self) -> str:
        """As users write it: `deviceIterations`, `Training.gradientAccumulation`."""
        return self.setter if self.group == "Options" else f"{self.group}.{self.setter}"

    @property
    def type(self) -> str:
        """What it takes, in words."""
        return "; ".join(
            f"{'*' * param.variadic}{param.name}: {param.kind.words}" for param in self.params
        )

    def initial(self) -> dict[str, Any]:
        """What its group holds before anybody sets it (own copies of lists and dictionaries)."""
        own = {self.key: self.default} if self.key and self.default is not UNSET else {}
        return {key: _fresh(value) for key, value in (own | self.also).items()}

    def to_json(self) -> dict[str, str]:
        """The row as plain text, for documentation."""
        return {
            "name": self.name,
            "type": self.type,
            "default": _shown(self.default),
            "meaning": self.meaning,
            "support": self.support,
        }

    def document(self) -> str:
        lines = [self.meaning, ""]
        lines += [f":param {p.name}: {p.kind.words}" for p in self.params]
        if self.key:
            lines.append(f"Default: {_shown(self.default)}.")
        lines.append(f"On a software IPU: {self.support}.")
        return "\n".join(lines)

    def apply(self, owner: Any, arguments: dict[str, Any]) -> None:
        """Store the (checked) arguments, and say so if that has no effect here."""
        if self.deprecated:
            logger.warning("[Deprecated] Do not call options.%s(): %s", self.name, self.deprecated)
        elif self.support == "ignored, warned once":
            # Compiling names ignored PopART options too; one of the two warnings is enough.
            once = f"popart {self.key}" if self.where == "popart" else self.name
            warnOnce(once, "Options.%s has no effect on a software IPU.", self.name)
        if self.write is not None:
            self.write(owner, **arguments)
        elif self.key:
            (value,) = arguments.values()
            _WRITERS[self.where](owner, self.key, value)


def _fresh(value: Any) -> Any:
    if isinstance(value, type):
        return value()
    return value.copy() if isinstance(value, dict | list) else value


def _shown(value: Any) -> str:
    if isinstance(value, type):
        return f"{value.__name__}()"
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    return repr(value)


_WRITERS: dict[str, Callable[[Any, str, Any], None]] = {
    "values": lambda owner, key, value: owner._values.__setitem__(key, value),
    "popart": lambda owner, key, value: owner._popart.set(key, value),
    "private": lambda owner, key, value: setattr(owner, key, value),
}


def _setter(row: Row, owner: type) -> Callable[..., Any]:
    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [this, *(param.signature() for param in row.params)]
    signature = inspect.Signature(parameters, return_annotation=owner.__name__)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.checkIsFrozen()
        try:
            bound = signature.bind(self, *args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{row.name}(): {error}") from None
        bound.apply_defaults()
        row.apply(self, {p.name: p.check(bound.arguments[p.name]) for p in row.params})
        return self

    method.__name__ = row.setter
    method.__qualname__ = f"{owner.__qualname__}.{row.setter}"
    method.__module__ = owner.__module__
    method.__doc__ = row.document()
    method.__dict__["__signature__"] = signature
    return method


def with_setters(rows: Iterable[Row]) -> Callable[[Owner], Owner]:
    """Class decorator: give the class a method for each row, and the kinds of its values."""
    rows = tuple(rows)

    def install(owner: Owner) -> Owner:
        for row in rows:
            setattr(owner, row.setter, _setter(row, owner))
        # Stored values can also be set by name; what setters convert on the way in, by type only.
        kinds = {
            row.key: row.params[0].kind
            for row in rows
            if row.key
            and row.where == "values"
            and row.write is None
            and row.params[0].kind.stored is _as_it_is
        }
        owner._rows = rows  # type: ignore[attr-defined]
        owner._kinds = kinds  # type: ignore[attr-defined]
        return owner

    return install
