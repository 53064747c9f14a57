"""A run of benchmarks, one variant after the other; a failure is noted and the rest go on."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from ... import __version__
from ...errors import (
    BenchmarkFailed,
    BenchmarkInvalid,
    BenchmarkTimeout,
    PreRunFailed,
    RunInterrupted,
    SoftIPUError,
)
from . import command, custom, environment, metrics, monitor, process, requirements, results
from .benchmark import Benchmark, parse
from .options import Options
from .prepared import Prepared, prepare, working_directory
from .progress import Progress
from .results import Result
from .spec import Entry
from .stopping import Stopped
from .variants import variant_name

logger = logging.getLogger("examples_utils")
_TAIL_LINES = 100


class Suite:
    """Runs entries and keeps their results, also on disk, as they come."""

    def __init__(self, options: Options, log_directory: Path) -> None:
        self.options = options
        self.log_directory = log_directory
        self.results: list[Result] = []
        self._transcript = process.Transcript(log_directory / "output.log")
        self._folders: set[str] = set()

    def run(self, entries: Sequence[Entry]) -> None:
        try:
            for entry in entries:
                if not self._run_entry(entry):
                    break
        finally:
            self._transcript.close()

    def _run_entry(self, entry: Entry) -> bool:
        """Whether to go on."""
        logger.info("Running %s", entry.name)
        try:
            benchmark = parse(entry)
        except SoftIPUError as error:
            return self._keep(Result(str(entry.spec), entry.name, entry.name), [error])
        for key in benchmark.unknown_keys:
            logger.warning("%s: the key %s is not known, and ignored.", entry.name, key)
        variants = [_empty_result(benchmark, parameters) for parameters in benchmark.parameters]
        try:
            directory = self._made_ready(benchmark)
        except SoftIPUError as error:
            return all(self._keep(result, [error]) for result in variants)
        return all(self._run_variant(benchmark, result, directory) for result in variants)

    def _made_ready(self, benchmark: Benchmark) -> Path:
        """The benchmark's directory, once all that must come before is done."""
        if self.options.prepares_environment:
            benchmark = requirements.with_repository(benchmark, self.options.cloning_directory)
            requirements.check_apt_packages(benchmark, working_directory(benchmark))
        directory = working_directory(benchmark)
        if not directory.is_dir():
            raise BenchmarkInvalid(f"{benchmark.name!r}: there is no directory {directory}.")
        first = prepare(benchmark, benchmark.parameters[0], self.options, directory)
        environment.check(benchmark, first.command.text, first.environment)
        if first.command.words[0] in command.LAUNCHERS:
            # Other programs may be what is built or installed now; launchers are not.
            command.check_program(first.command.words, directory, first.environment)
        if benchmark.requirements_file is not None:
            requirements.install(directory / benchmark.requirements_file)
        if benchmark.pre_run_commands and self.options.pre_run:
            self._run_first(benchmark, first)
        return directory

    def _run_first(self, benchmark: Benchmark, first: Prepared) -> None:
        """The commands before a benchmark, in one shell: a `cd` counts for those after it."""
        folder = self._log_folder(f"{benchmark.name}_pre_run")
        logger.info("Running %d commands before it.", len(benchmark.pre_run_commands))
        ended = process.run(
            ["bash", "-e", "-c", "\n".join(benchmark.pre_run_commands)],
            directory=first.directory,
            environment=first.environment,
            stdout=folder / "stdout",
            stderr=folder / "stderr",
            transcript=self._transcript,
            timeout=first.timeout,
        )
        if ended.exit_code or ended.timed_out:
            _log_tail(benchmark.name, _read(folder / "stderr"))
            how = "ran too long" if ended.timed_out else f"failed ({ended.exit_code})"
            raise PreRunFailed(f"{benchmark.name}: the commands before it {how}; see {folder}.")

    def _run_variant(self, benchmark: Benchmark, result: Result, directory: Path) -> bool:
        if result.variant_name != benchmark.name:
            logger.info("\tRunning variant: %r", result.variant_name)
        try:
            ready = prepare(benchmark, result.params, self.options, directory)
            command.check_program(ready.command.words, directory, ready.environment)
            command.check_hosts(
                ready.command.words,
                files_are_there=self.options.no_code_sync or self.options.compile_only,
            )
            result.command = ready.command.text
            return self._keep(result, self._measure(ready, result))
        except SoftIPUError as error:
            return self._keep(result, [error])

    def _measure(self, ready: Prepared, result: Result) -> list[SoftIPUError]:
        """Run it; fill the result; all that went wrong."""
        folder = self._log_folder(ready.name)
        result.log_paths = {"out": str(folder / "stdout"), "err": str(folder / "stderr")}
        logger.info("cmd = %r", ready.command.text)
        logger.info("\tcwd = %r", str(ready.directory))
        logger.debug("env = %s", ready.added)
        result.start_time = str(datetime.now())
        ended, error = self._run_process(ready, folder, result)
        result.end_time = str(datetime.now())
        result.test_duration = str(ended.seconds)
        logger.info("Total runtime: %.1f seconds", ended.seconds)
        output = metrics.Output(_read(folder / "stdout"), _read(folder / "stderr"))
        errors = [error] if error else []
        if error:
            result.exitcode = ended.exit_code
            _log_tail(ready.name, output.stderr)
        errors += self._collect(ready, result, output, failed=bool(error))
        return errors

    def _run_process(
        self, ready: Prepared, folder: Path, result: Result
    ) -> tuple[process.Ended, SoftIPUError | None]:
        watched = monitor.watching(folder, ready.environment)
        try:
            with (
                watched if self.options.gc_monitor else nullcontext(),
                Progress(self.options.progress_trace_period) as progress,
            ):
                ended = process.run(
                    ready.command.words,
                    directory=ready.directory,
                    environment=ready.environment,
                    stdout=folder / "stdout",
                    stderr=folder / "stderr",
                    transcript=self._transcript,
                    timeout=ready.timeout,
                    tick=progress.show,
                )
        except Stopped:
            self._keep(result, [RunInterrupted(f"{ready.name} was interrupted.")])
            raise
        return ended, _failure(ready, ended, folder)

    def _collect(
        self, ready: Prepared, result: Result, output: metrics.Output, *, failed: bool
    ) -> list[SoftIPUError]:
        benchmark = ready.benchmark
        values: metrics.Values = {}
        errors: list[SoftIPUError] = []
        if not self.options.compile_only:
            values, errors = metrics.collect(
                benchmark.metrics,
                benchmark.derived,
                ready.parameters,
                metrics.Output("", "") if failed else output,
                metrics.mpirun_processes(ready.command.text),
            )
        more, custom_errors = custom.collect(output, result.exitcode)
        result.results = values | more
        result.compilation_end_time = str(more["total_compiling_time"]["mean"])
        if failed:
            errors = []  # of what failed there can be no metrics: one error is enough
        else:
            for name, value in values.items():
                logger.info("   %s = %r", name, metrics.single_value(value))
        errors += custom_errors
        if self.options.additional_metrics:
            result.results |= _additional(ready, result, passed=not failed and not errors)
        return errors

    def _keep(self, result: Result, errors: Sequence[SoftIPUError]) -> bool:
        """Add a result and save all; whether to go on."""
        for error in errors:
            logger.error("%s::%s\n%s", result.benchmark_name, result.variant_name, error)
            result.fail(error)
        self.results.append(result)
        if result.log_paths:
            text = json.dumps(asdict(result), indent=2)
            Path(result.log_paths["out"]).with_name("variant_result.json").write_text(text)
        self.save()
        if not result.passed and self.options.stop_on_error:
            logger.error("Stopping, since --stop-on-error was given.")
            return False
        return True

    def save(self) -> None:
        results.save(self.log_directory, self.results, self.options.all_csv_metrics)

    def _log_folder(self, name: str) -> Path:
        """A new directory for the logs of a variant; names come from spec files."""
        safe = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)
        safe = safe.lstrip(".")[:200] or "variant"
        unique = safe
        number = 1
        while unique in self._folders:
            number += 1
            unique = f"{safe}_{number}"
        self._folders.add(unique)
        folder = self.log_directory / unique
        folder.mkdir(exist_ok=True)
        return folder


