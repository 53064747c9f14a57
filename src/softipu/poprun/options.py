"""poprun's options as one table: it makes the parser, the configuration file and the documentation.

A word that an option does not take is an error; nothing of a command line is silently dropped.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError
from ..tools.cli import Parser

USED = "used"
YES = ("yes", "1", "true", "on")
NO = ("no", "0", "false", "off")


@dataclass(frozen=True)
class Option:
    name: str
    kind: str
    default: Any
    meaning: str
    support: str = USED
    short: str | None = None
    alias: str | None = None

    @property
    def key(self) -> str:
        """The attribute of parsed options."""
        return self.name.replace("-", "_")

    @property
    def takes_value(self) -> bool:
        return self.kind not in ("switch", "count")

    @property
    def names(self) -> tuple[str, ...]:
        short = [f"-{self.short}"] if self.short else []
        return (*short, *(f"--{name}" for name in (self.name, self.alias) if name))

    def parse(self, text: str) -> Any:
        """The value of a text, or ValueError with what was expected."""
        return _PARSERS[self.kind](text)


def _yes_no(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in YES:
        return True
    if lowered in NO:
        return False
    raise ValueError("expected yes or no")


def _whole(text: str, least: int) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) < least:
        raise ValueError(f"expected a whole number from {least}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e9:
        raise ValueError("expected a number of seconds above 0")
    return value


def _port(text: str) -> int:
    if not 1 <= (value := _whole(text, 0)) <= 65535:
        raise ValueError("expected a port number from 1 to 65535")
    return value


def _text(text: str) -> str:
    """An empty value comes from an unset variable in a script, and must not mean a default."""
    if not text.strip():
        raise ValueError("the value is empty")
    return text


def _format(text: str) -> str:
    if text not in ("text", "full-text", "full-json"):
        raise ValueError("expected text, full-text or full-json")
    return text


_PARSERS: dict[str, Callable[[str], Any]] = {
    "yes/no": _yes_no,
    "count from 1": lambda text: _whole(text, 1),
    "index": lambda text: _whole(text, 0),
    "port": _port,
    "seconds": _seconds,
    "text": _text,
    "file": _text,
    "arguments": str,
    "format": _format,
}

_SERVER = "softipu's `vipu-server`; without one anywhere, the embedded system"
OPTIONS = (
    Option("version", "switch", False, "Print the version."),
    Option("version-format", "format", "text",
           "What --version prints: text, full-text or full-json (with all that takes part)."),
    Option("import-config", "file", None,
           "Read options from this file; those on the command line win."),
    Option("export-config", "file", None, "Write the options to this file, and go on."),
    Option("overwrite-config", "yes/no", False, "--export-config may replace a file."),
    Option("debug", "yes/no", False,
           "Say everything: like -vv, with the environment of each instance.",
           "used; the real option's name is not known"),
    Option("host", "text", None,
           "Hosts to run on: `a,b` or `host[0-2,4]`. Instances are divided evenly among them.",
           "used; other hosts than this one are reached by ssh", short="H"),
    Option("hostfile", "file", None, "File with one host on each line, instead of --host.",
           alias="host-file"),
    Option("num-replicas", "count from 1", 1, "Replicas in all."),
    Option("ipus-per-replica", "count from 1", 1, "IPUs of each replica."),
    Option("num-instances", "count from 1", None,
           "Instances (processes); replicas are divided evenly among them. Default: one, or one on "
           "each host."),
    Option("instances-per-host", "count from 1", None,
           "Instances on each host, instead of --num-instances."),
    Option("num-ilds", "count from 1", None,
           "IPU-Link domains; by default as few as the IPUs need.",
           "used in the topology and the target options; links are not modelled by it"),
    Option("vipu-server-host", "text", None,
           "Host of the V-IPU server; default: where `vipu` looks.", f"used: {_SERVER}"),
    Option("vipu-server-port", "port", None, "Port of the V-IPU server (8090)."),
    Option("vipu-server-timeout", "seconds", None,
           "Seconds to wait for an answer of the V-IPU server, here and in the instances; default: "
           "IPUOF_VIPU_API_TIMEOUT, or 120."),
    Option("vipu-partition", "text", None, "Partition to use; it is created if it does not exist."),
    Option("vipu-partition-attempts", "count from 1", 1,
           "How often to look until the partition is ACTIVE, a second apart."),
    Option("update-partition", "yes/no", False,
           "Make the partition anew, under its name, if the run does not fit it."),
    Option("reset-partition", "yes/no", None,
           "Reset the partition first; default: only if it is not reconfigurable."),
    Option("remove-partition", "yes/no", True,
           "Remove the partition at the end if poprun created it.",
           "used; one that was only updated stays"),
    Option("vipu-cluster", "text", None, "Cluster to create the partition in.",
           "used, with a warning: deprecated for --vipu-allocation"),
    Option("vipu-allocation", "text", None, "Allocation to create the partition in."),
    Option("sync-type", "text", None,
           "Sync type of a created partition, such as ST_POD_NATIVE_DEFAULT.",
           "used: a pod-native partition is not reconfigurable"),
    Option("executable-cache-path", "file", None,
           "Directory of compiled models, for all frameworks."),
    Option("mpi-global-args", "arguments", "", "Arguments for mpirun.",
           "read by poprun, see the table below"),
    Option("mpi-local-args", "arguments", "",
           "Arguments for mpirun, for each instance: `-x VAR`, `-x VAR=VALUE`.",
           "read by poprun, see the table below"),
    Option("instance-mpi-local-args", "repeated", (),
           'The same for one instance: `I:"-x VAR=VALUE"`. May be given again.',
           "read by poprun, see the table below"),
    Option("numa-aware", "yes/no", False, "Bind instances to NUMA nodes, round robin."),
    Option("print-topology", "yes/no", None, "Draw the topology; default: at -vv only."),
    Option("only-output-from-instance", "index", None,
           "Hide what the other instances print; a failure still shows its last lines."),
    Option("tag-output", "yes/no", False, "Begin each line with `[1,I]<stdout>:`."),
    Option("offline-mode", "yes/no", False,
           "Run without IPUs: no partition is used, and programs run on the IPU model."),
    Option("host-subnet", "text", None,
           "Network between the hosts, such as 10.1.0.0/16: instances listen there.",
           "used; without other hosts ignored, as the log says"),
    Option("master-port", "port", None,
           "Port at which instances find each other; if it is taken, another one with a warning.",
           "softipu's own; default: any free one"),
    Option("distribute-ssh-key", "yes/no", False, "Copy the ssh key to the hosts.",
           "`yes` is an error: `ssh-copy-id HOST` does it"),
    Option("synchronise-python-venv", "yes/no", False, "Copy the virtual environment to the hosts.",
           "`yes` is an error: `rsync -a` does it"),
    Option("synchronise-poplar-sdk", "yes/no", False, "Copy the Poplar SDK to the hosts.",
           "`yes` is an error: there is no SDK, install softipu there"),
    Option("allow-run-as-root", "yes/no", False, "Allow root to run it.",
           "ignored: root may run it anyway"),
    Option("start-timeout", "seconds", 120.0,
           "Seconds within which all hosts must be ready.", "softipu's own"),
    Option("host-timeout", "seconds", 20.0,
           "Seconds of silence after which another host counts as lost.", "softipu's own"),
    Option("stop-grace", "seconds", 5.0,
           "Seconds between SIGTERM and SIGKILL when instances are ended.", "softipu's own"),
    Option("dry-run", "yes/no", False,
           "Show topology, partition, environments and commands; change and start nothing."),
    Option("verbose", "count", 0, "Say what happens; -vv says more.", short="v"),
    Option("vv", "switch", False, "The same as -vv."),
)  # fmt: skip
#: Two ways to say the same: of one that the command line has, the other in a file does not count.
_SAME_THING = (("host", "hostfile"), ("num-instances", "instances-per-host"))
BY_NAME = {name: row for row in OPTIONS for name in (row.name, row.alias) if name is not None}


def _repeated(text: str) -> str:
    index, colon, rest = text.partition(":")
    if not colon or not index.isascii() or not index.isdigit():
        raise ValueError('expected INSTANCE:"ARGUMENTS"')
    return f"{int(index)}:{rest}"


_PARSERS["repeated"] = _repeated


def make_parser() -> Parser:
    parser = Parser(
        prog="poprun",
        usage="poprun [options] program [arguments]",
        description="Run a program as several instances, on this host and others, on virtual IPUs.",
    )
    for row in OPTIONS:
        help_text = row.meaning.replace("%", "%%")
        if row.support != USED:
            help_text += f" ({row.support})".replace("%", "%%")
        if row.kind == "switch":
            parser.add_argument(*row.names, action="store_true", help=help_text)
        elif row.kind == "count":
            parser.add_argument(*row.names, action="count", default=0, help=help_text)
        elif row.kind == "repeated":
            parser.add_argument(
                *row.names, action="append", default=[], type=_typed(row), metavar="I:ARGS",
                help=help_text,
            )  # fmt: skip
        else:
            parser.add_argument(
                *row.names, type=_typed(row), default=row.default,
                metavar=row.kind.split()[0].upper(), help=help_text,
            )  # fmt: skip
    parser.add_argument("program", nargs=argparse.REMAINDER, help="what each instance runs")
    return parser


def _typed(row: Option) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            return row.parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!a}: {error}") from None

    return convert


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Options in the form `--name=value`, and the program with its arguments.

    Yes/no options may stand alone, which means yes. Names may be shortened, as poprun's users do.
    """
    options: list[str] = []
    rest = list(words)
    while rest:
        word = rest[0]
        if word == "--":
            return options, rest[1:]
        if not word.startswith("-") or word == "-":
            return options, rest
        rest.pop(0)
        options += _one(word, rest)
    return options, []


