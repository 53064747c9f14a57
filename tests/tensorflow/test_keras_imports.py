"""Plain `keras` in a program, and modules that only another spelling of ours knows."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def run(program: str, tmp_path) -> list[str]:
    script = tmp_path / "program.py"
    script.write_text(program)
    settings = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
    settings |= {"SOFTIPU_HOME": str(tmp_path / "home"), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=settings, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()


def test_keras_is_keras_2_in_a_program_for_the_ipu(tmp_path):
    shown = run(
        """
from tensorflow.python import ipu
import keras, tf_keras
from keras.datasets import mnist
from keras.optimizers import SGD
from keras.optimizer_v2.gradient_descent import SGD as same
from keras.ipu.optimizers import ALSOptimizer
assert keras is tf_keras and SGD is same is keras.optimizers.SGD
print(keras.__version__.split(".")[0], keras.losses.losses_utils.ReductionV2.SUM)
""",
        tmp_path,
    )
    assert shown == ["2", "sum"]


def test_keras_is_keras_2_also_where_a_program_for_the_ipu_imports_it_first(tmp_path):
    shown = run(
        """
from keras.layers import Dense
import keras
import tensorflow as tf
from tensorflow.python import ipu
print(keras.__version__.split(".")[0], Dense is tf.keras.layers.Dense)
""",
        tmp_path,
    )
    assert shown == ["2", "True"]
    shown = run("import keras\nprint(keras.__version__.split('.')[0])", tmp_path)
    assert shown == ["3"]


def test_optimizers_imported_before_the_ipu_modules_are_those_of_2_6(tmp_path):
    shown = run(
        """
import tensorflow as tf
from tensorflow.keras.optimizers import Adam
from tensorflow.keras import optimizers
from tensorflow.python import ipu
print(float(Adam(lr=0.25).lr), Adam is optimizers.Adam is tf.keras.optimizers.Adam)
""",
        tmp_path,
    )
    assert shown == ["0.25", "True"]


@pytest.mark.parametrize("before", ["", "import os; os.environ['TF_USE_LEGACY_KERAS'] = '1'"])
def test_keras_2_may_be_what_loads_tensorflow(tmp_path, before):
    shown = run(
        f"""
{before}
import tf_keras as keras
from tf_keras.datasets import mnist
from tf_keras.optimizers import Adam
from tensorflow.python import ipu
import tensorflow as tf
print(float(Adam(lr=0.25).lr), keras.Sequential is tf.keras.Sequential, keras.ipu.__name__)
""",
        tmp_path,
    )
    assert shown[:2] == ["0.25", "True"]


def test_keras_3_in_a_program_whose_text_does_not_tell_is_an_error_that_says_where(tmp_path):
    shown = run(
        """
import importlib
import keras
try:
    importlib.import_module("tensorflow.python" + ".ip" + "u")
except ImportError as error:
    print(error)
""",
        tmp_path,
    )
    assert shown[0] == "SIPU-3000:"
    assert "program.py, line 3)" in " ".join(shown)


def test_keras_has_its_version(tmp_path):
    shown = run(
        """
from tensorflow.keras import layers
from tensorflow.python import ipu
import tensorflow as tf, tf_keras
print(tf.keras.__version__ == tf_keras.__version__)
""",
        tmp_path,
    )
    assert shown == ["True"]


def test_keras_stays_what_it_is_in_other_programs(tmp_path):
    shown = run("import tensorflow, keras\nprint(keras.__version__.split('.')[0])", tmp_path)
    assert shown == ["3"]


def test_a_module_is_found_under_the_spelling_that_someone_provides_it_for(tmp_path):
    (tmp_path / "extra.py").write_text("loaded = 1")
    shown = run(
        f"""
import importlib, importlib.util, sys
from tensorflow.python import ipu
class Provider:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "keras.ipu.optimizers.extra":
            return importlib.util.spec_from_file_location(name, {str(tmp_path / "extra.py")!r})
sys.meta_path.append(Provider)
from keras.ipu.optimizers import extra
import keras.ipu.optimizers.extra as again, tf_keras.ipu.optimizers.extra as canonical
assert extra is again is canonical and extra.loaded == 1
try:
    importlib.import_module("tf_keras.ipu.optimizers.missing")
except ModuleNotFoundError as error:
    print(error.name)
""",
        tmp_path,
    )
    assert shown == ["tf_keras.ipu.optimizers.missing"]
