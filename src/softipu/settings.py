"""The one table of environment variables that softipu reads: name, type, default, meaning.

docs/environment.md is generated from it. Read variables through `get` only, so that a wrong value
is an error that names the variable, and a variable without a row cannot be read at all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import InvalidSetting


@dataclass(frozen=True)
class Setting:
    name: str
    kind: str
    default: Any
    meaning: str

    def parse(self, text: str) -> Any:
        try:
            return _PARSERS[self.kind](text)
        except ValueError as error:
            raise InvalidSetting(f"{self.name}={text!r}: {error}") from None


def _flag(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("0", "false", "no", "off", ""):
        return False
    raise ValueError("expected 1 or 0")


def port_number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65535:
        raise ValueError("expected a port number from 1 to 65535")
    return int(text)


def _index(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError("expected a whole number from 0")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise ValueError("expected a number of seconds above 0")
    return value


_SIZE = re.compile(r"([0-9]{1,18})(\.[0-9]{1,9})? ?([kKMGT]?)(i?)B?", re.ASCII)


def size_in_bytes(text: str) -> int:
    """`500 MB`, `1.5GiB` or plain bytes."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or (match[4] and not match[3]):
        raise ValueError("expected a size such as 500 MB or 8 GiB")
    scale: int = (1024 if match[4] else 1000) ** " KMGT".index(match[3].upper() or " ")
    value = int(match[1]) * scale + int(float(match[2] or 0) * scale)
    if value < 1:
        raise ValueError("expected a size above 0")
    return value


def _backend(text: str) -> str:
    if text not in ("cpu", "cuda"):
        raise ValueError("expected cpu or cuda")
    return text


_PARSERS: dict[str, Callable[[str], Any]] = {
    "text": str,
    "path": str,
    "flag": _flag,
    "port": port_number,
    "index": _index,
    "seconds": _seconds,
    "size": size_in_bytes,
    "cpu|cuda": _backend,
}

