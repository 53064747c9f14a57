"""The names under which programs import the IPU modules, each program in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def run(program: str, tmp_path, name: str = "program.py") -> str:
    script = tmp_path / name
    script.write_text(program)
    settings = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
    settings |= {"SOFTIPU_HOME": str(tmp_path / "home"), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=settings, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_every_spelling_is_one_module(tmp_path):
    shown = run(
        """
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers
import tensorflow.python.ipu as whole
from tensorflow.python import ipu
from tensorflow.python.ipu import config, utils
from tensorflow.python.ipu.ops import nn_ops
import tensorflow.keras.ipu as by_package
import tf_keras.ipu
assert ipu is whole and ipu.config is config and ipu.ops.nn_ops is nn_ops
assert keras.ipu is tf.keras.ipu is by_package is tf_keras.ipu
assert keras.ipu.PipelineStage and issubclass(layers.Dense, tf_keras.layers.Layer)
print(keras.optimizers.SGD(lr=0.25).lr.numpy())
print(len(tf.config.list_physical_devices('IPU')) > 0)
""",
        tmp_path,
    )
    assert shown.split() == ["0.25", "True"]


def test_modules_of_tensorflow_2_6_are_found_where_they_were(tmp_path):
    shown = run(
        """
from tensorflow.python import ipu
import tf_keras
from tensorflow.python.training import training_ops
from tensorflow.python.keras.applications import resnet
from keras.optimizer_v2 import gradient_descent
assert issubclass(gradient_descent.SGD, tf_keras.optimizers.legacy.Optimizer)
print(callable(training_ops.resource_apply_momentum))
print(resnet.ResNet50 is tf_keras.applications.resnet.ResNet50)
""",
        tmp_path,
    )
    assert shown.split() == ["True", "True"]


def test_others_are_left_alone(tmp_path):
    shown = run(
        """
import os, sys
import tensorflow as tf
print(os.environ.get("TF_USE_LEGACY_KERAS"), tf.keras.__version__.split(".")[0])
print(any("softipu.frontends.tensorflow.patches" in name for name in sys.modules))
print(len(tf.config.list_physical_devices("IPU")))
""",
        tmp_path,
    )
    assert shown.split() == ["None", "3", "False", "0"]


@pytest.mark.parametrize("use", ["tf.keras.layers.Dense", "tensorflow.keras.layers.Dense"])
def test_keras_3_before_the_ipu_modules_is_an_error(tmp_path, use):
    # The name is put together, so that the program's text does not give it away.
    shown = run(
        f"""
import importlib
import tensorflow, tensorflow as tf
if "{use}".startswith("tensorflow"):
    import tensorflow.keras.layers
{use}
try:
    importlib.import_module("tensorflow.python" + ".ip" + "u")
except ImportError as error:
    print(error)
""",
        tmp_path,
    )
    assert "SIPU-3000" in shown
    assert "TF_USE_LEGACY_KERAS=1" in shown


def test_late_is_early_enough_before_keras_is_used(tmp_path):
    shown = run(
        """
import importlib
import tensorflow as tf
from tensorflow import keras
ipu = importlib.import_module("tensorflow.python" + ".ip" + "u")
print(keras.layers.Dense.__module__.split(".")[0], keras.ipu.PipelineStage.__name__)
""",
        tmp_path,
    )
    assert shown.split() == ["tf_keras", "PipelineStage"]


def test_everything_is_there_for_an_import_of_all_names(tmp_path):
    shown = run(
        """
from tensorflow.python.ipu.optimizers import *
from keras.ipu.optimizers import *
from tensorflow.python.ipu import *
print(IpuOptimizer.__name__, CrossReplicaGradientAccumulationOptimizerV2.__name__)
print(ALSOptimizerAdam.__name__, config.IPUConfig.__name__, nn_ops.gelu.__name__)
""",
        tmp_path,
    )
    assert shown.split()[:3] == [
        "IpuOptimizer",
        "CrossReplicaGradientAccumulationOptimizerV2",
        "ALSOptimizerAdam",
    ]


def test_a_name_that_is_not_there_gets_a_hint(tmp_path):
    shown = run(
        """
import tensorflow as tf
from tensorflow.python import ipu
for name in ("ipu.keras.Model", "ipu.utls", "ipu.IPUConfig", "ipu.optimizers.IPUOptimizer",
             "tf.keras.ipu.PipelinStage", "tf.keras.ipu.layers.Dropout", "tf.keras.ipu.Model",
             "tf.keras.ipu.optimizers.LAMB"):
    try:
        eval(name)
    except AttributeError as error:
        print(error)
try:
    from tensorflow.python.ipu import keras
except ImportError as error:
    print(hasattr(ipu, "nothing_like_it"), error)
""",
        tmp_path,
    ).splitlines()
    hints = (
        "`tf.keras.ipu`", "'utls'. Did you mean `utils`?", "`ipu.config.IPUConfig`", "`IpuOptimizer`",
        "`PipelineStage`", "ipu_tensorflow_addons.keras.layers", "under an IPUStrategy",
        "ipu_tensorflow_addons.keras.optimizers", "False cannot import name",
    )  # fmt: skip
    for line, hint in zip(shown, hints, strict=True):
        assert hint in line
        assert "?." not in line


ESTIMATORS = """
import tensorflow as tf
import tensorflow.compat.v1 as tf1
IMPORT
import importlib

def told(use):
    try:
        use()
    except (AttributeError, ImportError) as error:
        print(type(error).__mro__[3].__name__, "SIPU-3014" in str(error), "IPUStrategy" in str(error))

def from_tensorflow():
    from tensorflow import estimator

told(lambda: tf.estimator.Estimator)
told(lambda: tf1.estimator.RunConfig)
told(lambda: tf.compat.v2.estimator)
told(lambda: importlib.import_module("tensorflow.python.estimator.estimator"))
told(from_tensorflow)
print(hasattr(tf, "estimator"), getattr(tf1, "estimator", None), tf1.placeholder.__name__)
try:
    tf.nothing_of_that_name
except AttributeError as error:
    print(error)
"""


def test_estimators_are_an_error_that_says_what_to_use(tmp_path):
    shown = run(ESTIMATORS.replace("IMPORT", "from tensorflow.python import ipu"), tmp_path)
    *told, there, other = shown.splitlines()
    assert told == ["AttributeError True True"] * 3 + ["ModuleNotFoundError True True"] * 2
    assert there == "False None placeholder"
    assert other.startswith("module 'tensorflow' has no attribute 'nothing_of_that_name'")


def test_estimators_are_tensorflows_own_affair_in_other_programs(tmp_path):
    shown = run(ESTIMATORS.replace("IMPORT", ""), tmp_path)
    assert "SIPU" not in shown
    assert "True" not in shown
