"""Names of TensorFlow 2.6 that IPU programs use and that have moved since, put back in place."""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: Module -> names it had, and where each is now: "module", where it has the same name,
#: "module:other name", or "module:" for that module itself.
_NAMES = {
    "tensorflow.python.ops.control_flow_ops": {
        "Assert": "tensorflow.python.ops.control_flow_assert",
        "case": "tensorflow.python.ops.control_flow_case",
        "cond": "tensorflow.python.ops.cond",
        "switch_case": "tensorflow.python.ops.control_flow_switch_case",
        "while_loop": "tensorflow.python.ops.while_loop",
    },
    "tensorflow.python.ops.array_ops": {
        "stack": "tensorflow.python.ops.array_ops_stack",
        "unstack": "tensorflow.python.ops.array_ops_stack",
    },
    "tensorflow.python.framework.ops": {
        "Tensor": "tensorflow.python.framework.tensor",
        "convert_to_tensor_v2": "tensorflow.python.framework.tensor_conversion",
        "convert_to_tensor_v2_with_dispatch": "tensorflow.python.framework.tensor_conversion",
    },
    "tensorflow.python.distribute.distribute_lib": {
        "get_loss_reduction": "tensorflow.python.distribute.distribute_utils",
    },
    "tf_keras.losses": {"losses_utils": "tf_keras.src.utils:losses_utils"},
    "tf_keras.src.mixed_precision.policy": {
        "set_policy": "tf_keras.src.mixed_precision.policy:set_global_policy",
    },
    "tensorflow.python.distribute.input_lib": {
        "DistributedDatasetInterface": "tensorflow.python.types.distribute",
    },
    "tensorflow.python.keras.utils": {"np_utils": "tf_keras.src.utils.np_utils:"},
    "tensorflow.python.ops.nn": {
        "dynamic_rnn": "tensorflow.python.ops.rnn",
        "rnn_cell": "tensorflow.python.ops.rnn_cell:",
    },
    "tensorflow.python.eager.function": {
        "defun": "tensorflow.python.eager.def_function:function",
    },
}
#: Modules that were, and where they are now; the import finder resolves them.
MODULES = {
    "tensorflow.python.distribute.distribution_strategy_context": (
        "tensorflow.python.distribute.distribute_lib"
    ),
    "tensorflow.python.training.tracking.util": "tensorflow.python.checkpoint.checkpoint",
    # `from tensorflow.python.training.tracking import util` asks for it by its package's new name.
    "tensorflow.python.trackable.util": "tensorflow.python.checkpoint.checkpoint",
    "tensorflow.python.training.tracking": "tensorflow.python.trackable",
    "tensorflow.python.training.training_ops": "tensorflow.python.ops.gen_training_ops",
    "tensorflow.python.keras.applications": "tf_keras.src.applications",
    "tensorflow.python.keras.datasets": "tf_keras.src.datasets",
    "tensorflow.compat.v2.keras": "tf_keras.api._v2.keras",
    "tensorflow.compat.v1.keras": "tf_keras.api._v1.keras",
    "tf_keras.legacy_tf_layers": "tf_keras.src.legacy_tf_layers",
    "tf_keras.src.saving.save": "tf_keras.src.saving.legacy.save",
}


def install() -> None:
    for module_name, names in _NAMES.items():
        module = import_module(module_name)
        for name, place in names.items():
            if not hasattr(module, name):
                setattr(module, name, _moved(name, place))
    _give_back_initialized_value()


def _moved(name: str, place: str) -> Any:
    module_name, colon, other = place.partition(":")
    module = import_module(module_name)
    return module if colon and not other else getattr(module, other or name)


def _give_back_initialized_value() -> None:
    """Variables of TensorFlow 2.6 could say what they are or will be initialised to."""
    from tensorflow.python.ops import cond, resource_variable_ops

    def initialized_value(self: Any) -> Any:
        return cond.cond(self.is_initialized(), self.read_value, lambda: self.initial_value)

    kind = resource_variable_ops.BaseResourceVariable
    if "initialized_value" not in vars(kind):  # its base class has one that only raises
        kind.initialized_value = initialized_value
