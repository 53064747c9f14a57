"""What all commands share: argument parsing with helpful errors, exit codes, closed pipes.

Exit codes: 0 done, 1 an error of ours (printed with code, cause and way out), 2 wrong usage,
130 interrupted. Nothing here knows what any command does.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from .. import __version__, settings
from ..errors import NotOnSoftwareIpu, OutputFailed, SoftIPUError, UsageError

Main = Callable[[Sequence[str] | None], int]


class Parser(argparse.ArgumentParser):
    """argparse with our error form, a version option, and a guess at misspelt options."""

    def __init__(self, *args: object, version: bool = False, **kwargs: object) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        # Abbreviations would let a script depend on a name that a later option makes ambiguous.
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        if version:
            self.add_argument(
                "--version", action="version", version=f"{self.prog} (softipu) {__version__}"
            )

    def error(self, message: str) -> NoReturn:
        remedy = self._guess(message) or f"See `{self.prog} --help`."
        self.print_usage(sys.stderr)
        print(UsageError(f"{self.prog}: {message}.", remedy=remedy), file=sys.stderr)
        sys.exit(2)

    def _guess(self, message: str) -> str | None:
        if "unrecognized arguments:" not in message:
            return None
        words = message.split("unrecognized arguments:")[1].split()
        if not words:
            return None
        wrong = words[0].split("=")[0]
        import difflib  # only a wrong option pays for it

        close = difflib.get_close_matches(wrong, list(self._option_string_actions), n=1)
        return f"Did you mean {close[0]}? See `{self.prog} --help`." if close else None


def whole_number(text: str) -> int:
    """For `type=`: int() would take 1_0, blanks and the digits of other scripts."""
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!a} is not a whole number from 0")
    return int(text)


def port(text: str) -> int:
    """For `type=`: the port of a server."""
    try:
        return settings.port_number(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


def port_or_any(text: str) -> int:
    """For `type=`: the port to listen on; 0 takes any free one."""
    return 0 if text == "0" else port(text)


class HardwareOnly(argparse.Action):
    """An option of the real tool that needs hardware: listed in the help, refused when used."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> NoReturn:
        raise NotOnSoftwareIpu(f"{parser.prog} {option_string}: not on a software IPU.")


def run(main: Main) -> Callable[[], NoReturn]:
    """Wrap a command's main for use as an entry point."""

    def entry() -> NoReturn:
        sys.exit(guarded(main))

    return entry


def guarded(main: Main, argv: Sequence[str] | None = None) -> int:
    status = 0
    try:
        if sys.stdout is None:
            raise OutputFailed("Standard output is closed.")
        status = main(argv)
        sys.stdout.flush()
    except SoftIPUError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _give_up_stdout()  # the reader (head, less) went away, which is no news to anybody
        return status or 1  # a command that had ended may have seen it, and said so its own way
    except Exception as error:  # noqa: BLE001 - the last resort: no user should see a traceback
        print(_unforeseen(error), file=sys.stderr)
        _give_up_stdout()
        return 1
    return status


def _unforeseen(error: Exception) -> SoftIPUError:
    """An error of ours for what no code of ours expected; says where it came from."""
    if isinstance(error, OSError) and error.filename is None:
        return OutputFailed(f"The output could not be written: {error.strerror}.")
    import traceback  # only a failure pays for it

    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(last.filename)}:{last.lineno}"
    source = error.__cause__
    cause = f"{type(source).__name__}: {str(source)[:500]}" if source is not None else None
    return SoftIPUError(f"{type(error).__name__} at {place}: {str(error)[:500]}", cause=cause)


def _give_up_stdout() -> None:
    """Python flushes once more when it ends, and would complain again."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
