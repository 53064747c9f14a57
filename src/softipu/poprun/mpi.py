"""Arguments for mpirun, which poprun's users pass on: honoured, ignored with a note, or refused.

No MPI is involved. One table says for each argument what becomes of it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..errors import MpiArgumentRefused

HONOURED = "honoured"
IGNORED = "ignored with a note"
REFUSED = "an error"


@dataclass
class MpiArguments:
    """What remains of the arguments, in poprun's terms."""

    variables: list[tuple[str, str | None]] = field(default_factory=list)  #: None: as it is here
    tag_output: bool = False
    timestamps: bool = False
    bind_to_numa: bool | None = None
    interfaces: list[str] = field(default_factory=list)
    remote_shell: list[str] | None = None
    remote_shell_arguments: list[str] = field(default_factory=list)
    prefix: str | None = None
    directory: str | None = None
    output_directory: str | None = None
    timeout: float | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Argument:
    names: tuple[str, ...]
    values: int
    fate: str
    meaning: str
    single: bool = False  #: also for single instances
    apply: Callable[[MpiArguments, Sequence[str]], None] | None = None


def _variable(found: MpiArguments, values: Sequence[str]) -> None:
    name, equals, value = values[0].partition("=")
    if not name or not name.isprintable() or "\0" in value:
        raise MpiArgumentRefused(f"-x {values[0]!a} names no variable.")
    found.variables.append((name, value if equals else None))


def _tags(found: MpiArguments, values: Sequence[str]) -> None:
    found.tag_output = True


def _timestamps(found: MpiArguments, values: Sequence[str]) -> None:
    found.timestamps = True


def _bind(found: MpiArguments, values: Sequence[str]) -> None:
    where = values[0].partition(":")[0]
    if where == "none":
        found.bind_to_numa = False
    elif where in ("numa", "socket", "package"):
        found.bind_to_numa = True
    elif where in ("core", "hwthread", "slot", "board", "l1cache", "l2cache", "l3cache"):
        found.notes.append(f"--bind-to {where}: instances are not bound to less than a NUMA node")
    else:
        raise MpiArgumentRefused(f"--bind-to {where!a}: there is nothing of that name to bind to.")


def _prefix(found: MpiArguments, values: Sequence[str]) -> None:
    found.prefix = values[0]


def _directory(found: MpiArguments, values: Sequence[str]) -> None:
    found.directory = values[0]


def _output_directory(found: MpiArguments, values: Sequence[str]) -> None:
    found.output_directory = values[0]


def _timeout(found: MpiArguments, values: Sequence[str]) -> None:
    try:
        found.timeout = float(values[0])
    except ValueError:
        found.timeout = -1.0
    if not 0 < found.timeout < 1e9:
        raise MpiArgumentRefused(f"--timeout {values[0]!a} is not a number of seconds above 0.")


def _mca(found: MpiArguments, values: Sequence[str]) -> None:
    key, value = values
    if key in ("btl_tcp_if_include", "oob_tcp_if_include"):
        if key == "btl_tcp_if_include" or not found.interfaces:
            found.interfaces = [part for part in value.split(",") if part]
    elif key == "plm_rsh_agent":
        found.remote_shell = shlex.split(value) or None
    elif key == "plm_rsh_args":
        found.remote_shell_arguments += shlex.split(value)
    else:
        found.notes.append(f"--mca {key}: it tunes Open MPI, which is not used")


_SEE_POPRUN = "poprun decides this: use its own options"
ARGUMENTS = (
    Argument(("-x",), 1, HONOURED, "`-x VAR` hands on a variable, `-x VAR=VALUE` sets it", True,
             _variable),
    Argument(("--tag-output",), 0, HONOURED, "like poprun's --tag-output", apply=_tags),
    Argument(("--timestamp-output",), 0, HONOURED, "each line begins with the time",
             apply=_timestamps),
    Argument(("--output-filename",), 1, HONOURED,
             "what instance I prints goes to DIR/1/rank.I/stdout and stderr, too",
             apply=_output_directory),
    Argument(("--bind-to",), 1, HONOURED,
             "`numa`, `socket`: like --numa-aware; `none`: not bound; others: noted", apply=_bind),
    Argument(("--mca", "--gmca"), 2, HONOURED,
             "`btl_tcp_if_include`, `oob_tcp_if_include`: network or interface; `plm_rsh_agent`, "
             "`plm_rsh_args`: instead of ssh, and for it; others: noted", apply=_mca),
    Argument(("--prefix",), 1, HONOURED, "other hosts use DIR/bin/python3", apply=_prefix),
    Argument(("--wdir", "--wd"), 1, HONOURED, "working directory of the instances",
             apply=_directory),
    Argument(("--timeout",), 1, HONOURED, "end the run after so many seconds", apply=_timeout),
    Argument(("--allow-run-as-root",), 0, IGNORED, "root may run it anyway", True),
    Argument(("--map-by", "--rank-by"), 1, IGNORED, "instances are divided evenly among the hosts"),
    Argument(("--report-bindings", "--display-map", "--display-allocation", "--nooversubscribe",
              "--oversubscribe", "--quiet", "-q", "--verbose", "-v"), 0, IGNORED,
             "there is nothing like it here", True),
    Argument(("-n", "--n", "--np", "-c", "-H", "--host", "--hostfile", "--machinefile",
              "--default-hostfile", "--npernode"), 1, REFUSED, _SEE_POPRUN),
)  # fmt: skip
_BY_NAME = {name: argument for argument in ARGUMENTS for name in argument.names}


def parse(
    text: str, option: str, *, into: MpiArguments | None = None, single: bool = False
) -> MpiArguments:
    """The arguments of one of poprun's options; `into` adds them to those of another."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise MpiArgumentRefused(f"{option} {text!a} cannot be split: {error}.") from None
    found = MpiArguments() if into is None else into
    while words:
        word = words.pop(0)
        argument, values = _argument(word, words, option)
        if argument.fate == REFUSED:
            raise MpiArgumentRefused(f"{option} has {word}. {argument.meaning}.")
        if single and not argument.single:
            raise MpiArgumentRefused(
                f"{option} has {word}, which is for the whole run.",
                remedy="Move it to --mpi-global-args or --mpi-local-args.",
            )
        if argument.fate == IGNORED:
            found.notes.append(f"{word}: {argument.meaning}")
        if argument.apply is not None:
            argument.apply(found, values)
    return found


def _argument(word: str, words: list[str], option: str) -> tuple[Argument, list[str]]:
    name, equals, value = word.partition("=")
    if name not in _BY_NAME and name.startswith("-") and len(name) > 2:
        name = f"--{name.lstrip('-')}"  # mpirun takes long names with one dash, too
    argument = _BY_NAME.get(name)
    if argument is None:
        known = ", ".join(one.names[0] for one in ARGUMENTS if one.fate != REFUSED)
        raise MpiArgumentRefused(f"{option} has {word!a}, which poprun does not know ({known}).")
    if equals and argument.values == 1:
        return argument, [value]
    if len(words) < argument.values:
        raise MpiArgumentRefused(f"{option}: {word} expects {argument.values} value(s).")
    values = words[: argument.values]
    del words[: argument.values]
    return argument, values


def table() -> str:
    """The arguments as a table of documentation."""
    lines = ["| argument | what becomes of it | meaning |", "|---|---|---|"]
    for argument in ARGUMENTS:
        names = ", ".join(f"`{name}`" for name in argument.names)
        lines.append(f"| {names} | {argument.fate} | {argument.meaning} |")
    return "\n".join(lines) + "\n"