def _one(word: str, rest: list[str]) -> Iterator[str]:
    if not word.startswith("--"):
        yield from _short(word, rest)
        return
    name, equals, value = word[2:].partition("=")
    if name == "help":
        yield "--help"
        return
    row = _row(name)
    if not row.takes_value:
        if equals and not _value(row, value):
            return
        yield f"--{row.name}"
    elif equals:
        yield f"--{row.name}={value}"
    elif row.kind == "yes/no" and not (rest and rest[0].lower() in YES + NO):
        yield f"--{row.name}=yes"
    elif not rest:
        raise UsageError(f"poprun: --{row.name} expects a value ({row.kind}).")
    else:
        yield f"--{row.name}={rest.pop(0)}"


def _once(words: Sequence[str]) -> list[str]:
    """Each option once. Arguments for mpirun add up, as mpirun would have it; of two different
    values of another option nobody can say which one is meant."""
    found: dict[str, str] = {}
    others = []
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        row = BY_NAME.get(name)
        if not equals or row is None or row.kind == "repeated":
            others.append(word)
        elif name not in found:
            found[name] = value
        elif row.kind == "arguments":
            found[name] += f" {value}"
        elif _value(row, found[name]) != _value(row, value):
            raise UsageError(
                f"poprun: --{name} is given twice, as {found[name]!a} and {value!a}.",
                remedy="Give it once.",
            )
    return [*(f"--{name}={value}" for name, value in found.items()), *others]


