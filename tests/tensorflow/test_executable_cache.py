"""--executable_cache_path: where it can't be written, programs for IPUs say so, and no others."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from softipu.errors import ExecutableCacheUnusable
from softipu.frontends.tensorflow import executable_cache, flags

PROGRAM = """
import tensorflow as tf
print(int(tf.constant(1) + 1))
from tensorflow.python import ipu
print(ipu.config.IPUConfig().auto_select_ipus)
step = tf.function(lambda: tf.constant(3))
strategy = ipu.ipu_strategy.IPUStrategy()
try:
    strategy.run(step)
except Exception as error:
    print(error)
"""


def test_a_file_in_its_place_is_an_error_of_the_first_program_for_ipus(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    own = {
        "SOFTIPU_HOME": str(tmp_path / "home"), "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_POPLAR_FLAGS": f"--executable_cache_path={file}",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=os.environ | own,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    sum_, ipus, error, *_ = done.stdout.splitlines()
    assert (sum_, ipus) == ("2", "[]")
    assert error.startswith(f"SIPU-3013: TF_POPLAR_FLAGS: --executable_cache_path: {file}")
    assert file.read_text() == "mine"


@pytest.fixture
def asked_for(monkeypatch):
    """Has a process ask for a directory before TensorFlow loads."""
    monkeypatch.setenv("TF_XLA_FLAGS", "")
    monkeypatch.setattr(executable_cache, "_troubles", {})

    def ask(path: object) -> str:
        monkeypatch.setenv(flags.VARIABLE, f"--executable_cache_path={path}")
        executable_cache.request()
        return os.environ["TF_XLA_FLAGS"]

    return ask


def test_a_directory_that_can_be_written_is_given_to_xla(asked_for, tmp_path):
    assert f"={tmp_path}/new/xla-" in asked_for(tmp_path / "new")
    executable_cache.demand()
    assert [file.name[:4] for file in (tmp_path / "new").iterdir()] == ["xla-"]


def test_a_directory_that_can_not_be_written_is_not(asked_for, tmp_path, monkeypatch):
    def full(**_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(executable_cache.tempfile, "TemporaryFile", full)
    assert asked_for(tmp_path) == ""
    with pytest.raises(ExecutableCacheUnusable, match="xla-.*: No space left on device"):
        executable_cache.demand()
    monkeypatch.setenv(flags.VARIABLE, "")  # changed its mind
    executable_cache.demand()


def test_a_user_who_is_not_there_is_named_on_use(asked_for):
    assert asked_for("~nobody_of_that_name/cache") == ""
    with pytest.raises(ExecutableCacheUnusable, match="~nobody_of_that_name/cache: .*no such user"):
        executable_cache.demand()
