"""What the front end for Paddle and its plugin report."""

from __future__ import annotations

from .base import SoftIPUError

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
    remedy = "Correct it; docs/options.md lists every option with its type."


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


class PaddleVersion(SoftIPUError, RuntimeError):
    code = 4011
    cause = (
        "softipu puts its IPU API in the place of functions inside Paddle, which differ between "
        "versions; it knows those of Paddle 3.3 and leaves others alone."
    )
    remedy = "pip install 'paddlepaddle>=3.3,<3.4'; SOFTIPU_DISABLE_HOOKS=1 silences the warning."


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