def _empty_result(benchmark: Benchmark, parameters: dict[str, str]) -> Result:
    return Result(
        benchmark_path=str(benchmark.spec),
        benchmark_name=benchmark.name,
        variant_name=variant_name(benchmark.name, parameters),
        description=benchmark.description,
        params=parameters,
        output=benchmark.output,
        sdk_path=str(os.environ.get("POPLAR_SDK_ENABLED")),
        sdk_version=f"softipu {__version__}",
    )


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="backslashreplace")


def _log_tail(name: str, stderr: str) -> None:
    tail = "\n\t".join(stderr.splitlines()[-_TAIL_LINES:])
    logger.error("Last %d lines of stderr from %s:\n\t%s", _TAIL_LINES, name, tail)


def _failure(ready: Prepared, ended: process.Ended, folder: Path) -> SoftIPUError | None:
    if ended.timed_out:
        return BenchmarkTimeout(f"{ready.name} ran longer than {ready.timeout:g} s; see {folder}.")
    if ended.exit_code > 0:
        return BenchmarkFailed(f"{ready.name} exited with code {ended.exit_code}; see {folder}.")
    if ended.exit_code < 0:
        how = f"signal {-ended.exit_code} ({signal.strsignal(-ended.exit_code)})"
        return BenchmarkFailed(f"{ready.name} was ended by {how}; see {folder}.")
    return None


def _additional(ready: Prepared, result: Result, *, passed: bool) -> metrics.Values:
    values = {
        "test_duration": float(result.test_duration),
        "cmd": " ".join(ready.command.words),
        "result": str(passed),
        "git_commit_hash": _commit(ready.directory),
        "env": " ".join(f"{name}={value}" for name, value in ready.added.items()),
    }
    return {name: {name: value} for name, value in values.items()}


def _commit(directory: Path) -> str:
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=directory, capture_output=True, text=True
        )
    except OSError:
        return "Not a git repo"
    return answer.stdout.strip() if answer.returncode == 0 else "Not a git repo"
