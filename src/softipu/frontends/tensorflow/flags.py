"""TF_POPLAR_FLAGS: the table of flags, and what the variable says at the moment.

The variable is read whenever a flag matters, so that a program may still set it after its imports.
"""

from __future__ import annotations

import difflib
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from softipu import settings
from softipu.errors import InvalidPoplarFlags

from .ipu_options import HONOURED

VARIABLE = "TF_POPLAR_FLAGS"
SYNTHETIC_CATEGORIES = ("seed", "infeed", "outfeed", "hostembedding", "parameters")
_NO_COMPILER = "ignored: no Poplar program is compiled"
_DATA_GOES = "ignored: by all but IPUInfeedQueue and IPUOutfeedQueue; other data is transferred"
_NOT_NEEDED = "ignored: nothing here depends on it"


def _flag(text: str) -> bool:
    lowered = text.lower()
    if lowered in ("", "true", "1"):
        return True
    if lowered in ("false", "0"):
        return False
    raise ValueError("expected true or false")


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("expected a whole number") from None


def _categories(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in SYNTHETIC_CATEGORIES:
            raise ValueError(
                f"Using an unknown synthetic data category {name!r}: valid are "
                f"{', '.join(SYNTHETIC_CATEGORIES)}"
            )
    return names


@dataclass(frozen=True)
class Flag:
    name: str
    parse: Callable[[str], Any]
    default: Any
    meaning: str
    #: HONOURED, or "ignored: why".
    support: str

    @property
    def takes_value(self) -> bool:
        return self.parse is not _flag


FLAGS = {
    row.name: row
    for row in (
        Flag("help", _flag, False, "Print this list once.", HONOURED),
        Flag("use_ipu_model", _flag, False,
             "Run on the IPU model: no virtual IPU is leased.", HONOURED),
        Flag("use_synthetic_data", _flag, False,
             "Transfer no data between host and IPUs, for measurements.", _DATA_GOES),
        Flag("synthetic_data_categories", _categories, (),
             "Transfer no data of these kinds, separated by commas: seed, infeed, outfeed, "
             "hostembedding, parameters.", _DATA_GOES),
        Flag("synthetic_data_initializer", str, "",
             "What synthetic inputs hold: random, uniform, normal or a number.", _DATA_GOES),
        Flag("executable_cache_path", str, "",
             "Directory in which code that XLA compiled is kept and found again; to be set before "
             "TensorFlow is imported.", HONOURED),
        Flag("use_on_demand", _flag, False,
             "Attach IPUs when a program first runs, whatever the configuration says.", HONOURED),
        Flag("on_demand_device_poll_time", _number, 1000,
             "How often busy IPUs are looked at again, in milliseconds; at least 100.",
             "ignored: IPUs that become free are noticed at once"),
        Flag("on_demand_device_timeout", _number, 3_600_000,
             "How long to wait for busy IPUs, in milliseconds.", HONOURED),
        Flag("log_cycle_count", _number, -1,
             "The tile whose cycles are logged after each execution; negative: none. They are "
             "modelled, and the same for every tile.", HONOURED),
        Flag("while_loop_brute_force_max_trip_count", _number, 128,
             "Up to how many iterations the length of a loop is found by trying.", _NO_COMPILER),
        Flag("max_compilation_threads", _number, -1,
             "Threads that compile; negative: chosen for you.", _NO_COMPILER),
        Flag("max_infeed_threads", _number, -1,
             "Threads of each infeed; negative: chosen for you.", _NOT_NEEDED),
        Flag("save_vertex_graph", str, "",
             "Directory for Poplar's vertex graphs.", "ignored: it has no effect upstream either"),
        Flag("dump_schedule_as_dot", _flag, False, "Print the order of operations.", _NO_COMPILER),
        Flag("tensor_map_file_path", str, "",
             "Directory for the tile mapping of tensors.", "ignored: tensors are not on tiles"),
        Flag("null_data_feed", _flag, False,
             "Infeeds give garbage instead of data, for measurements.",
             "ignored: infeeds give the data"),
        Flag("fallback_scheduler", _flag, False,
             "Order operations as stock XLA does.", _NO_COMPILER),
        Flag("show_progress_bar", str, "auto",
             "Show progress of compilation: true, false or auto.", _NO_COMPILER),
        Flag("ipu_model_tiles", _number, -1,
             "Tiles of a model IPU.", "ignored: work is not placed on tiles"),
        Flag("sync_replica_start", _flag, False,
             "Replicas wait for each other before they begin.", _NOT_NEEDED),
        Flag("enable_hlo_verifier", _flag, False,
             "Verify the graph around every pass of the compiler.", _NO_COMPILER),
        Flag("disable_poplar_version_check", _flag, False,
             "Do not compare versions of Poplar.", _NOT_NEEDED),
        Flag("allow_nans", _flag, False, "Allow constants that are not numbers.", _NOT_NEEDED),
    )
}  # fmt: skip


def get() -> SimpleNamespace:
    """The value of every flag, by name."""
    values = parse(settings.get(VARIABLE) or "")
    if values.help:
        _print_usage()
    _warn_of_ignored(values)
    return values


@lru_cache(maxsize=64)
def parse(text: str) -> SimpleNamespace:
    """The flags in a text, or in the file that it names when it does not begin with a dash."""
    stripped = text.strip()
    if stripped and not stripped.startswith("-"):
        stripped = _contents(stripped)
    values = {name: flag.default for name, flag in FLAGS.items()}
    try:
        words = shlex.split(stripped)
    except ValueError as error:
        raise InvalidPoplarFlags(f"{VARIABLE}={text!r}: {error}.") from None
    for word in words:
        name, value = _parse_word(word)
        values[name] = value
    synthetic = values["use_synthetic_data"] or values["synthetic_data_categories"]
    if values["synthetic_data_initializer"] and not synthetic:
        raise InvalidPoplarFlags(
            'The flag "synthetic_data_initializer" can only be used in combination with '
            '"use_synthetic_data" or "synthetic_data_categories".'
        )
    return SimpleNamespace(**values)


def _contents(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise InvalidPoplarFlags(
            f"{VARIABLE}={path!r}: neither flags, which begin with --, nor a file ({error})."
        ) from None


def _parse_word(word: str) -> tuple[str, Any]:
    name, equals, text = word.lstrip("-").partition("=")
    flag = FLAGS.get(name) if word.startswith("-") else None
    if flag is None:
        close = difflib.get_close_matches(name, FLAGS)
        hint = f" Did you mean --{close[0]}?" if close else ""
        raise InvalidPoplarFlags(f"Unknown flags in {VARIABLE}: {word}.{hint}")
    if flag.takes_value and not equals:
        raise InvalidPoplarFlags(f"{VARIABLE}: --{name} needs a value: --{name}=VALUE.")
    try:
        return name, flag.parse(text)
    except ValueError as error:
        raise InvalidPoplarFlags(f"{VARIABLE}: {word}: {error}.") from None


def synthetic(category: str) -> bool:
    """Whether data of that kind (one of SYNTHETIC_CATEGORIES) are not to be transferred."""
    values = get()
    return bool(values.use_synthetic_data or category in values.synthetic_data_categories)


def usage() -> str:
    lines = [f"Usage for {VARIABLE} is:"]
    for flag in FLAGS.values():
        value = "=VALUE" if flag.takes_value else ""
        note = "" if flag.support == HONOURED else f" ({flag.support})"
        lines.append(f"\t--{flag.name}{value}: {flag.meaning}{note}")
    return "\n".join(lines)


_said: set[str] = set()


def _print_usage() -> None:
    if "help" not in _said:
        _said.add("help")
        print(usage(), file=sys.stderr)


def _warn_of_ignored(values: SimpleNamespace) -> None:
    for name, value in vars(values).items():
        flag = FLAGS[name]
        if value == flag.default or flag.support == HONOURED or name in _said:
            continue
        _said.add(name)
        from tensorflow.python.platform import tf_logging

        reason = flag.support.removeprefix("ignored: ")
        tf_logging.warning(f"{VARIABLE}: --{name} has no effect on a software IPU: {reason}.")
