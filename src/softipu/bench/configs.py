"""Named configurations of the harness, from a YAML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import ConfigFileUnusable, SoftIPUError, UnknownConfig
from .options import FIELDS, Options, check_value, checked, nearest
from .vision import package

FILE = Path(__file__).with_name("configs.yml")


def for_config(name: str, file: str | Path = FILE, **others: Any) -> Options:
    """The options of a configuration; `others` are fields of `Options` that replace its own."""
    return checked(Options(**{**load(name, file), **others}))


def names(file: str | Path = FILE) -> list[str]:
    """The configurations that a user may choose."""
    return [name for name in _read(file) if not name.startswith(".")]


def load(name: str, file: str | Path = FILE) -> dict[str, Any]:
    """The fields that a configuration sets, each checked."""
    found = _read(file)
    if name not in found or name.startswith("."):
        known = [other for other in found if not other.startswith(".")]
        raise UnknownConfig(
            f"There is no configuration {name!r} in {file}.",
            remedy=f"{nearest(name, known)}Configurations: {', '.join(known)}.",
        )
    config = found[name]
    if not isinstance(config, dict):
        raise ConfigFileUnusable(f"{name} in {file} is not a mapping.")
    for key, value in config.items():
        _check(name, file, key, value)
    lists = {key: tuple(value) for key, value in config.items() if isinstance(value, list)}
    return config | lists


def _check(name: str, file: str | Path, key: Any, value: Any) -> None:
    if key not in FIELDS:
        raise ConfigFileUnusable(
            f"{name} in {file} sets {key!r}, which is no option.",
            remedy=f"{nearest(str(key), FIELDS)}`softipu bench run --help` lists the options.",
        )
    try:
        check_value(key, value, FIELDS[key].metadata)
    except SoftIPUError as error:
        raise ConfigFileUnusable(f"{name} in {file}: {error.what}", remedy=error.remedy) from error


def _read(file: str | Path) -> dict[str, Any]:
    yaml = package("yaml")
    try:
        with open(file, encoding="utf-8") as stream:
            found = yaml.safe_load(stream)
    except OSError as error:
        raise ConfigFileUnusable(f"{file} can't be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigFileUnusable(f"{file} is not YAML: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise ConfigFileUnusable(f"{file} is not a mapping from names to options.")
    return found
