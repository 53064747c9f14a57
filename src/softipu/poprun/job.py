"""A run, ready to be started: from options to what each host is told."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .. import settings
from ..errors import InvalidTopology, MpiArgumentRefused, PoprunUnsupported, UsageError
from . import environment, hosts, mpi, network, plan
from .log import Log
from .mpi import MpiArguments
from .partition import Use
from .plan import Topology
from .protocol import Message
from .remote import RemoteShell

#: Options that softipu leaves to other programs -> what to do instead.
_LEFT_TO_OTHERS = {
    "distribute_ssh_key": "`ssh-copy-id HOST` copies the key to each host.",
    "synchronise_python_venv": "`rsync -a --delete {venv}/ HOST:{venv}/` copies the environment.",
    "synchronise_poplar_sdk": "There is no SDK to copy: install softipu on each host.",
}


@dataclass
class Arguments:
    """What mpirun's arguments ask for, of all instances and of single ones."""

    run: MpiArguments
    single: dict[int, MpiArguments] = field(default_factory=dict)

    def of(self, instance: int) -> list[MpiArguments]:
        single = self.single.get(instance)
        return [self.run, *([single] if single is not None else [])]

    @property
    def all(self) -> list[MpiArguments]:
        return [self.run, *self.single.values()]


@dataclass
class Job:
    topology: Topology
    program: list[str]
    directory: str
    local: list[bool]  #: for each host, whether it is this one
    environments: dict[int, dict[str, str]]
    unset: list[str]
    shell: RemoteShell
    numa: bool
    networks: list[str]
    master_port: int
    start_timeout: float
    host_timeout: float
    grace: float
    timeout: float | None

    def order(self, host: int) -> Message:
        """What the agent of a host is told first."""
        local = self.local[host]
        return {
            "program": self.program,
            "directory": self.directory,
            "unset": self.unset,
            "instances": [
                {"index": one.index, "environment": self.environments[one.index]}
                for one in self.topology.on_host(host)
            ],
            "numa": self.numa,
            "networks": self.networks,
            "remote": not local,
            # On this host the end of poprun is noticed at once, however busy the machine is.
            "silence": 1e9 if local else self.host_timeout,
            "grace": self.grace,
        }


def check(options: argparse.Namespace) -> None:
    """Refuse what can never work, before anything is looked at or changed."""
    for key, instead in _LEFT_TO_OTHERS.items():
        if getattr(options, key):
            import sys

            raise PoprunUnsupported(
                f"--{key.replace('_', '-')}=yes: poprun does not copy anything to other hosts.",
                remedy=instead.format(venv=sys.prefix),
            )
    if options.host is not None and options.hostfile is not None:
        raise UsageError("poprun: --host and --hostfile exclude each other.")
    if not options.program:
        raise UsageError(
            "poprun: a program is expected.", remedy="`poprun [options] program [arguments]`"
        )


def topology(options: argparse.Namespace) -> Topology:
    names: tuple[str, ...] = ()
    if options.host is not None:
        names = hosts.parse(options.host)
    elif options.hostfile is not None:
        names = hosts.read(Path(options.hostfile))
    found = plan.make(
        hosts=names,
        num_instances=options.num_instances,
        num_replicas=options.num_replicas,
        ipus_per_replica=options.ipus_per_replica,
        instances_per_host=options.instances_per_host,
        num_ilds=options.num_ilds,
    )
    only = options.only_output_from_instance
    if only is not None and only >= len(found.instances):
        raise InvalidTopology(
            f"--only-output-from-instance {only}: instances are 0 to {len(found.instances) - 1}.",
            remedy="Name one of them.",
        )
    return found


def arguments(options: argparse.Namespace, found: Topology, log: Log) -> Arguments:
    """mpirun's arguments, with a note for each that is ignored."""
    result = Arguments(mpi.parse(options.mpi_global_args, "--mpi-global-args"))
    # mpirun takes what is for the whole run in either place, and public scripts put it in both.
    mpi.parse(options.mpi_local_args, "--mpi-local-args", into=result.run)
    for text in options.instance_mpi_local_args:
        index, _, words = text.partition(":")
        if int(index) >= len(found.instances):
            raise MpiArgumentRefused(
                f"--instance-mpi-local-args {text!a}: there is no instance {index}.",
                remedy=f"Instances are 0 to {len(found.instances) - 1}.",
            )
        if int(index) in result.single:
            raise MpiArgumentRefused(f"--instance-mpi-local-args has instance {index} twice.")
        result.single[int(index)] = mpi.parse(
            words, f"--instance-mpi-local-args for instance {index}", single=True
        )
    for part in result.all:
        for note in part.notes:
            log.info(f"Ignored: {note}")
    if options.allow_run_as_root:
        log.info("Ignored: --allow-run-as-root: root may run it anyway")
    return result