SETTINGS = {
    row.name: row
    for row in (
        Setting("SOFTIPU_HOME", "path", None,
                "State directory: leases, records, partitions. Default: the user's state directory "
                "(`$XDG_STATE_HOME/softipu` or `~/.local/state/softipu`)."),
        Setting("SOFTIPU_SYSTEM", "text", "bow-pod16",
                "The embedded system, by its name in softipu.arch."),
        Setting("SOFTIPU_BACKEND", "cpu|cuda", "cpu",
                "Where programs compute."),
        Setting("SOFTIPU_PROFILE_DIR", "path", None,
                "Where profiles are written (`softipu run --profile`)."),
        Setting("SOFTIPU_ENGINE_TIMEOUT", "seconds", 30.0,
                "Seconds that gc-docker and gc-podman wait for an answer of the container engine."),
        Setting("SOFTIPU_VIPU_ACCESS_KEY", "text", None,
                "Access key that `vipu-server` demands and clients send."),
        Setting("SOFTIPU_DISABLE_HOOKS", "flag", False,
                "1: the import finder leaves TensorFlow and Paddle alone."),
        Setting("SOFTIPU_CACHE_SIZE", "size", 8_000_000_000,
                "How large a cache of executables may grow before the least recently used go: "
                "`500 MB`, `8 GiB`, or bytes."),
        Setting("POPTORCH_CACHE_DIR", "path", None,
                "Directory in which compiled models are kept and found again."),
        Setting("POPTORCH_IPU_MODEL", "flag", False,
                "1: PopTorch programs run on the IPU model: no virtual IPU is leased."),
        Setting("POPTORCH_SMALL_IPU_MODEL", "flag", False,
                "The same as POPTORCH_IPU_MODEL here: tiles do not limit a run."),
        Setting("POPTORCH_IPU_MODEL_VERSION", "text", None,
                "The chip that estimates of a PopTorch program on the IPU model are about: ipu1 "
                "(Mk1), ipu2 (Mk2) or ipu21 (C600). Default: that of SOFTIPU_SYSTEM."),
        Setting("POPTORCH_EXPORT_PROTO_FILE", "path", None,
                "Without effect, with one warning: there is no PopART whose model could be "
                "written."),
        Setting("POPTORCH_EXPORT_PROTO_AS_BINARY", "text", None,
                "Without effect, with one warning: it is about POPTORCH_EXPORT_PROTO_FILE."),
        Setting("POPTORCH_MAX_GRAPH_LEN", "text", None,
                "Without effect, with one warning: no line of the log prints a graph."),
        Setting("POPTORCH_WAIT_FOR_IPU", "flag", False,
                "1: wait for busy IPUs instead of raising an error."),
        Setting("POPTORCH_LOG_LEVEL", "text", "WARN",
                "How much PopTorch says: TRACE, DEBUG, INFO, WARN, ERR or OFF."),
        Setting("POPTORCH_LOG_DEST", "text", "stderr",
                "Where its native-style lines go: stderr, stdout or a file."),
        Setting("POPART_LOG_LEVEL", "text", "WARN",
                "How much is said where PopART would speak."),
        Setting("POPTORCH_DEFAULT_OPTIONS", "text", None,
                "JSON of option names and values that every `poptorch.Options()` begins with."),
        Setting("POPLAR_ENGINE_OPTIONS", "text", None,
                "JSON of engine options; merged with those that a program sets. `autoReport.all`, "
                "its parts and `autoReport.directory` count, others are named in one warning."),
        Setting("TF_POPLAR_FLAGS", "text", None,
                "Flags of TensorFlow programs, such as `--use_ipu_model` and "
                "`--executable_cache_path=DIR`, or a file of them; `--help` lists them all."),
        Setting("POPLAR_IPUMODEL", "flag", False,
                "1: Paddle programs run on the IPU model: no virtual IPU is leased."),
        Setting("SOFTIPU_PADDLE_OLD_IR", "flag", False,
                "1: Paddle builds static programs in the older representation from the start, "
                "which the IPU API needs; by default once a program is seen to use that API."),
        Setting("SOFTIPU_PADDLE_ONEDNN", "flag", True,
                "0: Paddle programs compute with the arithmetic of Paddle's own CPU kernels, "
                "slower but bit for bit the same."),
        Setting("SOFTIPU_PADDLE_REPORT", "flag", False,
                "1: Paddle's `ipu` device prints at exit which ops ran natively, wrapped or cast "
                "around, how often and how long."),
        Setting("SOFTIPU_PADDLE_STRICT", "flag", False,
                "1: an op without a kernel for Paddle's `ipu` device is an error, not silently run "
                "on the CPU."),
        Setting("SOFTIPU_PADDLE_THREADS", "index", 0,
                "Threads that a large op on Paddle's `ipu` device and a predictor with "
                "`enable_ipu` compute with; 0: one for each core that the process may run on. By "
                "default `OMP_NUM_THREADS` if the user set it."),
        Setting("SOFTIPU_PADDLE_PARTITION", "text", None,
                "Set by softipu itself: the partition that it found, for Paddle's plugin."),
        Setting("OMPI_COMM_WORLD_SIZE", "text", None,
                "Number of processes of a distributed PopTorch program."),
        Setting("OMPI_COMM_WORLD_RANK", "text", None,
                "Which of them this process is."),
        Setting("OMPI_COMM_WORLD_LOCAL_RANK", "text", None,
                "Which process of its host it is."),
        Setting("OMPI_COMM_WORLD_LOCAL_SIZE", "text", None,
                "Number of processes of the program on its host."),
        Setting("WORLD_SIZE", "text", None,
                "Number of instances of a program; `poprun` sets it, as torchrun does."),
        Setting("RANK", "text", None,
                "Which of them this process is."),
        Setting("LOCAL_RANK", "text", None,
                "Which instance of its host it is."),
        Setting("LOCAL_WORLD_SIZE", "text", None,
                "Number of instances on its host."),
        Setting("MASTER_ADDR", "text", None,
                "Host on which instances meet: that of instance 0."),
        Setting("MASTER_PORT", "port", None,
                "Port on which they meet."),
        Setting("TORCHELASTIC_USE_AGENT_STORE", "flag", False,
                "1: the launcher listens on that port, not instance 0; torchrun sets it."),
        Setting("POPDIST_NUM_TOTAL_REPLICAS", "text", None,
                "Replicas of all instances together; `poprun` sets it. A program that has it runs "
                "under popdist."),
        Setting("POPDIST_NUM_LOCAL_REPLICAS", "text", None,
                "Replicas of this instance; `poprun` sets it."),
        Setting("POPDIST_NUM_IPUS_PER_REPLICA", "text", None,
                "IPUs of each replica; `poprun` sets it."),
        Setting("POPDIST_UNIFORM_REPLICAS_PER_INSTANCE", "flag", True,
                "1: all instances have the same number of replicas; `poprun` sets it."),
        Setting("POPDIST_REPLICA_INDEX_OFFSET", "text", None,
                "Number of this instance's first replica among all; `poprun` sets it."),
        Setting("POPDIST_LOCAL_INSTANCE_INDEX", "text", None,
                "Which instance of its host this is; `poprun` sets it."),
        Setting("POPDIST_EXECUTABLE_CACHE_PATH", "path", None,
                "Directory of compiled models for all instances; `poprun --executable-cache-path` "
                "sets it."),
        Setting("SOFTIPU_INSTANCES_START", "seconds", 120.0,
                "Seconds that instances wait for one another when they start."),
        Setting("SOFTIPU_INSTANCES_TIMEOUT", "seconds", 1800.0,
                "Seconds that an instance waits for others that live but do something else, and "
                "a process of a program with Paddle's plugin for all others to join."),
        Setting("SOFTIPU_INSTANCES_SILENCE", "seconds", 20.0,
                "Seconds without a sign of life after which an instance counts as lost."),
        Setting("SOFTIPU_HOROVOD", "flag", False,
                "1: `import horovod` is softipu's even where another Horovod is installed."),
        Setting("PVTI_OPTIONS", "text", None,
                'JSON; `{"enable": "true", "directory": "DIR"}`: trace points are written to DIR '
                "(default: the working directory) as trace-event JSON."),
        Setting("SOFTIPU_COMPILE_AFTER", "seconds", 30.0,
                "Seconds that a program runs before a compiled form is built and tried; "
                "1e9: never."),
        Setting("SOFTIPU_KEEP_MEMORY", "flag", True,
                "0: memory that a step freed goes back to the system, at the price of speed."),
        Setting("SOFTIPU_STRICT", "flag", False,
                "1: a model that has no room on the real IPU, by the machine model, is an error "
                "(SIPU-8017) and not only a warning."),
        Setting("SOFTIPU_DETERMINISTIC", "flag", False,
                "1: programs are always executed the same way: no choice by measurement."),
        Setting("XDG_STATE_HOME", "path", None,
                "Base of the default state directory."),
        Setting("IPUOF_CONFIG_PATH", "path", None,
                "IPUoF configuration file that describes the partition."),
        Setting("IPUOF_VIPU_API_HOST", "text", None,
                "Host of the V-IPU server that has the partition."),
        Setting("IPUOF_VIPU_API_PORT", "port", 8090,
                "Port of the V-IPU server."),
        Setting("IPUOF_VIPU_API_PARTITION_ID", "text", None,
                "Partition to use, on the V-IPU server or the embedded system."),
        Setting("IPUOF_VIPU_API_GCD_ID", "index", 0,
                "Graph compile domain of the partition to use."),
        Setting("IPUOF_VIPU_API_TIMEOUT", "seconds", 120.0,
                "Seconds to wait for an answer of the V-IPU server."),
        Setting("VIPU_CLI_API_HOST", "text", None,
                "Host of the V-IPU server, for the `vipu` command only."),
        Setting("VIPU_CLI_API_PORT", "port", None,
                "Port of the V-IPU server, for the `vipu` command only."),
        Setting("GCDA_MONITOR", "flag", False,
                "1 in the application: gc-monitor and gc-info show its (modelled) temperature and "
                "power instead of N/A."),
        Setting("GCDA_OPTIONS", "text", None,
                'JSON; `{"enableMonitoring": "true"}` is the same as GCDA_MONITOR=1. Other keys '
                "drive hardware and are ignored."),
    )
}  # fmt: skip


def get(name: str, environ: Mapping[str, str] | None = None) -> Any:
    """The parsed value of a variable, or its default when it is unset or empty."""
    row = SETTINGS[name]
    text = (os.environ if environ is None else environ).get(name, "")
    return row.default if text == "" else row.parse(text)


def cleared(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without anything that configures softipu, for work that must not meet it."""
    source = os.environ if environ is None else environ
    return {
        name: value
        for name, value in source.items()
        if name not in SETTINGS and not name.startswith("SOFTIPU_")
    }


def expanded(name: str) -> Path:
    """The path in a variable, with `~` and `~user` resolved."""
    text = str(get(name))
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise InvalidSetting(f"{name}={text!r}: there is no such user.") from None


def is_set(name: str, environ: Mapping[str, str] | None = None) -> bool:
    return bool((os.environ if environ is None else environ).get(SETTINGS[name].name))
