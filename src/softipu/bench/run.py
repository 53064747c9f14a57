"""`softipu bench run`, also as `run_benchmark.py`: the command line of the CNN harness."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

from .. import settings
from ..errors import HarnessRefused, InvalidSetting, SoftIPUError
from ..tools import cli
from . import configs
from .options import FIELDS, Options, check_model, checked, nearest, spelling, understood

#: Said where nobody asked for random weights.
RANDOM = "Weights are random: --weights FILE loads others."
EPILOG = """\
Throughput and latency are this host's; one line has those of a modelled IPU, and docs/measuring.md
says what they mean. A configuration sets options; those on the command line win, and --no-X takes
back a flag X."""


def parser(prog: str = "softipu bench run") -> cli.Parser:
    result = cli.Parser(
        prog=prog,
        usage="%(prog)s [--config NAME] [OPTIONS]",
        description="Image classification inference on the software IPU: throughput and latency.",
        epilog=EPILOG,
    )
    add = result.add_argument
    add("--config", metavar="NAME", help="configuration to start from: " + _config_names())
    add("--config-file", metavar="FILE", help="where configurations are (default: softipu's own)")
    add("-j", "--json", action="store_true", help="print the result as JSON")
    add_fields(result, FIELDS)
    return result


def add_fields(to: Any, names: Iterable[str], **rules: Any) -> None:
    """Options for fields of `Options`; `rules` for argparse win over those that they have."""
    excluding = to.add_mutually_exclusive_group()
    for name in names:
        group = excluding if name in ("weights", "random_weights") else to
        field = FIELDS[name]
        group.add_argument(*_flags(name, field), **_rules(name, field) | rules)


def _config_names() -> str:
    try:
        return ", ".join(configs.names())
    except SoftIPUError:  # Help must not need the extra's YAML reader.
        return "see configs.yml"


def _flags(name: str, field: dataclasses.Field[Any]) -> list[str]:
    return [spelling(name), *field.metadata.get("aliases", ())]


def _rules(name: str, field: dataclasses.Field[Any]) -> dict[str, Any]:
    """What argparse has to know about an option."""
    rules = field.metadata
    found: dict[str, Any] = {"dest": name, "default": field.default, "help": _help(field)}
    if field.default is False:
        return found | {"action": argparse.BooleanOptionalAction}
    if "choices" in rules:
        return found | {"choices": rules["choices"]}
    if "several" in rules:
        return found | {"nargs": "+", "metavar": rules["metavar"]}
    if "least" in rules:
        return found | {"type": _number_from(rules["least"]), "metavar": "N"}
    if "metavar" in rules:
        return found | {"type": _known_model if name == "model" else str, **_metavar(rules)}
    return found | {"type": float, "metavar": "X"}


def _metavar(rules: Any) -> dict[str, str]:
    return {"metavar": rules["metavar"]}


def _help(field: dataclasses.Field[Any]) -> str:
    meaning: str = field.metadata["meaning"]
    silent = field.default in (None, False, ()) or "default" in meaning
    return meaning if silent else f"{meaning} (default: {field.default})"


def _number_from(least: int) -> Callable[[str], int]:
    def whole(text: str) -> int:
        number = cli.whole_number(text)
        if number < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return number

    return whole


def _known_model(text: str) -> str:
    try:
        return check_model(text)
    except SoftIPUError as error:
        raise argparse.ArgumentTypeError(f"{error.what} {error.remedy}".rstrip(".")) from None


def main(argv: Sequence[str] | None = None, prog: str = "softipu bench run") -> int:
    options, as_json = parse(sys.argv[1:] if argv is None else argv, prog)
    import poptorch

    try:
        return _work(options, as_json)
    except poptorch.Error as error:
        raise _refusal(error) from error


def parse(words: Sequence[str], prog: str = "softipu bench run") -> tuple[Options, bool]:
    """The options that a command line means, and whether it asks for JSON."""
    arguments = parser(prog)
    found = arguments.parse_args(words)
    if found.config is not None:
        file = found.config_file or configs.FILE
        _check_config(arguments, found.config, file)
        arguments.set_defaults(**configs.load(found.config, file))
        found = arguments.parse_args(words)
    elif found.config_file is not None:
        arguments.error("--config-file needs a --config from it")
    return _options(found), found.json


def _refusal(error: Any) -> SoftIPUError:
    """PopTorch's error as one of ours, with what it knows of its cause and the way out."""
    source = error.__cause__
    if isinstance(source, SoftIPUError):
        # Who holds the IPUs, and the like: PopTorch's own wording stays, as users know it.
        what = f"{error.message.rstrip('.')}: {source.what} ({source.label})"
        return HarnessRefused(what, cause=source.cause, remedy=source.remedy)
    cause, remedy = (
        None if found is None else found[1]
        for found in (
            re.search(rf"^  {word}: (.*)$", str(error), re.MULTILINE)
            for word in ("Cause", "Way out")
        )
    )
    if cause is None and source is not None:
        cause = f"{type(source).__name__}: {source}"
    return HarnessRefused(error.message, cause=cause, remedy=remedy)