def build(
    options: argparse.Namespace,
    found: Topology,
    given: Arguments,
    use: Use,
    log: Log,
    environ: Mapping[str, str] | None = None,
) -> Job:
    """The whole run as data."""
    environ = os.environ if environ is None else environ
    local = [hosts.is_here(name) for name in found.hosts]
    networks = _networks(options, given.run, local, log)
    shell = given.run.remote_shell
    own = {"python": f"{given.run.prefix}/bin/python3"} if given.run.prefix else {}
    bind = given.run.bind_to_numa
    return Job(
        topology=found,
        program=list(options.program),
        directory=os.path.abspath(given.run.directory or os.getcwd()),
        local=local,
        environments=_environments(options, found, given, use, local, environ, log),
        unset=environment.stale(environ, use, offline=options.offline_mode),
        shell=RemoteShell(
            words=tuple(shell) if shell else ("ssh",),
            arguments=tuple(given.run.remote_shell_arguments),
            connect_seconds=max(1, int(options.start_timeout)),
            **own,
        ),
        numa=bool(options.numa_aware if bind is None else bind),
        networks=networks,
        master_port=options.master_port or 0,
        start_timeout=options.start_timeout,
        host_timeout=options.host_timeout,
        grace=options.stop_grace,
        timeout=given.run.timeout,
    )


def _networks(
    options: argparse.Namespace, given: MpiArguments, local: list[bool], log: Log
) -> list[str]:
    wanted = [options.host_subnet] if options.host_subnet else given.interfaces
    for word in wanted:
        network.check(word)
    if all(local):
        if options.host_subnet:
            log.debug("No hosts specified; ignoring host-subnet setting")
        return []
    log.debug(f"Default network/RNIC for host communication: {', '.join(wanted) or None}")
    return wanted


def _environments(
    options: argparse.Namespace,
    found: Topology,
    given: Arguments,
    use: Use,
    local: list[bool],
    environ: Mapping[str, str],
    log: Log,
) -> dict[int, dict[str, str]]:
    theirs = environment.given_target_options(environ)
    log.debug(f"Target options from environment: {environment.compact(theirs)}")
    ours = environment.target_options(found, use)
    log.debug(f"Target options from V-IPU partition: {environment.compact(ours)}")
    log.debug(f"Using target options: {environment.compact(ours | theirs)}")
    timeout = options.vipu_server_timeout
    if timeout is None:
        timeout = settings.get("IPUOF_VIPU_API_TIMEOUT", environ)
    result = {}
    lacking: dict[str, None] = {}
    for one in found.instances:
        named, missing = environment.chosen(given.of(one.index), environ)
        lacking |= dict.fromkeys(missing)
        elsewhere = environment.forwarded(environ) | environment.of_file(use)
        base = {} if local[one.host] else elsewhere
        base |= {"POPLAR_TARGET_OPTIONS": environment.compact(ours | theirs)}
        base |= environment.of_partition(use, one, timeout)
        if "IPUOF_LOG_LEVEL" in environ and local[one.host]:
            base.pop("IPUOF_LOG_LEVEL", None)
        context = dict(environ) | named
        if options.executable_cache_path:
            path = os.path.abspath(options.executable_cache_path)
            base |= environment.cache(path, context)
            context |= base
        if options.offline_mode:
            base |= environment.offline(context)
        kept = {k: v for k, v in named.items() if k != "TF_POPLAR_FLAGS" or k not in base}
        result[one.index] = base | kept | environment.identity(found, one)
    for name in lacking:
        log.warning(f"-x {name}: the variable is not set here, and instances do not get it")
    return result


def shown(job: Job) -> list[str]:
    """The commands of all instances, as a dry run prints them."""
    lines = []
    for one in job.topology.instances:
        words = [f"{name}={value}" for name, value in job.environments[one.index].items()]
        words = [shlex.quote(word) for word in (*words, *job.program)]
        host = job.topology.hosts[one.host]
        lines.append(f"instance {one.index} on {host}: env {' '.join(words)}")
    return lines
