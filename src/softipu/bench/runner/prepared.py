"""A variant of a benchmark with all that can be known before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from . import command, environment
from .benchmark import Benchmark
from .options import Options
from .variants import fill, variant_name


@dataclass(frozen=True)
class Prepared:
    """A variant, ready to be started."""

    benchmark: Benchmark
    name: str
    parameters: dict[str, str]
    directory: Path
    added: dict[str, str]
    environment: dict[str, str]
    command: command.Command
    timeout: float | None


def working_directory(benchmark: Benchmark) -> Path:
    return (benchmark.directory / benchmark.location).resolve()


def prepare(
    benchmark: Benchmark, parameters: dict[str, str], options: Options, directory: Path
) -> Prepared:
    """Everything about a variant that can be known before it starts."""
    name = variant_name(benchmark.name, parameters)
    profile = directory / f"{name}_profile" if options.profile else None
    added = environment.additions(benchmark, options.logging, profile)
    whole = environment.inherited() | added
    found = environment.resolved(fill(benchmark.command, parameters), whole)
    built = command.build(
        benchmark.command,
        parameters,
        directory,
        whole | found,
        keep_wandb=options.allow_wandb or benchmark.allow_wandb,
        compile_only=options.compile_only,
    )
    limits = [limit for limit in (options.timeout, benchmark.timeout) if limit is not None]
    return Prepared(
        benchmark,
        name,
        parameters,
        directory,
        added | found,
        whole | found,
        built,
        min(limits, default=None),
    )
