"""The environment that benchmarks run in, and what they need to find there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from ...errors import BenchmarkInvalid, RunnerEnvironment
from .benchmark import Benchmark
from .command import variables

#: Variables that commands with poprun mention -> what they mean, for whoever must set them.
POPRUN_VARIABLES = {
    "HOSTS": "the hosts to run on, separated by commas",
    "IPUOF_VIPU_API_PARTITION_ID": "the partition, see `vipu list partitions`",
    "VIPU_ALLOCATION_ID": "the allocation, see `vipu list partitions`",
    "TCP_IF_INCLUDE": "network interfaces between the hosts",
    "VIPU_CLI_API_HOST": "the host of the V-IPU server",
}


def additions(benchmark: Benchmark, level: str, profile: Path | None) -> dict[str, str]:
    """What a benchmark's environment has besides the runner's own."""
    result = {
        "POPLAR_LOG_LEVEL": level,
        "POPART_LOG_LEVEL": level,
        "TF_CPP_VMODULE": "poplar_compiler=1",
    }
    result |= benchmark.env
    if profile is not None:
        options = result.get("POPLAR_ENGINE_OPTIONS", os.environ.get("POPLAR_ENGINE_OPTIONS"))
        result["POPLAR_ENGINE_OPTIONS"] = _with_reports(options, profile)
        result["SOFTIPU_PROFILE_DIR"] = str(profile)
    return result


def _with_reports(options: str | None, directory: Path) -> str:
    """Engine options with reports switched on; what the benchmark set besides stays."""
    try:
        merged = json.loads(options or "{}")
        merged |= {"autoReport.all": "true", "autoReport.directory": str(directory)}
    except (ValueError, TypeError):
        raise BenchmarkInvalid(
            f"POPLAR_ENGINE_OPTIONS is not a JSON object: {options!r}."
        ) from None
    return json.dumps(merged | {"autoReport.outputSerializedGraph": "false"})


def inherited() -> dict[str, str]:
    """The runner's own environment, in which `python` is the runner's own, activated or not."""
    result = dict(os.environ)
    if sys.prefix != sys.base_prefix and "VIRTUAL_ENV" not in result:
        programs = str(Path(sys.prefix) / "bin")
        result["PATH"] = os.pathsep.join([programs, result.get("PATH", os.defpath)])
    return result


def resolved(command: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Values for variables that a command mentions and that can be found out otherwise."""
    wanted = [name for name in variables(command) if name not in environment]
    found = {name: _FALLBACKS[name](environment) for name in wanted if name in _FALLBACKS}
    return {name: value for name, value in found.items() if value}


def missing(command: str, environment: Mapping[str, str]) -> list[str]:
    """Variables of poprun that a command mentions and that nothing sets."""
    mentioned = [name for name in variables(command) if name in POPRUN_VARIABLES]
    return [name for name in mentioned if name not in environment]


def check(benchmark: Benchmark, command: str, environment: Mapping[str, str]) -> None:
    """Raise RunnerEnvironment when a benchmark can't work for lack of a variable."""
    if names := missing(command, environment):
        hints = "; ".join(f"{name}: {POPRUN_VARIABLES[name]}" for name in names)
        raise RunnerEnvironment(f"{benchmark.name} needs {hints}.")
    if lacks_dataset(benchmark, environment):
        raise RunnerEnvironment(
            f"{benchmark.name} needs DATASETS_DIR.",
            cause="It uses real data: neither its name has 'gen' or 'synth' in it, nor has its "
            "entry `generated: true` or `synthetic: true`.",
            remedy="Set DATASETS_DIR to the directory of the data sets, or add `generated: true` "
            "if it needs none.",
        )


def lacks_dataset(benchmark: Benchmark, environment: Mapping[str, str]) -> bool:
    return benchmark.needs_dataset and "DATASETS_DIR" not in environment


def _vipu_host(environment: Mapping[str, str]) -> str | None:
    if host := environment.get("IPUOF_VIPU_API_HOST"):
        return host
    vipu = shutil.which("vipu", path=environment.get("PATH", os.defpath))
    if vipu is None:
        return None
    answer = subprocess.run(
        [vipu, "--server-version"], capture_output=True, text=True, env=dict(environment)
    )
    lines = [line for line in answer.stdout.splitlines() if line.startswith("host: ")]
    if not lines:
        return None
    address = lines[0].removeprefix("host: ")
    return address.rpartition(":")[0] or address  # the embedded system has no port


_FALLBACKS: dict[str, Callable[[Mapping[str, str]], str | None]] = {
    "IPUOF_VIPU_API_PARTITION_ID": lambda environment: environment.get("PARTITION"),
    "VIPU_CLI_API_HOST": _vipu_host,
}
