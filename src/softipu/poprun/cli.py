"""The command `poprun`: a program as several instances, on this host and others."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from collections.abc import Iterator, Sequence

from ..errors import PartitionNotRemoved, SoftIPUError, UsageError
from ..tools import cli
from ..vipu.connect import Controller
from . import config_file, guardian, hosts, job, options, partition, picture, versions
from .job import Job
from .log import Log
from .output import Printer
from .supervisor import Supervisor


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    try:
        chosen = options.parse(words)
        if chosen.version:
            print(versions.text(chosen.version_format))
            return 0
        job.check(chosen)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    return _run(chosen, Log(chosen.verbosity))


def _run(chosen: argparse.Namespace, log: Log) -> int:
    topology = job.topology(chosen)
    given = job.arguments(chosen, topology, log)
    if chosen.export_config is not None:
        config_file.write(chosen.export_config, chosen, overwrite=chosen.overwrite_config)
    if chosen.vipu_cluster is not None:
        log.warning("--vipu-cluster is deprecated: use --vipu-allocation")
    others = [name for name in topology.hosts if not hosts.is_here(name)]
    decision, controller = partition.decide(chosen, topology, others, log)
    wanted = chosen.print_topology
    if chosen.dry_run or (log.verbosity > 1 if wanted is None else wanted):
        print(picture.draw(topology), flush=True)
    for number, name in enumerate(topology.hosts):
        log.debug(f"Host [{number}]: {name}")
    prepared = job.build(chosen, topology, given, decision.use, log)
    if chosen.dry_run:
        print(f"partition: {decision.describe()}")
        print("\n".join(job.shown(prepared)))
        return 0
    if chosen.debug:
        for line in job.shown(prepared):
            log.debug(line)
    printer = Printer(
        len(topology.instances),
        tagged=chosen.tag_output or given.run.tag_output,
        timestamps=given.run.timestamps,
        only=chosen.only_output_from_instance,
        directory=given.run.output_directory,
    )
    with _partition(chosen, decision, controller, log) as end:
        supervisor = Supervisor(prepared, printer, log)
        end.status = _supervise(supervisor, prepared, printer, log)
    return end.status


def _supervise(supervisor: Supervisor, prepared: Job, printer: Printer, log: Log) -> int:
    log.debug(f"Running command: {shlex.join(prepared.program)}")
    status = supervisor.run()
    failed = supervisor.failed_instance
    if failed is not None and (hidden := printer.hidden_lines(failed)):
        log.say(f"The last lines of instance {failed}:\n{hidden}")
    if supervisor.failure is not None:
        log.say(str(supervisor.failure))
    log.debug(f"All instances terminated; exit code {status}")
    return status


class _End:
    """How the run ended, and with it the partition."""

    status = 1


@contextlib.contextmanager
def _partition(
    chosen: argparse.Namespace,
    decision: partition.Decision,
    controller: Controller | None,
    log: Log,
) -> Iterator[_End]:
    """The partition is there within, and afterwards gone if it was made for this run."""
    end = _End()
    name = decision.use.name
    attempts = chosen.vipu_partition_attempts
    ours = decision.use.created and chosen.remove_partition
    if not ours or controller is None or name is None:
        partition.make(decision, controller, log)
        partition.settle(decision, controller, attempts, log)
        yield end
        return
    partition.make(decision, controller, log)
    # From here on: whoever kills poprun, somebody removes what it created.
    with guardian.watching(controller, name):
        try:
            partition.settle(decision, controller, attempts, log)
            yield end
        finally:
            try:
                partition.remove(controller, name)
                log.info(f"Removed partition {name}")
            except PartitionNotRemoved as error:
                print(error, file=sys.stderr)
                end.status = end.status or 1
            except SoftIPUError as error:
                print(PartitionNotRemoved(f"Partition {name}: {error.what}"), file=sys.stderr)
                end.status = end.status or 1


entry = cli.run(main)

if __name__ == "__main__":
    entry()
