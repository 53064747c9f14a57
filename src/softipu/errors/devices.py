"""What goes wrong with IPUs, partitions and the state directory."""

from __future__ import annotations

from .base import SoftIPUError

# --- 10xx: the data about IPUs ---------------------------------------------------------------


class ArchitectureError(SoftIPUError):
    code = 1001
    cause = "A file that describes a chip or system is damaged, incomplete or from a newer version."
    remedy = "Reinstall softipu, or correct the file that the message names."


class UnknownSystem(SoftIPUError):
    code = 1002
    cause = "No chip or system of that name is described in softipu.arch."
    remedy = "Choose one of the names listed (the default system is bow-pod16)."


# --- 11xx: configuration ---------------------------------------------------------------------


class InvalidSetting(SoftIPUError):
    code = 1101
    cause = "An environment variable or option has a value of the wrong type or range."
    remedy = "Correct or unset it; docs/environment.md lists every variable and its values."


class IpuofFileMissing(SoftIPUError):
    code = 1102
    cause = "IPUOF_CONFIG_PATH names a file that does not exist or cannot be read."
    remedy = (
        "Write it with `vipu get partition NAME --ipuof-configs > FILE`, or unset "
        "IPUOF_CONFIG_PATH to use the embedded system."
    )


class IpuofFileMalformed(SoftIPUError):
    code = 1103
    cause = "The IPUoF configuration is not JSON of the documented form."
    remedy = "Write it anew with `vipu get partition NAME --ipuof-configs > FILE`."


class IpuofDisagrees(SoftIPUError):
    code = 1104
    cause = "The partition was removed, recreated or reset after the IPUoF file was written."
    remedy = (
        "Write the file anew with `vipu get partition NAME --ipuof-configs > FILE`, or unset "
        "IPUOF_CONFIG_PATH or IPUOF_VIPU_API_HOST so that only one of them speaks."
    )


class AmbiguousPartition(SoftIPUError):
    code = 1105
    cause = "A V-IPU server is configured, but not which of its partitions to use."
    remedy = "Set IPUOF_VIPU_API_PARTITION_ID to one of the partitions listed."


# --- 12xx: devices ---------------------------------------------------------------------------


class NoSuchDevice(SoftIPUError):
    code = 1201
    cause = "The partition has no device with that id."
    remedy = "`gc-info -l` lists the device ids of the active partition."


class NotEnoughIpus(SoftIPUError):
    code = 1202
    cause = "The program asks for more IPUs than the partition has."
    remedy = (
        "Ask for fewer, create a larger partition with `vipu create partition`, or choose a larger "
        "system with SOFTIPU_SYSTEM (for example bow-pod64)."
    )


class DevicesBusy(SoftIPUError):
    code = 1203
    cause = "Other processes hold the IPUs."
    remedy = "Wait for them (attach with a time-out), end them, or use another partition."


class InvalidIpuCount(SoftIPUError):
    code = 1204
    cause = "IPUs are joined into devices in aligned groups whose size is a power of two."
    remedy = "Ask for 1, 2, 4, 8, 16 … IPUs."


class NotReconfigurable(SoftIPUError):
    code = 1205
    cause = "A partition that is not reconfigurable is one device with all IPUs of its GCD."
    remedy = "Create it with `vipu create partition NAME --size N --reconfigurable`."


class LeaseClosed(SoftIPUError):
    code = 1206
    cause = "The lease was released, or belongs to the parent of this forked process."
    remedy = "Attach again in the process that uses the IPUs."


# --- 13xx: the state directory ---------------------------------------------------------------


class StateReadOnly(SoftIPUError):
    code = 1301
    cause = "The state directory or a file in it may not be written by this user."
    remedy = "Set SOFTIPU_HOME to a directory you own, or correct the permissions."


class StateFull(SoftIPUError):
    code = 1302
    cause = "The disk or the quota of the state directory is used up."
    remedy = "Free some space, or set SOFTIPU_HOME to a directory on another disk."


class StateForeign(SoftIPUError):
    code = 1303
    cause = "The directory holds files that softipu did not make."
    remedy = "Set SOFTIPU_HOME to a new or empty directory."


class StateFormat(SoftIPUError):
    code = 1304
    cause = "The state directory was made by a newer softipu, or its marker file is damaged."
    remedy = "Upgrade softipu, or set SOFTIPU_HOME to a new directory."


class StateUnusable(SoftIPUError):
    code = 1305
    cause = "The file system refused an operation that softipu needs (locks, links, renames)."
    remedy = "Set SOFTIPU_HOME to a directory on a local disk."


class DatabaseDamaged(SoftIPUError):
    code = 1306
    cause = "The file with agents, clusters and partitions is not a SQLite database of ours."
    remedy = "Move the file aside and create the partitions again; running programs go on."


class RecordUnreadable(SoftIPUError):
    code = 1307
    cause = "The holder's record was deleted or damaged, or written by a newer softipu."
    remedy = "The IPUs are safe, and free once their holder ends; `fuser` on the lock names it."


# --- 14xx: partitions and the V-IPU server ---------------------------------------------------


class UnknownPartition(SoftIPUError):
    code = 1401
    cause = "No partition of that name exists there."
    remedy = "`vipu list partitions` lists them; `vipu create partition NAME --size N` makes one."


class AlreadyExists(SoftIPUError):
    code = 1402
    cause = "The name is taken."
    remedy = "Choose another name, or remove the old one first."


class InUse(SoftIPUError):
    code = 1403
    cause = "Something still uses it."
    remedy = "End what uses it first, or add --force where the command offers it."


class ServerUnreachable(SoftIPUError):
    code = 1404
    cause = "No V-IPU server answers at that address."
    remedy = (
        "Start one with `vipu-server`, correct -H/--api-host or IPUOF_VIPU_API_HOST, or unset it "
        "to use the embedded system."
    )


class ServerTimeout(SoftIPUError):
    code = 1405
    cause = "The V-IPU server took longer than the time-out; whether it acted is not known."
    remedy = "Look with `vipu list partitions`; raise IPUOF_VIPU_API_TIMEOUT if it is just slow."


class ServerNonsense(SoftIPUError):
    code = 1406
    cause = "What answers at that address is not a V-IPU server of softipu."
    remedy = "Check host and port (the default port is 8090)."


class AccessDenied(SoftIPUError):
    code = 1407
    cause = "The V-IPU server demands an access key, and none or a wrong one was sent."
    remedy = "Give it with --api-access-key or SOFTIPU_VIPU_ACCESS_KEY."


class NoFreeIpus(SoftIPUError):
    code = 1408
    cause = "The IPUs of the cluster are taken by other partitions, or free ones are not aligned."
    remedy = "Remove a partition, ask for fewer IPUs, or start with a larger system."


class InvalidRequest(SoftIPUError):
    code = 1409
    cause = "A name, number or combination in the request is not allowed."
    remedy = "Correct what the message names; `vipu COMMAND --help` shows the rules."


class UnknownEntity(SoftIPUError):
    code = 1410
    cause = "No agent or cluster of that name exists there."
    remedy = "`vipu list agents` and `vipu list clusters` list them."


class RequestTooLarge(SoftIPUError):
    code = 1411
    cause = "The request is larger than any that a client of ours sends."
    remedy = "Send a smaller request."


class UnsafeBind(SoftIPUError):
    code = 1412
    cause = "A server that other machines can reach must not be open to everybody."
    remedy = "Give --access-key-file FILE with a key in it, or listen on 127.0.0.1."
