"""Files with data for Graphcore's run time of compiled programs, which do not exist here."""

from __future__ import annotations

from typing import Any, NoReturn

from softipu.errors import PoplarFilesUnsupported


def _refuse(name: str) -> NoReturn:
    raise PoplarFilesUnsupported(
        f"ipu.dataset_extractor.{name} writes or reads files for Poplar programs."
    )


def dataset_extractor(*_args: Any, **_kwargs: Any) -> NoReturn:
    _refuse("dataset_extractor")


def get_variable_handles(*_args: Any, **_kwargs: Any) -> NoReturn:
    _refuse("get_variable_handles")


def export_variables(*_args: Any, **_kwargs: Any) -> NoReturn:
    _refuse("export_variables")


def import_variables(*_args: Any, **_kwargs: Any) -> NoReturn:
    _refuse("import_variables")
