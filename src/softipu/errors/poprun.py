"""What poprun reports: many processes, several hosts, and the partition they share."""

from __future__ import annotations

from .base import SoftIPUError

# --- 71xx: poprun ----------------------------------------------------------------------------


class InvalidTopology(SoftIPUError):
    code = 7100
    cause = "Replicas are divided evenly among instances, and instances evenly among hosts."
    remedy = "Change --num-replicas, --num-instances or the hosts so that each divides the other."


class HostListInvalid(SoftIPUError):
    code = 7101
    cause = "Hosts are given as `a,b`, as `host[0-2,4]`, or in a file with one host on each line."
    remedy = "Correct --host or the file that --hostfile names."


class PoprunConfigInvalid(SoftIPUError):
    code = 7102
    cause = "A file of options has one `name=value` on each line, as --export-config writes it."
    remedy = "Correct the line, or write the file anew with --export-config FILE."


class MpiArgumentRefused(SoftIPUError):
    code = 7103
    cause = "poprun reads arguments for mpirun itself: no MPI is involved, and not all make sense."
    remedy = "Leave it out; docs/poprun.md lists the arguments that are used, and those ignored."


class PoprunUnsupported(SoftIPUError):
    code = 7104
    cause = "This option of poprun asks for something that softipu leaves to other programs."
    remedy = "Do it beforehand as the message says, and set the option to `no` or leave it out."


class PartitionMismatch(SoftIPUError):
    code = 7105
    cause = "The partition exists, but not with the number of IPUs or GCDs that the run needs."
    remedy = "Give --update-partition=yes, another --vipu-partition, or other numbers."


class HostUnreachable(SoftIPUError):
    code = 7106
    cause = "poprun starts instances on other hosts by ssh, without a password, in bounded time."
    remedy = (
        "Try `ssh -o BatchMode=yes HOST true`; softipu must be installed at the same path there. "
        "--start-timeout gives slow hosts more time."
    )


class HostLost(SoftIPUError):
    code = 7107
    cause = "The network was cut, the host went down, or somebody ended poprun's process there."
    remedy = "Look at the host; instances there end by themselves once they miss poprun."


class InstanceFailed(SoftIPUError):
    code = 7108
    cause = "The program ended with an error of its own; all other instances were ended for it."
    remedy = "Look at the program's own output; --tag-output tells instances apart."


class InstanceKilled(SoftIPUError):
    code = 7109
    cause = "Somebody killed the process, or the system did for lack of memory (see `dmesg`)."
    remedy = "With less memory per instance or fewer instances per host it may survive."


class InstanceProgramMissing(SoftIPUError):
    code = 7110
    cause = "The program is looked up in PATH and relative to the working directory, on each host."
    remedy = "Check its name and place: `poprun [options] program [arguments]`."


class LauncherMissing(SoftIPUError):
    code = 7111
    cause = "poprun starts processes with PyTorch's elastic launcher, which is not there."
    remedy = "pip install 'softipu[torch]' in the environment that poprun runs from."


class RunTimedOut(SoftIPUError):
    code = 7112
    cause = "--timeout in --mpi-global-args bounds the whole run."
    remedy = "Give the run more time, or find out what it waits for."


class PartitionNotRemoved(SoftIPUError):
    code = 7113
    cause = "poprun made the partition for this run and could not take it away again."
    remedy = "`vipu remove partition NAME` removes it; --force even if programs hold its IPUs."


class NetworkNotFound(SoftIPUError):
    code = 7114
    cause = "--host-subnet and --mca btl_tcp_if_include choose the network between the hosts."
    remedy = "Name a network or an interface that each host has (`ip -brief address` lists them)."


class HostRefused(SoftIPUError):
    code = 7115
    cause = "The host was reached, but cannot run its instances."
    remedy = "Correct what the message names on that host."


class InstanceCrashed(SoftIPUError):
    code = 7116
    cause = "The program broke off by itself, or a library that it uses did."
    remedy = (
        "Look at its own output. One that uses torch.distributed itself may abort at its end, "
        "unless it calls torch.distributed.destroy_process_group()."
    )
