"""From a benchmark's `cmd` to the words that are executed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import (
    BenchmarkInvalid,
    HostListInvalid,
    ProgramMissing,
    RunnerUnsupported,
    UsageError,
)
from ...poprun import hosts
from ...poprun import options as poprun_options
from .variants import fill

LAUNCHERS = ("poprun", "mpirun")
_VARIABLE = re.compile(r"\$(\w+|\{\w+\})")
#: A word as it is written, with its quotes and backslashes.
_WRITTEN = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""")
#: Options of poprun that ask for IPUs, which nobody needs to compile.
_PARTITION_OPTIONS = ("--vipu-partition", "--vipu-server-host", "--vipu-server-port")
_POPRUN_REMEDY = (
    "poprun comes with softipu: put the programs of its environment on PATH. Or use a command "
    "without poprun (take `python3 SCRIPT ...` from the spec file's line)."
)
_MPIRUN_REMEDY = (
    "softipu has no mpirun. poprun starts several instances of a program instead: `poprun "
    "--num-instances N --num-replicas N python3 SCRIPT ...`. Or install Open MPI."
)


@dataclass(frozen=True)
class Command:
    text: str  #: as reported: placeholders filled, variables of the environment not
    words: list[str]


def build(
    template: str,
    parameters: Mapping[str, str],
    directory: Path,
    environment: Mapping[str, str],
    *,
    keep_wandb: bool = False,
    compile_only: bool = False,
) -> Command:
    """The command of one variant, to be started in `directory` with `environment`."""
    text = " ".join(fill(template, parameters).split())
    text = _with_whole_script_path(text, directory)
    if "--wandb" in text and (compile_only or not keep_wandb):
        text = _without(text, lambda option: "wandb" in option)
    if compile_only:
        text = _without(text, lambda option: option.startswith(_PARTITION_OPTIONS))
        text += " --compile-only"
    words = _split(expand(text, environment))
    if not words:
        raise BenchmarkInvalid(f"The command {template!r} is empty once it is filled.")
    return Command(text, words)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BenchmarkInvalid(f"The command {text!r} can't be split: {error}.") from None


def _with_whole_script_path(text: str, directory: Path) -> str:
    """The script behind `python` by its whole path, as launchers on other hosts need it."""
    words = text.split(" ")
    python = next((words.index(name) for name in ("python3", "python") if name in words), None)
    if python is None:
        return text
    for at in range(python + 1, len(words)):
        word = words[at]
        if word in ("-m", "-c"):
            return text
        if not word.startswith("-"):
            if not set(word) & set("\"'$\\"):
                # The text is split like a shell's, and directories may have spaces in their names.
                words[at] = shlex.quote(str((directory / word).resolve()))
            return " ".join(words)
    return text


def _without(text: str, unwanted: Callable[[str], bool]) -> str:
    """Without options of unwanted names, and without what these take.

    What is kept stays as it is written: a variable that no quotes enclose may be several words."""
    _split(text)  # Says what is wrong with its quotes, if anything is.
    kept: list[str] = []
    takes_next = False
    for written in _WRITTEN.findall(text):
        [word] = shlex.split(written)
        is_option = word.startswith("-")
        if takes_next and not is_option:
            takes_next = False
        elif is_option and unwanted(word.partition("=")[0]):
            takes_next = "=" not in word
        else:
            takes_next = False
            kept.append(written)
    return " ".join(kept)


def expand(text: str, environment: Mapping[str, str]) -> str:
    """`$NAME` and `${NAME}` replaced by the environment's values; unknown ones stay."""

    def value(match: re.Match[str]) -> str:
        return environment.get(match[1].strip("{}"), match[0])

    return _VARIABLE.sub(value, text)


def variables(text: str) -> list[str]:
    """Names of the environment that a command mentions."""
    return list(dict.fromkeys(match[1].strip("{}") for match in _VARIABLE.finditer(text)))


def check_program(words: Sequence[str], directory: Path, environment: Mapping[str, str]) -> None:
    """Raise ProgramMissing unless the command's first word can be started."""
    program = words[0]
    where = str(directory / program) if os.sep in program else program
    if shutil.which(where, path=environment.get("PATH", os.defpath)) is None:
        if program == "poprun":
            raise ProgramMissing("There is no poprun on PATH.", remedy=_POPRUN_REMEDY)
        if program == "mpirun":
            raise ProgramMissing("There is no mpirun on PATH.", remedy=_MPIRUN_REMEDY)
        raise ProgramMissing(f"There is no program {program!r}.")


def check_hosts(words: Sequence[str], *, files_are_there: bool) -> None:
    """Several hosts are a matter of poprun; copying files to them, the runner does not do."""
    others = [host for host in _poprun_hosts(words) if not hosts.is_here(host)]
    if others and not files_are_there:
        raise RunnerUnsupported(
            f"The command runs on other hosts: {', '.join(others)}.",
            cause="The runner does not copy code and environments to other hosts.",
            remedy="Put the files there (or use a shared file system) and give --no-code-sync.",
        )


def _poprun_hosts(words: Sequence[str]) -> list[str]:
    """The hosts of a poprun line; what poprun itself refuses, it says better itself."""
    names = [os.path.basename(word) for word in words]
    if "poprun" not in names:
        return []
    found: list[str] = []
    try:
        for word in poprun_options.split(words[names.index("poprun") + 1 :])[0]:
            if word.startswith("--host="):
                found += hosts.parse(word.removeprefix("--host="))
            elif word.startswith("--hostfile="):
                found += hosts.read(Path(word.removeprefix("--hostfile=")))
    except (HostListInvalid, UsageError):
        return []
    return found
