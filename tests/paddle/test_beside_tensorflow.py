"""Paddle and the other frameworks in one process, in any order."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("paddle")

PROGRAM = """
    import sys
    flags = sys.getdlopenflags()
    for name in sys.argv[1:]:
        __import__(name)
    import paddle
    x = paddle.ones([4, 4])
    assert float((x @ x).sum()) == 64
    if "tensorflow" in sys.argv:
        import tensorflow as tf
        assert float(tf.reduce_sum(tf.linalg.matmul(tf.ones([4, 4]), tf.ones([4, 4])))) == 64
    assert sys.getdlopenflags() == flags
    print("both work")
"""


@pytest.mark.parametrize(
    "order", [("tensorflow", "paddle"), ("paddle", "tensorflow"), ("torch", "tensorflow", "paddle")]
)
def test_frameworks_in_one_process(order, tmp_path):
    for name in order:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), *order], capture_output=True, text=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "SOFTIPU_HOME": str(tmp_path)},
        check=False,
    )  # fmt: skip
    assert done.stdout.endswith("both work\n"), (done.returncode, done.stderr[-2000:])
