"""Every failure softipu can report: one class per code, with cause and way out.

The classes are the single source of docs/errors.md. Front ends subclass or wrap them so that users
catch the type they know, and the code stays the same.
"""

from __future__ import annotations

from typing import Any, ClassVar


class SoftIPUError(Exception):
    """Base of all softipu errors. `what` says what happened; the class knows the usual rest."""

    code: ClassVar[int] = 1000
    cause: str = "An error that no more specific class describes."
    remedy: str = "Run `softipu doctor` and attach its zip to a bug report."
    registry: ClassVar[dict[int, type[SoftIPUError]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "code" in cls.__dict__:
            if cls.code in cls.registry:
                raise TypeError(f"error code {cls.code} is used twice")
            cls.registry[cls.code] = cls

    def __init__(self, what: str, *, cause: str | None = None, remedy: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        if cause is not None:
            self.cause = cause
        if remedy is not None:
            self.remedy = remedy

    @property
    def label(self) -> str:
        """The code as people quote it, for example SIPU-1203."""
        return f"SIPU-{self.code}"

    def __str__(self) -> str:
        return f"{self.label}: {self.what}\n  Cause: {self.cause}\n  Way out: {self.remedy}"

    def to_json(self) -> dict[str, str]:
        return {
            "code": self.label,
            "what": self.what,
            "cause": self.cause,
            "remedy": self.remedy,
        }


def from_json(body: Any) -> SoftIPUError | None:
    """Rebuild an error that a server sent, or None when `body` is not one of ours."""
    if not isinstance(body, dict):
        return None
    parts = [body.get(key) for key in ("code", "what", "cause", "remedy")]
    if not all(isinstance(part, str) for part in parts):
        return None
    label, what, cause, remedy = (str(part) for part in parts)
    number = label.removeprefix("SIPU-")
    known: dict[int, type[SoftIPUError]] = {SoftIPUError.code: SoftIPUError}
    known |= SoftIPUError.registry
    kind = known.get(int(number)) if number.isdigit() else None
    return kind(what, cause=cause, remedy=remedy) if kind else None


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


# --- 15xx: commands --------------------------------------------------------------------------


class NotOnSoftwareIpu(SoftIPUError):
    code = 1501
    cause = "The option reads or drives hardware that a software IPU does not have."
    remedy = "Leave the option out; docs/tools.md lists what each tool offers here."


class PortInUse(SoftIPUError):
    code = 1502
    cause = "Another program listens on that port."
    remedy = "Choose another with --port, or end the other program."


class ScriptMissing(SoftIPUError):
    code = 1503
    cause = "The script or module to run does not exist."
    remedy = "Check the path; for modules use `softipu run -m NAME`."


class UsageError(SoftIPUError):
    code = 1504
    cause = "The command line has an unknown option, a missing argument or a wrong value."
    remedy = "Add --help to see what the command takes."


class OutputFailed(SoftIPUError):
    code = 1506
    cause = "The disk is full, or whoever read the output went away."
    remedy = "Free some space, or send the output elsewhere."


class SelfTestFailed(SoftIPUError):
    code = 1505
    cause = "A check of `softipu doctor` did not pass."
    remedy = "Read the failed lines above; attach the zip to a bug report."


# --- 16xx: executables and their cache -------------------------------------------------------


class ExecutableForeign(SoftIPUError):
    code = 1601
    cause = "The file is not an executable of softipu, or another front end made it."
    remedy = "Check the path; load a file with the front end that saved it."


class ExecutableCorrupt(SoftIPUError):
    code = 1602
    cause = "The file was cut short, altered or damaged after it was written."
    remedy = "Copy it again from where it is intact, or compile and save the program anew."


class ExecutableVersion(SoftIPUError):
    code = 1603
    cause = "Another version of softipu, with another file format, wrote the executable."
    remedy = (
        "Compile and save the program anew, or load it with the version that the message names."
    )


class ExecutableUnreadable(SoftIPUError):
    code = 1604
    cause = "There is no such file, or this user may not read it."
    remedy = "Check the path and its permissions."


class ExecutableUnwritable(SoftIPUError):
    code = 1605
    cause = "The directory does not exist, is full, or may not be written by this user."
    remedy = "Save to another path, free some space, or correct the permissions."


class CacheUnusable(SoftIPUError):
    code = 1606
    cause = "The cache directory cannot be made, locked or written, or its disk is full."
    remedy = (
        "Give another directory to enableExecutableCaching or POPTORCH_CACHE_DIR, free some space "
        "(`softipu cache clear`), or unset it to compile every time."
    )


class NotInCache(SoftIPUError):
    code = 1607
    cause = "No executable in the cache has that key: it was removed, or never there."
    remedy = "`softipu cache list` lists the keys; the first characters of one are enough."


class NotPortable(SoftIPUError):
    code = 1608
    cause = "The program holds something that only exists in this process and fits in no file."
    remedy = "Run it without saving or caching, or leave out what the message names."


# --- 20xx: PopTorch --------------------------------------------------------------------------


class PopTorchError(SoftIPUError):
    code = 2000
    cause = "PopTorch's own wording says why; the text is the one PopTorch users know."
    remedy = "Follow the message."


class CaptureDataDependent(SoftIPUError):
    code = 2001
    cause = (
        "A model is captured once, without data: Python can't branch on values or shapes that only "
        "exist when the model runs (if, while, .item(), .tolist(), nonzero, unique, masks)."
    )
    remedy = (
        "Use torch.where, poptorch.cond or poptorch.for_loop, masks of a fixed shape, or "
        "poptorch.CPU for a part that must run in Python."
    )


class CaptureUnsupported(SoftIPUError):
    code = 2002
    cause = "PyTorch has no rule that says what the operation returns without running it."
    remedy = "Replace the operation, or run it on the host with poptorch.CPU."


class UnsupportedInput(SoftIPUError):
    code = 2003
    cause = (
        "IPUs take dense tensors with at least one element, of bool, integer, half or float type."
    )
    remedy = "Convert the input (for example with .float() or .half()), or leave it out."


class BackendMissing(SoftIPUError):
    code = 2004
    cause = "The chosen backend needs hardware or a PyTorch build that is not here."
    remedy = "Unset SOFTIPU_BACKEND to compute on the CPU, or install a PyTorch with CUDA."


class FloatingPointException(SoftIPUError):
    code = 2006
    cause = "Options.Precision.enableFloatingPointExceptions is on, and a number became impossible."
    remedy = "Look at the inputs of the operation that the message names, or turn the option off."


class NoCycles(SoftIPUError):
    code = 2005
    cause = "Cycles are predicted by the machine model, which this version does not have yet."
    remedy = "Use getLatency() and its relatives for times measured on this machine."


class KerasAlreadyLoaded(SoftIPUError, ImportError):
    code = 3000
    cause = "IPU programs are written for Keras 2, and TensorFlow picks one Keras for a process."
    remedy = (
        "Import tensorflow.python.ipu before tensorflow.keras is first used, "
        "or set TF_USE_LEGACY_KERAS=1."
    )


class InvalidPoplarFlags(SoftIPUError):
    code = 3010
    cause = "TF_POPLAR_FLAGS has a flag that does not exist, or a value that the flag can't take."
    remedy = "Correct it; TF_POPLAR_FLAGS=--help prints every flag, docs/environment.md says where."


class PoplarFilesUnsupported(SoftIPUError):
    code = 3011
    cause = "The format belongs to Graphcore's run time for compiled programs, which is not here."
    remedy = (
        "Save variables with tf.train.Checkpoint or model.save, data sets with "
        "tf.data.Dataset.save, and arrays with numpy.savez."
    )


class FloatingPointTrap(SoftIPUError, ArithmeticError):
    code = 3020
    cause = "IPUConfig.floating_point_behaviour asks to stop at NaN, overflow or division by 0."
    remedy = (
        "Lower the learning rate or the loss scale, look at the inputs, or find the operation with "
        "tf.debugging.enable_check_numerics(); or leave floating_point_behaviour unset."
    )


# --- 40xx: Paddle, the native IPU API ----------------------------------------------------------


class PaddleProgramInNewIr(SoftIPUError, TypeError):
    code = 4001
    cause = (
        "The program was built in Paddle's new representation (PIR), before anything showed that "
        "it is meant for the IPU API, which works on the older one."
    )
    remedy = (
        "Set SOFTIPU_PADDLE_OLD_IR=1 (or FLAGS_enable_pir_api=0), or create the IpuStrategy before "
        "the program."
    )


class InvalidIpuOption(SoftIPUError, ValueError):
    code = 4002
    cause = "IpuStrategy has no option of that name, or not one that takes this type or value."
    remedy = "Correct it; docs/paddle.md lists every option with its type."


class InvalidIpuFeed(SoftIPUError, ValueError):
    code = 4003
    cause = (
        "A run takes replicas × accumulation × batches per step micro-batches of the shape and "
        "type that the program declares."
    )
    remedy = "Feed arrays of that size, or change micro_batch_size or the pipelining options."


class UnknownFetch(SoftIPUError, RuntimeError):
    code = 4004
    cause = "The name is no output of an operation of the program, or was not given to compile()."
    remedy = "Name it in the fetch_list of IpuCompiledProgram.compile()."


class PaddleCustomOpMissing(SoftIPUError, RuntimeError):
    code = 4005
    cause = "Compiled Poplar operations can't run here, and the operation has no CPU kernel."
    remedy = (
        "Register a Python function for it with softipu.frontends.paddle.custom.register_custom_op."
    )


class PaddleNotFinite(SoftIPUError, ArithmeticError):
    code = 4006
    cause = "enable_floating_point_checks is on, and a number became impossible."
    remedy = "Look at the inputs and the learning rate, or turn the option off."


class InvalidIpuPlacement(SoftIPUError, ValueError):
    code = 4007
    cause = "Operations are placed on IPUs that a replica of the program does not have."
    remedy = "Raise num_ipus in set_graph_config, or lower the index in ipu_shard_guard."


class PaddleUnsupported(SoftIPUError, NotImplementedError):
    code = 4008
    cause = "This part of the IPU API needs Graphcore's own run time."
    remedy = "Leave it out; docs/paddle.md lists what is supported."


class PaddlePluginMissing(SoftIPUError, ValueError):
    code = 4009
    cause = "Dynamic-graph devices such as ipu:1 come from the plugin, which is not installed."
    remedy = (
        "Install it with `pip install ./plugins/paddle`, or run the model through "
        "paddle.static.IpuStrategy."
    )


class PaddleTrainingInvalid(SoftIPUError, RuntimeError):
    code = 4010
    cause = "IpuStrategy says is_training=True, but the program has no optimizer."
    remedy = "Call optimizer.minimize(loss) first, or set_graph_config(is_training=False)."


# --- 41xx: paddle.inference ------------------------------------------------------------------


class InferenceOptionType(SoftIPUError, TypeError):
    code = 4100
    cause = "The option takes a value of another type."
    remedy = "Correct the value; docs/paddle-inference.md lists the options with their types."


class InferenceOptionValue(SoftIPUError, ValueError):
    code = 4101
    cause = "The option exists, but can't have this value, or not together with another one."
    remedy = "Correct the value; docs/paddle-inference.md lists the options with their ranges."


class InferenceConfigFile(SoftIPUError, ValueError):
    code = 4102
    cause = "A file for Config.load_ipu_config has lines `option,value` with options of the IPU."
    remedy = "Correct the line; docs/paddle-inference.md lists the options."


class InferenceModelMissing(SoftIPUError, RuntimeError):
    code = 4110
    cause = "There is no such file, it is a directory, or this user may not read it."
    remedy = (
        "Check the paths given to paddle.inference.Config: a .pdmodel or .json file, and the "
        ".pdiparams file that was saved with it."
    )


class InferenceModelUnreadable(SoftIPUError, RuntimeError):
    code = 4111
    cause = "The file was cut short or damaged, is of another kind, or belongs to another model."
    remedy = "Save the model again with paddle.jit.save, and copy all of its files."


class InferenceInput(SoftIPUError, ValueError):
    code = 4120
    cause = "A program for the IPU is compiled for inputs of fixed shapes and types."
    remedy = (
        "Feed what the message asks for, or give ipu_micro_batch_size (and ipu_batches_per_step, "
        "ipu_replica_num) to Config so that their product is the batch you feed."
    )


class InferenceUnsupported(SoftIPUError, RuntimeError):
    code = 4130
    cause = "The combination is not possible on an IPU, or not on this one."
    remedy = "Leave out what the message names."


class CppToolchain(SoftIPUError):
    code = 4140
    cause = "The C++ library is compiled for this Python and this Paddle when it is installed."
    remedy = "Install what the message names (on Debian: apt install g++ python3-dev)."


# --- 42xx: Paddle's plugin, which raises them from C++ -------------------------------------------


class PluginFallbackRefused(SoftIPUError):
    code = 4201
    cause = "SOFTIPU_PADDLE_STRICT=1, and the op has no kernel for the device."
    remedy = "Unset SOFTIPU_PADDLE_STRICT, or leave the op out."


class PluginOneDnn(SoftIPUError):
    code = 4202
    cause = "The oneDNN inside Paddle's wheel refused a computation that it had accepted."
    remedy = "Set SOFTIPU_PADDLE_ONEDNN=0, and report it."


class PluginKernelFailed(SoftIPUError):
    code = 4203
    cause = "A kernel of Paddle's CPU threw an exception that Paddle does not pass on to Python."
    remedy = "Check the op's inputs; on Paddle's own CPU the same call ends the process."


class PluginOutOfMemory(SoftIPUError):
    code = 4204
    cause = "Tensors of the device live in host memory, and the host has none left."
    remedy = "Use smaller batches, or end other programs."


class PluginVersion(SoftIPUError):
    code = 4210
    cause = "The plugin calls into Paddle's C++ classes, which differ between versions."
    remedy = "Build it again for this Paddle: `pip install --force-reinstall ./plugins/paddle`."


class PluginTwice(SoftIPUError):
    code = 4211
    cause = "The plugin lies in two directories, and Paddle was told to load both."
    remedy = "Remove one of them, or set CUSTOM_DEVICE_ROOT to the one that you mean."


class PluginKernels(SoftIPUError):
    code = 4212
    cause = "The plugin's kernel library is missing, damaged or built for another Paddle."
    remedy = "Install the plugin again: `pip install --force-reinstall ./plugins/paddle`."


class PluginPartition(SoftIPUError):
    code = 4213
    cause = (
        "Partitions made with `vipu`, here or on a V-IPU server, are read by softipu's Python "
        "package, which hands them to the plugin; it is not active in this process."
    )
    remedy = (
        "Install softipu beside Paddle and unset SOFTIPU_DISABLE_HOOKS, or name the partition's "
        "file in IPUOF_CONFIG_PATH (`vipu get partition NAME --ipuof-configs > FILE`)."
    )


class PluginCollective(SoftIPUError):
    code = 4214
    cause = "Processes that compute together must all live, on one host with enough shared memory."
    remedy = "Look at the output of the other processes, and at `df /dev/shm`."


# --- 60xx: the CNN benchmark harness ---------------------------------------------------------


class UnknownModel(SoftIPUError):
    code = 6001
    cause = "The harness has no model of that name."
    remedy = "`softipu bench run --help` lists the models."


class UnknownConfig(SoftIPUError):
    code = 6002
    cause = "The file of configurations has none of that name."
    remedy = "`softipu bench run --help` lists the configurations."


class ConfigFileUnusable(SoftIPUError):
    code = 6003
    cause = "Configurations are a YAML mapping from names to options of `softipu bench run`."
    remedy = "Correct the file; src/softipu/bench/configs.yml is an example."


class UnfitBenchOption(SoftIPUError):
    code = 6004
    cause = "An option of the harness has a value of the wrong type or range, or excludes another."
    remedy = "`softipu bench run --help` says what each option takes."


class NoSuchLayer(SoftIPUError):
    code = 6005
    cause = "Pipelines are split at layers, named by their path in the model, in the model's order."
    remedy = "Name layers as `model.named_modules()` does, with / or . between the parts."


class GroupsUneven(SoftIPUError):
    code = 6006
    cause = "Channels are divided into groups of one size."
    remedy = "Choose another --norm-num-groups or --efficientnet-group-dim."


class WeightsUnusable(SoftIPUError):
    code = 6007
    cause = "The file holds no state dict, or that of another model."
    remedy = "Save it with `torch.save(model.state_dict(), FILE)`, from the same model and options."


class ImagesMissing(SoftIPUError):
    code = 6008
    cause = "The folder does not exist, or there is no image in it or in its subfolders."
    remedy = "Name a folder with images in --data-path, or use --data generated."


class ImageUnreadable(SoftIPUError):
    code = 6009
    cause = "The file is damaged, or no image, or may not be read."
    remedy = "Remove or replace the file."


class BenchPackageMissing(SoftIPUError):
    code = 6010
    cause = "The CNN harness needs packages that softipu's other parts do without."
    remedy = "`pip install 'softipu[torch,bench]'`."


class HarnessRefused(SoftIPUError):
    code = 6011
    cause = "PopTorch refused the model, the options or the data that the harness gave it."
    remedy = (
        "Change the option that the message speaks of; for more IPUs, set SOFTIPU_SYSTEM to a "
        "larger system (for example bow-pod64)."
    )


# --- 6050–6099: the benchmark runner -------------------------------------------------------------


class SpecMissing(SoftIPUError):
    code = 6050
    cause = "No file lies where --spec points (the default is benchmarks.yml in this directory)."
    remedy = "Check the path; put a wildcard in quotes so that the runner resolves it."


class SpecMalformed(SoftIPUError):
    code = 6051
    cause = "A spec file is YAML: a mapping from names to benchmarks, each itself a mapping."
    remedy = "Correct the file where the message points; docs/benchmark-runner.md has an example."


class BenchmarkUnknown(SoftIPUError):
    code = 6052
    cause = "A name given with --benchmark is in none of the spec files."
    remedy = "Choose a name that `--dry-run` lists; wildcards such as 'resnet50_*' are allowed."


class BenchmarkInvalid(SoftIPUError):
    code = 6053
    cause = "An entry of a spec file has a value that the runner cannot use."
    remedy = "Correct the entry; docs/benchmark-runner.md lists the keys and what they take."


class PlaceholderUnknown(SoftIPUError):
    code = 6054
    cause = "A {name} in a command or expression is filled from `parameters` (or metrics)."
    remedy = "Add the parameter, correct its name, or write {{ and }} for braces that are meant."


class RunnerEnvironment(SoftIPUError):
    code = 6055
    cause = "The benchmark needs an environment variable that is not set."
    remedy = "Set the variables that the message names."


class ProgramMissing(SoftIPUError):
    code = 6056
    cause = "The program that the command begins with is not on PATH."
    remedy = "Install it, correct PATH, or name the program with its directory."


class PreRunFailed(SoftIPUError):
    code = 6057
    cause = "A command under `pre_run_commands` failed, so the benchmark was not started."
    remedy = "Look at the log that the message names; --no-pre-run leaves these commands out."


class BenchmarkFailed(SoftIPUError):
    code = 6058
    cause = "The benchmark's process ended with an error of its own."
    remedy = "Look at its log, which the message names."


class BenchmarkTimeout(SoftIPUError):
    code = 6059
    cause = "The benchmark ran longer than --timeout or its own `timeout` allows, and was stopped."
    remedy = "Allow it more time, or look into its log for where it hangs."


class MetricMissing(SoftIPUError):
    code = 6060
    cause = "A metric's regexp must match the output more often than `skip`, each time a number."
    remedy = "Compare the benchmark's log with the metric's regexp."


class RunnerUnsupported(SoftIPUError):
    code = 6061
    cause = "The runner does not offer this on a software IPU."
    remedy = "Leave out what the message names."


class RequirementsFailed(SoftIPUError):
    code = 6062
    cause = "What a benchmark needs installed could not be installed."
    remedy = "Install it by hand, or take the key out of the spec file."


class BenchDependency(SoftIPUError, ImportError):
    code = 6063
    cause = "Measuring needs a few packages that softipu alone does not."
    remedy = "Run `pip install 'softipu[bench]'`."


class CustomMetricFailed(SoftIPUError):
    code = 6064
    cause = "A file given with --custom-metrics-files is Python code that registers functions."
    remedy = "Correct the file; see `register_custom_metric` in docs/benchmark-runner.md."


class RunInterrupted(SoftIPUError):
    code = 6065
    cause = "The runner was stopped from outside (Ctrl-C or a signal) during this benchmark."
    remedy = "Run it again; the results so far are in the log directory."


class LogsUnwritable(SoftIPUError):
    code = 6066
    cause = "The directory for logs and results can't be made or written to."
    remedy = "Name another one with --log-dir."


class ResultsUnreadable(SoftIPUError):
    code = 6067
    cause = "Plots are made from benchmark_results.json or .csv files, or directories with them."
    remedy = "Name a log directory of the runner, or one of these files."


class CopyrightMissing(SoftIPUError):
    code = 6068
    cause = "Source files that are not empty must have a copyright line near their beginning."
    remedy = "Add the line, let --amend add it, or list the files with --exclude-json."


class CppExtensionUnsupported(SoftIPUError, RuntimeError):
    code = 6069
    cause = "Compiled operations for Poplar or PopART can't be built or run here."
    remedy = "Register a Python function in their place: see poptorch.register_custom_op."


class NotebookFailed(SoftIPUError):
    code = 6070
    cause = "A cell of the notebook raised an error, ran too long, or its kernel died."
    remedy = "Run the notebook by hand to see more."


# --- 61xx: serving ---------------------------------------------------------------------------


class ServerMissing(SoftIPUError):
    code = 6100
    cause = "The Triton server comes with the package nvidia-pytriton, which is not complete here."
    remedy = "pip install --no-deps nvidia-pytriton==0.7.0 (Linux with glibc 2.35 or later)."


class ServerDied(SoftIPUError):
    code = 6101
    cause = "The Triton server ended by itself; its last lines say why."
    remedy = "Correct what they name and start it again; --log-file keeps all lines."


class ServerNotReady(SoftIPUError):
    code = 6102
    cause = "The Triton server did not become ready in time: models load slowly, or it hangs."
    remedy = "Give more time with --startup-timeout, or look at its lines with --log-file."


class ServingSelfTestFailed(SoftIPUError):
    code = 6103
    cause = "Values that go through the server come back changed, so that no answer can be trusted."
    remedy = "Reinstall torch and nvidia-pytriton in the pinned versions, and report it."


class RepositoryInvalid(SoftIPUError):
    code = 6104
    cause = "A model repository is a directory of models: NAME/config.pbtxt, NAME/1/…"
    remedy = "Check the path, or make an entry with `softipu serve export`."


class ModelFileMissing(SoftIPUError):
    code = 6105
    cause = "A model is config.pbtxt, 1/name_map.json and 1/executable.popef."
    remedy = "Export the model again with `softipu serve export`."


class NameMapInvalid(SoftIPUError):
    code = 6106
    cause = "name_map.json maps each tensor name of the executable to a name in config.pbtxt."
    remedy = "Correct the file, or export the model again with `softipu serve export`."


class ConfigMismatch(SoftIPUError):
    code = 6107
    cause = "config.pbtxt promises what the executable does not take or give."
    remedy = "Correct config.pbtxt, or export the model again with `softipu serve export`."


class NotServable(SoftIPUError):
    code = 6108
    cause = "A server answers each request by itself, whatever else is in the batch."
    remedy = "Export an inference model whose inputs and outputs have the batch in front."


class NothingServed(SoftIPUError):
    code = 6109
    cause = "No model could be loaded, and --model-control-mode none loads none later."
    remedy = "Correct what the messages about the models name."


class RequestRefused(SoftIPUError):
    code = 6110
    cause = "The request does not fit the model's configuration."
    remedy = "Compare it with http://HOST:PORT/v2/models/NAME/config."


class ExportRefused(SoftIPUError):
    code = 6111
    cause = "The entry would not be one that the server can use, or would replace another."
    remedy = "Choose another name or directory, or remove the entry that is there."


class ModelControlFailed(SoftIPUError):
    code = 6112
    cause = "The Triton server refused to load or unload a model; the message is its own."
    remedy = "Correct what the message names and load the model again."


# --- 6150–6199: measuring a server -----------------------------------------------------------


class ServedValuesWrong(SoftIPUError):
    code = 6150
    cause = "The server's answers are not those of the model, so that its speed means nothing."
    remedy = "Start it with `softipu serve`, whose self-test looks closer, and report it."


class BenchClientFailed(SoftIPUError):
    code = 6151
    cause = "The server refused what the clients sent, ended, or is too slow for their limit."
    remedy = "Correct what the message names; fewer or smaller requests make it faster."


class ReloadedValuesWrong(SoftIPUError):
    code = 6152
    cause = "An executable gives other values after it was written and read again."
    remedy = "Export the model again on this machine; if that does not help, report it."


class RequestsTooAlike(SoftIPUError):
    code = 6153
    cause = "Different images get almost the same scores, so that exchanged answers go unnoticed."
    remedy = "Use weights that tell images apart, or --precision 32.32."
