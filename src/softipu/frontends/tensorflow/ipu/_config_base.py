"""A tree of typed options: attributes that exist from the start, checked when they are set."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, TypeVar

from tensorflow.python.platform import tf_logging as logging

from softipu.frontends.tensorflow.ipu_options import type_name

from ._config_metadata import AttributeMetadata
from ._config_source import Declaration, declarations, evaluate
from ._config_types import demand_clear

_Class = TypeVar("_Class", bound=type)


class UnknownAttribute(ValueError, AttributeError):
    """A name that the configuration does not have; upstream's programs expect ValueError."""


def deprecate_config_attributes(
    to_deprecate: Mapping[str, str] | list[tuple[str, str]],
) -> Callable[[_Class], _Class]:
    """Class decorator: options or categories that should no longer be used, and why."""

    def decorate(owner: _Class) -> _Class:
        own = owner.__dict__.get("_deprecations", {})
        owner._deprecations = {**own, **dict(to_deprecate)}  # type: ignore[attr-defined]
        return owner

    return decorate


def deprecate_config_attribute(name: str, msg: str) -> Callable[[_Class], _Class]:
    """Class decorator: one option or category that should no longer be used, and why."""
    return deprecate_config_attributes({name: msg})


class _ConfigBase:
    """A category of options.

    A subclass assigns its options and sub-categories in `__init__`; the root of the tree ends its
    own with `_finalize_base_config()`, after which only values can change.
    """

    _deprecations: Mapping[str, str] = {}
    #: Metadata by attribute, in order; set on each instance.
    _user_attributes: dict[str, AttributeMetadata]
    _complete: bool

    def _declare(self, metadata: AttributeMetadata, value: Any) -> None:
        self.__dict__.setdefault("_user_attributes", {})[metadata.name] = metadata
        self.__dict__[metadata.name] = value

    def _declare_from_source(self, name: str, value: Any) -> None:
        deprecated = type(self).__dict__.get("_deprecations", {}).get(name)
        declared = declarations(type(self)).get(name, Declaration())
        if isinstance(value, _ConfigBase):
            self._declare(AttributeMetadata(name, declared.doc, None, deprecated), value)
            return
        if declared.annotation is None:
            hint, text = type(value), type_name(type(value))
        else:
            hint, text = evaluate(type(self), declared.annotation), declared.annotation
        demand_clear(hint)
        metadata = AttributeMetadata(name, declared.doc, value, deprecated, hint, text)
        self._declare(metadata, value)

    def _finalize_base_config(self) -> None:
        """Gives the attributes their full names and the class its documentation."""
        documentation: list[str] = []
        self._finalize("", None, documentation)
        type(self).__doc__ = "".join(documentation)

    def _finalize(self, prefix: str, deprecated: str | None, documentation: list[str]) -> None:
        self.__dict__.setdefault("_user_attributes", {})
        self.__dict__["_complete"] = True
        first = True
        for name, metadata in self._user_attributes.items():
            metadata.name = prefix + name
            if metadata.deprecated_msg is None:
                metadata.deprecated_msg = deprecated
            if not name.startswith("_"):
                documentation.append(metadata.documentation(first))
            first = False
            if metadata.is_category:
                below = f"{metadata.name}."
                self.__dict__[name]._finalize(below, metadata.deprecated_msg, documentation)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_user_attributes" not in self.__dict__:
            raise AttributeError(name)
        close = difflib.get_close_matches(name, self._user_attributes)
        hint = f"Did you mean '{self._get_full_name(close[0])}'?" if close else ""
        raise UnknownAttribute(f"'{name}' is not a valid attribute of this config. {hint}")

    def __setattr__(self, name: str, value: Any) -> None:
        metadata = self.__dict__.get("_user_attributes", {}).get(name)
        if metadata is not None:
            metadata.warn_if_deprecated()
            if metadata.is_category:
                raise TypeError(f"{metadata.name} is a category and cannot be assigned to.")
            metadata.check_type(value)
            self.__dict__[name] = value
        elif self.__dict__.get("_complete"):
            self.__getattr__(name)  # raises, with a suggestion
        else:
            self._declare_from_source(name, value)

    def _get_full_name(self, name: str) -> str:
        return self._user_attributes[name].name

    def _options(self) -> Iterator[tuple[_ConfigBase, str, AttributeMetadata]]:
        """Every option below this category: where it is, its short name, its metadata."""
        for name, metadata in self._user_attributes.items():
            if metadata.is_category:
                yield from self.__dict__[name]._options()
            else:
                yield self, name, metadata

    def _to_protobuf(self, pb: Any) -> None:
        """Lets every category below write its part; subclasses that have one extend this."""
        for name, metadata in self._user_attributes.items():
            if metadata.is_category:
                self.__dict__[name]._to_protobuf(pb)

    def get_attribute_metadata(self, attr: str) -> AttributeMetadata:
        """The metadata of the option or category with that name, relative to this category."""
        category: Any = self
        *path, last = attr.split(".")
        try:
            for name in path:
                category = getattr(category, name)
            getattr(category, last)
            return category._user_attributes[last]
        except (AttributeError, ValueError, KeyError) as error:
            raise ValueError(f"Could not get attribute metadata for '{attr}': {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """The options by full name; enumerations as numbers."""
        values = {metadata.name: owner.__dict__[name] for owner, name, metadata in self._options()}
        return {
            name: value.value if isinstance(value, Enum) else value
            for name, value in values.items()
        }

    def from_dict(self, dct: Mapping[str, Any]) -> None:
        """Takes the options that `to_dict` gave; those that are missing keep their values."""
        for owner, name, metadata in self._options():
            if metadata.name not in dct:
                logging.warn(
                    f"{metadata.name} didn't have a value: the existing value will be retained"
                )
                continue
            value, kind = dct[metadata.name], metadata.actual_type
            if kind is not None and issubclass(kind, Enum):
                value = kind(value)
            if value != owner.__dict__[name]:
                setattr(owner, name, value)

    def to_json(self) -> str:
        """The same as `to_dict`, as text."""
        return json.dumps(self.to_dict())

    def from_json(self, json_cfg: str) -> None:
        """Takes the options that `to_json` gave."""
        self.from_dict(json.loads(json_cfg))

    def __str__(self) -> str:
        values = ((metadata, owner.__dict__[name]) for owner, name, metadata in self._options())
        return os.linesep.join(
            f"{metadata.name} = {value if isinstance(value, Enum) else repr(value)}"
            for metadata, value in values
        )

    def __repr__(self) -> str:
        lines = [f"  {line}" for line in str(self).split(os.linesep)]
        return os.linesep.join([f"{type(self).__name__}:", *lines])
