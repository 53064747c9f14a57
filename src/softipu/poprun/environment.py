"""The variables by which each instance knows who it is, and which partition is its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from .. import settings
from ..devices.embedded import EMBEDDED
from ..errors import InvalidSetting, MpiArgumentRefused
from .mpi import MpiArguments
from .partition import Use
from .plan import InstancePlan, Topology

#: Handed on to other hosts, where the login shell's environment is another one.
ALWAYS_FORWARDED = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
#: Only poprun may say who an instance is.
OWN = (
    "POPDIST_NUM_TOTAL_REPLICAS",
    "POPDIST_NUM_IPUS_PER_REPLICA",
    "POPDIST_NUM_LOCAL_REPLICAS",
    "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE",
    "POPDIST_REPLICA_INDEX_OFFSET",
    "POPDIST_LOCAL_INSTANCE_INDEX",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_RESTART_COUNT",
)


def identity(topology: Topology, instance: InstancePlan) -> dict[str, str]:
    """Who the instance is among the others; where they meet is added when all hosts are ready."""
    return {
        "POPDIST_NUM_TOTAL_REPLICAS": str(topology.replicas),
        "POPDIST_NUM_IPUS_PER_REPLICA": str(topology.ipus_per_replica),
        "POPDIST_NUM_LOCAL_REPLICAS": str(instance.replicas),
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": "1",
        "POPDIST_REPLICA_INDEX_OFFSET": str(instance.replica_offset),
        "POPDIST_LOCAL_INSTANCE_INDEX": str(instance.local_index),
        "RANK": str(instance.index),
        "WORLD_SIZE": str(len(topology.instances)),
        "LOCAL_RANK": str(instance.local_index),
        "LOCAL_WORLD_SIZE": str(topology.instances_per_host),
        "OMPI_COMM_WORLD_RANK": str(instance.index),
        "OMPI_COMM_WORLD_SIZE": str(len(topology.instances)),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(instance.local_index),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(topology.instances_per_host),
    }


def meeting(address: str, port: int) -> dict[str, str]:
    """Where instances meet: the agent of the first host keeps the store there."""
    return {
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }


def of_partition(use: Use, instance: InstancePlan, timeout: float) -> dict[str, str]:
    """How the instance finds its IPUs; nothing where its own environment says it already."""
    if use.from_file or (use.name is None and use.server is None):
        return {}
    host, port = (EMBEDDED, 8090) if use.server is None else use.server
    return {
        "IPUOF_VIPU_API_HOST": host,
        "IPUOF_VIPU_API_PORT": str(port),
        "IPUOF_VIPU_API_PARTITION_ID": str(use.name),
        "IPUOF_VIPU_API_TIMEOUT": f"{timeout:g}",
        "IPUOF_VIPU_API_GCD_ID": str(use.gcd_of(instance.index)),
        "IPUOF_LOG_LEVEL": "WARN",
    }


def of_file(use: Use) -> dict[str, str]:
    """For other hosts: the file that describes the partition must lie at the same path there.
    Without it they would find something else, and say nothing."""
    return {} if use.file is None else {"IPUOF_CONFIG_PATH": use.file}


def target_options(topology: Topology, use: Use) -> dict[str, str]:
    """What Poplar would be told of the links of the partition."""
    size = use.size or topology.ipus
    return {
        "ipuLinkDomainSize": str(max(1, size // topology.ilds)),
        "ipuLinkConfiguration": "slidingWindow" if use.rings else "default",
        "ipuLinkTopology": "torus" if use.rings else "mesh",
        "gatewayMode": "true",
        "instanceSize": str(topology.ipus_per_instance),
    }


def given_target_options(environ: Mapping[str, str]) -> dict[str, str]:
    """POPLAR_TARGET_OPTIONS of the user, which win over those of the partition."""
    text = environ.get("POPLAR_TARGET_OPTIONS", "")
    try:
        found = json.loads(text or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidSetting(f"POPLAR_TARGET_OPTIONS={text!a} is not a JSON object.")
    return {str(key): str(value) for key, value in found.items()}


def compact(options: Mapping[str, str]) -> str:
    return json.dumps(options, separators=(",", ":"))


def offline(environ: Mapping[str, str]) -> dict[str, str]:
    """All frameworks run on the IPU model: nothing is attached to."""
    return {
        "POPTORCH_IPU_MODEL": "1",
        "POPLAR_IPUMODEL": "1",
        "TF_POPLAR_FLAGS": _with_flag(environ, "--use_ipu_model"),
    }


def cache(path: str, environ: Mapping[str, str]) -> dict[str, str]:
    """One directory of compiled models for all frameworks; what the user set himself stays."""
    found = {"POPDIST_EXECUTABLE_CACHE_PATH": path}
    if not environ.get("POPTORCH_CACHE_DIR"):
        found["POPTORCH_CACHE_DIR"] = path
    if "--executable_cache_path" not in environ.get("TF_POPLAR_FLAGS", ""):
        found["TF_POPLAR_FLAGS"] = _with_flag(environ, f"--executable_cache_path={path}")
    return found


def _with_flag(environ: Mapping[str, str], flag: str) -> str:
    given = environ.get("TF_POPLAR_FLAGS", "")
    return given if flag in given.split() else f"{given} {flag}".strip()


def forwarded(environ: Mapping[str, str]) -> dict[str, str]:
    """What another host needs of this environment, besides what -x names."""
    return {
        name: value
        for name, value in environ.items()
        if name in ALWAYS_FORWARDED
        or (name.startswith("SOFTIPU_") and name in settings.SETTINGS and name != "SOFTIPU_HOME")
    }


def chosen(
    arguments: Sequence[MpiArguments], environ: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """The variables that -x names, later ones winning, and those that are not set here."""
    found: dict[str, str] = {}
    missing: list[str] = []
    for part in arguments:
        for name, value in part.variables:
            if name in OWN:
                raise MpiArgumentRefused(
                    f"-x {name}: poprun itself says who each instance is.",
                    remedy="Leave it out; --num-instances, --num-replicas and --host decide it.",
                )
            if value is not None:
                found[name] = value
            elif name in environ:
                found[name] = environ[name]
            else:
                missing.append(name)
    return found, missing


def stale(environ: Mapping[str, str], use: Use, *, offline: bool) -> list[str]:
    """What instances must not inherit: who somebody else is, or another partition; without IPUs
    any, as its server or file need not be there."""
    names = [
        name for name in environ if name in OWN or name.startswith(("POPDIST_", "TORCHELASTIC_"))
    ]
    if offline:
        names += [n for n in environ if n == "IPUOF_CONFIG_PATH" or n.startswith("IPUOF_VIPU_")]
    elif use.name is not None and not use.from_file:
        names += [name for name in ("IPUOF_CONFIG_PATH",) if name in environ]
    return names
