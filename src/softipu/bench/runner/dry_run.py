"""`--dry-run`: what would run, in words; entries that can't are told, nothing is started."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...errors import ProgramMissing, SoftIPUError
from . import command, environment
from .benchmark import Benchmark, parse
from .options import Options
from .prepared import Prepared, prepare, working_directory
from .spec import Entry


def show(entries: Sequence[Entry], options: Options) -> int:
    """Print all variants; the exit code says whether all entries are valid."""
    variants = invalid = 0
    for entry in entries:
        try:
            # All of them before any is shown: half a benchmark would look like a whole one.
            prepared = _variants(parse(entry), options)
        except SoftIPUError as error:
            invalid += 1
            print(f"INVALID {entry.name} ({entry.spec})\n{error}\n")
            continue
        for ready in prepared:
            variants += 1
            print("\n".join([f"{entry.name}::{ready.name}", *_lines(ready, options)]), end="\n\n")
    print(f"{len(entries)} benchmarks, {variants} variants, {invalid} invalid; nothing was run")
    return 1 if invalid else 0


def _variants(benchmark: Benchmark, options: Options) -> list[Prepared]:
    directory = working_directory(benchmark)
    return [prepare(benchmark, each, options, directory) for each in benchmark.parameters]


def _lines(ready: Prepared, options: Options) -> Iterator[str]:
    benchmark = ready.benchmark
    yield f"  spec:      {benchmark.spec}"
    yield f"  directory: {ready.directory}"
    for name, value in ready.added.items():
        yield f"  env:       {name}={value}"
    if options.pre_run:
        for line in benchmark.pre_run_commands:
            yield f"  before:    {line}"
    yield f"  command:   {ready.command.text}"
    if ready.timeout is not None:
        yield f"  timeout:   {ready.timeout:g} s"
    if not options.compile_only:
        for metric in benchmark.metrics:
            skip = f"skip {metric.skip}, " if metric.skip else ""
            how = f"{skip}{metric.reduction} of {metric.pattern.pattern}"
            yield f"  metric:    {metric.name} = {how}"
        for derived in benchmark.derived:
            yield f"  derived:   {derived.name} = {derived.expression}"
    if benchmark.output:
        yield f"  output:    {', '.join(label for label, _ in benchmark.output)}"
    for remark in _remarks(ready):
        yield f"  note:      {remark}"


def _remarks(ready: Prepared) -> Iterator[str]:
    """What would keep the variant from working here, today."""
    benchmark = ready.benchmark
    for key in benchmark.unknown_keys:
        yield f"the key {key} is not known, and ignored"
    if not ready.directory.is_dir():
        yield f"there is no directory {ready.directory}"
    else:
        try:
            command.check_program(ready.command.words, ready.directory, ready.environment)
        except ProgramMissing as error:
            yield error.what.rstrip(".")
    for name in environment.missing(ready.command.text, ready.environment):
        yield f"{name} is not set: {environment.POPRUN_VARIABLES[name]}"
    if environment.lacks_dataset(benchmark, ready.environment):
        yield "DATASETS_DIR is not set: the directory of the data sets"
