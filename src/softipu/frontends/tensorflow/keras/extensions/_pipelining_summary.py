"""The table that shows users which layer is in which pipeline stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Table:
    """Lines of one length; `widths` says where columns end, as fractions of that."""

    line_length: int
    widths: Sequence[float]

    def head(self, model: str, headers: Sequence[str]) -> list[str]:
        return [f'Model: "{model}"', self._line("_"), self._row(headers), self._line("=")]

    def of_assignments(
        self, assignments: list[Any], rows_of: Callable[[Any], list[list[str]]]
    ) -> list[str]:
        """The rows of all layers, those of nested models under a heading of their own."""
        lines = []
        for assignment, following in zip(assignments, [*assignments[1:], None], strict=True):
            if assignment.is_nested_model:
                lines += [f'Nested Model: "{assignment.nested_model.name}"', self._line("-")]
                lines += self.of_assignments(assignment.pipeline_stage_assignments, rows_of)
            else:
                ends_block = following is None or following.is_nested_model
                lines += [self._row(fields) for fields in rows_of(assignment)]
                lines.append(self._line("=" if ends_block else "_"))
        return lines

    def _line(self, character: str) -> str:
        return character * self.line_length

    def _row(self, fields: Sequence[str]) -> str:
        row = ""
        for field, width in zip(fields, self.widths, strict=True):
            end = int(self.line_length * width)
            row = f"{row[:-1]} {field}"[:end] if row else field[:end]
            row = row.ljust(end)
        return row
