"""What is known of one option or category of a configuration."""

from __future__ import annotations

import inspect
from typing import Any

from tensorflow.python.platform import tf_logging as logging

from ._config_types import conforms

NOTHING_SAID = "No description provided."


class AttributeMetadata:
    """Name, type, default, documentation and deprecation of an option or category."""

    def __init__(
        self,
        name: str,
        doc: str = NOTHING_SAID,
        default: Any = None,
        deprecated_msg: str | None = None,
        hint: Any = None,
        type_text: str | None = None,
        support: str | None = None,
    ) -> None:
        self.__doc__ = inspect.cleandoc(doc)
        #: Full name, relative to the root of the configuration.
        self.name = name
        #: The type as text, and as a class where it is one; categories have neither.
        self.type = type_text
        self.actual_type = hint if isinstance(hint, type) else None
        self.default = default
        #: Why the option should no longer be used, or None.
        self.deprecated_msg = deprecated_msg
        #: What softipu does with the option: honours it, or ignores it and why.
        self.support = support
        self._hint = hint

    @property
    def deprecated(self) -> bool:
        return self.deprecated_msg is not None

    @property
    def is_category(self) -> bool:
        return self._hint is None

    @property
    def _depth(self) -> int:
        return self.name.count(".") + 1

    def check_type(self, value: Any) -> None:
        """Raises TypeError when the option cannot take the value."""
        if not conforms(value, self._hint):
            raise TypeError(
                f"Trying to set {self.name} to {value}, but it must be of type {self.type}"
            )

    def warn_if_deprecated(self) -> None:
        if self.deprecated:
            logging.warn(f"{self.name} has been deprecated: {self.deprecated_msg}")

    def documentation(self, first_of_category: bool = False) -> str:
        """The entry in reStructuredText, indented by depth."""
        shown = self.name
        if first_of_category and self._depth > 2:
            # Sphinx takes the beginning of such a name for the class and strips it.
            shown = f"{shown.rsplit('.', 2)[0]}.{shown}"
        lines = [f".. _{self.name}:", f".. py:attribute:: {shown}"]
        if not self.is_category:
            default = f'"{self.default}"' if isinstance(self.default, str) else self.default
            lines += [f"   :type: {self.type}", f"   :value: {default}"]
        lines.append("")
        if self.deprecated:
            lines += ["   .. note::\n", f"      DEPRECATED: {self.deprecated_msg}\n"]
        lines += ["   " + line for line in (self.__doc__ or "").split("\n")]
        if self.support:
            lines += ["", f"   On a software IPU: {self.support}."]
        indent = "   " * (self._depth + 1)
        return "\n".join(indent + line for line in lines) + "\n\n"
