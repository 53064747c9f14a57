"""Seen as tensorflow.python.ipu: IPU programs for TensorFlow 2.

Submodules load when they are first used, so that a program pays for what it touches only.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from softipu.frontends.tensorflow import patches, unknown_names

#: Names that programs use as `ipu.NAME` -> the module behind it.
_MODULES = {
    **{
        name: f".{name}"
        for name in (
            "config", "data", "dataset_benchmark", "dataset_extractor", "distributed", "eager",
            "gradient_accumulation", "ipu_compiler", "ipu_estimator", "ipu_infeed_queue",
            "ipu_multi_worker_strategy", "ipu_outfeed_queue", "ipu_pipeline_estimator",
            "ipu_run_config", "ipu_session_run_hooks", "ipu_strategy", "keras_extensions", "loops",
            "ops", "optimizers", "scopes", "serving", "sharding", "utils", "vertex_edsl",
        )
    },
    **{
        name: f".ops.{name}"
        for name in (
            "all_to_all_op", "application_compile_op", "control_flow_ops", "cross_replica_ops",
            "custom_ops", "embedded_runtime", "embedding_ops", "f8_ops", "functional_ops",
            "grad_util_ops", "image_ops", "internal_ops", "math_ops", "nn_ops",
            "normalization_ops", "pipelining_ops", "rand_ops", "reduce_scatter_op",
            "replication_ops", "rnn_ops", "slicing_ops", "statistics_ops", "within_replica_ops",
        )
    },
    **{
        name: f".optimizers.{name}"
        for name in (
            "cross_replica_optimizer", "gradient_accumulation_optimizer", "ipu_optimizer",
            "map_gradient_optimizer", "sharded_optimizer",
        )
    },
}  # fmt: skip
__all__ = sorted({*_MODULES, "outlined_function"})


def __getattr__(name: str) -> Any:
    if name == "outlined_function":
        return import_module(".ops.functional_ops", __name__).outlined_function
    if name not in _MODULES:
        raise unknown_names.error(__name__, name, __all__)
    module = import_module(_MODULES[name], __name__)
    globals()[name] = module
    return module


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


patches.install()
