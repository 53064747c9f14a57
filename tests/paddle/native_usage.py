"""Programs that don't use the IPU API see plain Paddle; those that do get the older representation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

STATE = """
import paddle
def state():
    pir = paddle.get_flags("FLAGS_enable_pir_api")["FLAGS_enable_pir_api"]
    return pir, paddle.static.Program is paddle.pir.Program, type(paddle.float32).__name__
"""
PLAIN = "(True, True, 'DataType')"
OLDER = "(False, False, 'VarType')"


def run(tmp_path: Path, script: str, **environment: str) -> str:
    path = tmp_path / "main.py"
    path.write_text(script)
    child = subprocess.run(
        [sys.executable, "-W", "ignore", str(path)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert child.returncode == 0, child.stderr[-3000:]
    return child.stdout


def test_a_plain_program_keeps_everything(tmp_path: Path) -> None:
    script = (
        STATE
        + """
import inspect
paddle.enable_static()
print(state(), paddle.is_compiled_with_ipu(), inspect.isbuiltin(paddle._C_ops.matmul))
import paddle.base.executor as asks_like_paddle
exec("from paddle.base import core\\nprint(core.is_compiled_with_ipu())", vars(asks_like_paddle))
x = paddle.static.data("x", [2, 2], "float32")
print(type(paddle.matmul(x, x)).__module__)
try:
    paddle.reshape(x, [4], inplace=True)
except TypeError:
    print("no such argument")
"""
    )
    lines = run(tmp_path, script).splitlines()
    assert lines == [f"{PLAIN} True True", "False", "paddle.base.libpaddle.pir", "no such argument"]


def test_the_same_with_and_without_softipu(tmp_path: Path) -> None:
    """All public names of plain Paddle, but for those of the IPU API, are the very same."""
    script = """
import paddle, sys
names = [f"{m}.{n}:{getattr(o, '__module__', '')}" for m in ("paddle", "paddle.static",
         "paddle.nn.functional", "paddle.tensor") for n, o in sorted(vars(sys.modules[m]).items())
         if "ipu" not in n.lower() and n not in ("set_device", "get_device", "enable_static")]
print("\\n".join(names))
"""
    ours, theirs = run(tmp_path, script), run(tmp_path, script, SOFTIPU_DISABLE_HOOKS="1")
    assert ours == theirs


@pytest.mark.parametrize("name", ["IpuStrategy", "IpuCompiledProgram", "ipu_shard_guard"])
def test_the_text_of_the_program_is_a_sign(tmp_path: Path, name: str) -> None:
    assert run(tmp_path, f"{STATE}\nprint(state())  # {name}").strip() == OLDER
    assert run(tmp_path, f"{STATE}\nprint(state())  # My{name}s").strip() == PLAIN


def test_the_text_of_a_module_is_a_sign_once_static_mode_begins(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def shards(paddle):\n    return paddle.static.IpuStrategy")
    script = STATE + "print(state())\nimport model\npaddle.enable_static()\nprint(state())"
    assert run(tmp_path, script).splitlines() == [PLAIN, OLDER]


def test_a_place_of_the_api_is_a_sign(tmp_path: Path) -> None:
    script = STATE + "print(state())\npaddle.IPUPlace()\nprint(state())"
    assert run(tmp_path, script).splitlines() == [PLAIN, OLDER]


def test_the_variable_is_a_sign(tmp_path: Path) -> None:
    assert run(tmp_path, STATE + "print(state())", SOFTIPU_PADDLE_OLD_IR="1").strip() == OLDER


def test_a_program_built_too_early_is_refused_with_the_way_out(tmp_path: Path) -> None:
    script = """
import paddle
paddle.enable_static()
x = paddle.static.data("x", [2, 2], "float32")
program = paddle.static.default_main_program()
static = paddle.static
try:
    getattr(static, "IpuCompiled" "Program")(program)
except TypeError as error:
    print(error)
"""
    text = run(tmp_path, script)
    assert "SIPU-4001" in text
    assert "SOFTIPU_PADDLE_OLD_IR=1" in text


def test_run_check_passes_and_names_the_ipus(tmp_path: Path) -> None:
    script = STATE + "paddle.utils.run_check()\nprint(state())"
    text = run(tmp_path, script)
    assert "PaddlePaddle works well on 1 CPU." in text
    assert "PaddlePaddle works well on IPU 0 (of 16 virtual IPUs)." in text
    assert text.splitlines()[-1] == PLAIN


def test_run_check_fails_when_the_ipus_are_taken(tmp_path: Path) -> None:
    script = """
import paddle
from softipu import devices
from softipu.errors import SelfTestFailed
with devices.attach(ipus=16):
    try:
        paddle.utils.run_check()
    except SelfTestFailed as error:
        print(error.what)
"""
    assert "did not train on a virtual IPU" in run(tmp_path, script)
