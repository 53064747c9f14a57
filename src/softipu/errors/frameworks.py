"""What the front ends for PyTorch and TensorFlow report."""

from __future__ import annotations

from .base import SoftIPUError

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
        "Use torch.where, poptorch.cond or poptorch.for_loop, masks of a fixed shape, "
        "poptorch.dynamic_slice for a slice that starts where a tensor says, or poptorch.CPU for a "
        "part that must run in Python."
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


class KerasAlreadyLoaded(SoftIPUError, ImportError):
    code = 3000
    cause = "IPU programs are written for Keras 2, and TensorFlow picks one Keras for a process."
    remedy = (
        "Import tensorflow.python.ipu before keras or tensorflow.keras is first used (in a "
        "notebook: in its first cell), or set TF_USE_LEGACY_KERAS=1 if the program uses tf.keras."
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


class AddonNotThere(SoftIPUError, ImportError):
    code = 3012
    cause = (
        "Of Graphcore's ipu_tensorflow_addons, softipu has the Keras layers and optimisers; this "
        "part works on Poplar's programs or profiles, or is rarely used."
    )
    remedy = "Use the parts of tf.keras and tensorflow.python.ipu of which it is made."


class ExecutableCacheUnusable(SoftIPUError):
    code = 3013
    cause = (
        "TF_POPLAR_FLAGS=--executable_cache_path names a file, a directory that this user may not "
        "make or write, or one on a full disk."
    )
    remedy = "Name another directory, free some space, or leave the flag out to compile every time."


class EstimatorNotThere(SoftIPUError):
    code = 3014
    cause = "TensorFlow removed tf.estimator in version 2.16, and what IPUs add to it went with it."
    remedy = (
        "Use a Keras model under ipu.ipu_strategy.IPUStrategy (fit, evaluate, predict), or "
        "ipu.ipu_compiler.compile with ipu.loops.repeat, IPUInfeedQueue and IPUOutfeedQueue for a "
        "training loop of your own."
    )


class EstimatorAttributeNotThere(EstimatorNotThere, AttributeError):
    """Of a module; code that asks with hasattr goes on."""


class EstimatorModuleNotThere(EstimatorNotThere, ModuleNotFoundError):
    """Code that has something else in store for an ImportError goes on."""


class EstimatorClassNotThere(EstimatorNotThere, NotImplementedError):
    """Of a module whose import is no error; `from … import …` would drop an AttributeError."""


class FloatingPointTrap(SoftIPUError, ArithmeticError):
    code = 3020
    cause = "IPUConfig.floating_point_behaviour asks to stop at NaN, overflow or division by 0."
    remedy = (
        "Lower the learning rate or the loss scale, look at the inputs, or find the operation with "
        "tf.debugging.enable_check_numerics(); or leave floating_point_behaviour unset."
    )


class CompiledHalfNotThere(SoftIPUError, AttributeError):
    code = 2061
    cause = (
        "It shows or drives what PopTorch's compiled half does with PopART, and neither is there."
    )
    remedy = (
        "Ask PoplarExecutor.getTensorNames() for the tensors of a compiled model, or "
        "softipu.estimate(model).steps and `softipu report` for its operations."
    )


class PopartNotThere(SoftIPUError, AttributeError):
    code = 2060
    cause = (
        "Of PopART, softipu has the enumerations with which PopTorch programs set options; the API "
        "that builds graphs and sessions (popart.Builder, TrainingSession, popxl) is not there."
    )
    remedy = "Write the model in PyTorch and run it with poptorch; keep to popart's enumerations."