def _value(row: Option, text: str) -> Any:
    try:
        return row.parse(text) if row.takes_value else _yes_no(text)
    except ValueError as error:
        raise UsageError(f"poprun: --{row.name}={text!a}: {error}.") from None


def _short(word: str, rest: list[str]) -> Iterator[str]:
    if word == "-h":
        yield "--help"
    elif word[1:].strip("v") == "":
        yield word
    elif word.startswith("-H"):
        if word == "-H" and not rest:
            raise UsageError("poprun: -H expects a value (text).")
        yield f"--host={word[2:].removeprefix('=') or rest.pop(0)}"
    else:
        raise UsageError(
            f"poprun: there is no option {word}.",
            remedy="Options of the program stand behind it: `poprun [options] program [args]`.",
        )


def _row(name: str) -> Option:
    if name in BY_NAME:
        return BY_NAME[name]
    found = {row.name: row for known, row in BY_NAME.items() if name and known.startswith(name)}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise UsageError(f"poprun: --{name} may be {', '.join(f'--{n}' for n in sorted(found))}.")
    import difflib  # only a wrong option pays for it

    close = difflib.get_close_matches(name, BY_NAME, n=1)
    hint = f"Did you mean --{close[0]}? " if close else ""
    raise UsageError(f"poprun: there is no option --{name}.", remedy=f"{hint}See `poprun --help`.")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """All options of a command line, with those of an imported file below them."""
    from . import config_file

    parser = make_parser()
    given, program = split(words)
    given = _once(given)
    options = parser.parse_args(given)
    if options.import_config is not None:
        imported = config_file.read(options.import_config)
        options = parser.parse_args([*_beside(imported, given), *given])
    options.program = program
    options.verbosity = 2 if options.vv or options.debug else min(2, options.verbose)
    return options


def _beside(imported: Sequence[str], given: Sequence[str]) -> list[str]:
    """What a file says, without that which the command line says in other words."""
    names = {_name_of(word) for word in given}
    lost = {other for one, other in _SAME_THING if one in names}
    lost |= {one for one, other in _SAME_THING if other in names}
    return [word for word in imported if _name_of(word) not in lost]


def _name_of(word: str) -> str:
    return word.removeprefix("--").partition("=")[0]


def table() -> str:
    """The options as a table of documentation."""
    lines = ["| option | takes | default | meaning | here |", "|---|---|---|---|---|"]
    for row in OPTIONS:
        names = ", ".join(f"`{name}`" for name in row.names)
        kind = {"switch": "", "count": "", "repeated": "index:arguments"}.get(row.kind, row.kind)
        lines.append(f"| {names} | {kind} | {_default(row)} | {row.meaning} | {row.support} |")
    return "\n".join(lines) + "\n"


def _default(row: Option) -> str:
    if row.default is None or row.default in ("", ()) or not row.takes_value:
        return ""
    if isinstance(row.default, bool):
        return "yes" if row.default else "no"
    return f"{row.default:g}" if isinstance(row.default, float) else str(row.default)