def _check_config(arguments: cli.Parser, name: str, file: str | Path) -> None:
    known = configs.names(file)
    if name not in known:
        hint = nearest(name, known)
        arguments.error(f"there is no configuration {name!r}. {hint}Known: {', '.join(known)}")


def _options(found: argparse.Namespace) -> Options:
    from . import together  # Brings much along that --help needn't wait for.

    values = {name: getattr(found, name) for name in FIELDS}
    values["pipeline_splits"] = tuple(values["pipeline_splits"])
    asked, notes = understood(Options(**values))
    for note in notes:
        together.tell(note, sys.stderr)
    together.tell_who_decides(asked, sys.stderr)
    return checked(together.share(asked))


def _work(options: Options, as_json: bool) -> int:
    from . import together

    notes = sys.stderr if as_json else sys.stdout
    if options.weights is None and not options.random_weights:
        together.tell(RANDOM, notes)
    if options.compile_only:
        text, found = _compiled(options)
    elif options.profile:
        text, found = _profiled(options)
    else:
        text, found = _measured(options, notes)
    together.tell(json.dumps(found, indent=2) if as_json else text, sys.stdout)
    return 0


def _compiled(options: Options) -> tuple[str, dict[str, Any]]:
    """What to print, in words and as JSON; so do the next two."""
    from . import harness

    seconds = harness.compile_only(options)
    text = f"Graph compilation complete in {seconds:.1f} s, --compile-only was set: exiting."
    return text, _about(options) | {"compile_seconds": seconds}


def _profiled(options: Options) -> tuple[str, dict[str, Any]]:
    from . import harness

    written = harness.profile(options, _profile_folder())
    if written is None:  # Another instance wrote it, and tells.
        return "", {}
    trace, page = map(str, written)
    text = f"Profile written to {trace}\nReport on the modelled IPU written to {page}"
    return text, _about(options) | {"trace": trace, "report": page}


def _measured(options: Options, notes: TextIO) -> tuple[str, dict[str, Any]]:
    from . import figures, harness, progress, together

    with progress.shown(together.calls_each(options), notes) as advance:
        result = harness.measure(options, advance)
    return "\n".join(figures.lines(result)), figures.as_json(result)


def _about(options: Options) -> dict[str, Any]:
    return {"model": options.model, "options": dataclasses.asdict(options)}


def _profile_folder() -> Path:
    """Where profiles go: our variable, then the one that IPU tools use, then ./profile."""
    ours = settings.get("SOFTIPU_PROFILE_DIR")
    if ours is not None:
        return Path(ours)
    text = settings.get("POPLAR_ENGINE_OPTIONS")
    try:
        engine = json.loads(text or "{}")
    except ValueError as error:
        raise InvalidSetting(f"POPLAR_ENGINE_OPTIONS is not JSON: {error}.") from error
    if not isinstance(engine, dict):
        raise InvalidSetting(f"POPLAR_ENGINE_OPTIONS={text} is not a JSON object.")
    return Path(str(engine.get("autoReport.directory", "profile")))


entry = cli.run(main)
