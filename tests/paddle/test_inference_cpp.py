"""C++ programs on libpaddle_inference.so: made by one command, compiled, run, ended in all ways."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")
pytest.register_assert_rewrite("inference_models")
from inference_models import infer, plain_config  # noqa: E402

from softipu import devices  # noqa: E402
from softipu.tools import paddle_inference  # noqa: E402

pytest_plugins = ("inference_models",)
HERE = Path(__file__).parent
CHECKS = HERE / "test_inference_checks.cc"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "paddle_inference_cpp"
#: Where gflags and glog are, if not installed by the system's packages.
THIRD_PARTY = Path(os.environ.get("GFLAGS_GLOG_ROOT", "/usr"))
FORMATS = ("pdmodel", "json")

if shutil.which("g++") is None:
    pytest.skip("no C++ compiler (apt install g++)", allow_module_level=True)


def _fingerprint(*paths: Path) -> str:
    digest = hashlib.sha256(f"{sys.executable} {paddle.__version__} {THIRD_PARTY}".encode())
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


@pytest.fixture(scope="session")
def prefix(request) -> Path:
    """An install directory made by the command; kept until a source or what it links to changes."""
    folder = request.config.cache.mkdir("paddle-inference")
    files = [path for path in paddle_inference.SOURCES.rglob("*") if path.is_file()]
    sources = [*sorted(files), Path(paddle_inference.__file__)]
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        linked = [name for name in ("gflags", "glog") if (THIRD_PARTY / "include" / name).exists()]
        key = " ".join([_fingerprint(*sources), *linked])
        _once(folder / "library-from", key, lambda: _install(folder))
        key = _fingerprint(*sources, CHECKS)
        _once(
            folder / "checks-from", key, lambda: _compile(folder / "installed", folder / "checks")
        )
    return folder / "installed"


def _once(stamp: Path, key: str, build) -> None:
    if not stamp.exists() or stamp.read_text() != key:
        stamp.unlink(missing_ok=True)
        build()
        stamp.write_text(key)


def _install(folder: Path) -> None:
    command = [sys.executable, "-m", "softipu.tools.paddle_inference"]
    command += ["--prefix", str(folder / "installed"), "--third-party", str(THIRD_PARTY)]
    subprocess.run(command, check=True, capture_output=True, text=True)


def _compile(prefix: Path, target: Path) -> None:
    library, include = prefix / "paddle" / "lib", prefix / "paddle" / "include"
    strict = ["-Wall", "-Wextra", "-Werror", f"-I{include}"]
    # C++11 is the oldest that programs for Paddle are compiled as.
    subprocess.run(
        ["g++", "-std=c++11", "-fsyntax-only", *strict, "-x", "c++", "-"],
        input='#include "paddle_inference_api.h"\n', text=True, check=True,
    )  # fmt: skip
    subprocess.run(
        ["g++", "-std=c++14", "-O1", *strict, str(CHECKS), "-o", str(target), f"-L{library}",
         "-lpaddle_inference", f"-Wl,-rpath,{library}", "-pthread"],
        check=True,
    )  # fmt: skip


@pytest.fixture
def check(prefix, tiny_models):
    """Runs one check of the C++ program with the small network."""

    def run(name: str, extension: str = "json", **options) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            _command(prefix, name, tiny_models, extension),
            capture_output=True, text=True, check=False, timeout=120, **options,
        )  # fmt: skip

    return run


def _command(prefix: Path, name: str, models: Path, extension: str) -> list[str]:
    program = prefix.parent / "checks"
    return [str(program), name, f"{models}/tiny.{extension}", f"{models}/tiny.pdiparams"]


def _image() -> np.ndarray:
    """What the C++ program feeds."""
    values = (np.arange(4 * 3 * 8 * 8) % 17).astype(np.float32) / np.float32(17)
    return values.reshape(4, 3, 8, 8)


def _values(text: str) -> np.ndarray:
    return np.array(text.split(), np.float32).reshape(4, 10)


@pytest.mark.parametrize("extension", FORMATS)
def test_outputs_are_those_of_plain_python(check, tiny_models, extension):
    done = check("values", extension)
    assert done.returncode == 0, done.stderr
    config = plain_config(tiny_models / "tiny", extension)
    expected = infer(paddle.inference.create_predictor(config), _image())
    np.testing.assert_allclose(_values(done.stdout), expected, rtol=1e-5, atol=1e-6)
    assert done.stderr == ""  # nothing of Paddle's or Python's chatter


@pytest.mark.parametrize("name", ["options", "memory", "description", "threads", "static"])
@pytest.mark.parametrize("extension", FORMATS)
def test_what_programs_do(check, name, extension):
    done = check(name, extension)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_half_precision(check, tiny_models):
    done = check("half")
    assert done.returncode == 0, done.stderr
    config = plain_config(tiny_models / "tiny", "json")
    config.enable_ipu(1, 4)
    config.set_ipu_config(ipu_enable_fp16=True)
    predictor = paddle.inference.create_predictor(config)
    expected = infer(predictor, np.ones((4, 3, 8, 8), np.float16))
    actual = np.array(done.stdout.split(), np.uint16).view(np.float16).reshape(4, 10)
    np.testing.assert_allclose(actual, expected, rtol=2e-3)


def test_models_from_memory(check, tiny_models):
    done = check("buffers", "pdmodel")
    assert done.returncode == 0, done.stderr
    config = plain_config(tiny_models / "tiny", "pdmodel")
    expected = infer(paddle.inference.create_predictor(config), _image())
    np.testing.assert_allclose(_values(done.stdout), expected, rtol=1e-5, atol=1e-6)
    refused = check("buffers", "json")
    assert refused.returncode == 3
    assert "SIPU-4130" in refused.stderr


def test_errors_are_exceptions_with_our_text(check):
    done = check("errors")
    assert done.returncode == 0, done.stderr
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    for what, text in {
        "missing": "Cannot open file .*none",
        "count": "SIPU-4101: ipu_device_num=0",
        "many": "SIPU-1202: 64 IPUs",
        "device": "SIPU-4130: enable_custom_device.'nobodys'.: Paddle has no such device",
        "file": "SIPU-4102: .*nowhere",
        "unset": "SIPU-4120: Input 'image' of tiny was never set",
        "early": "SIPU-4120: Tensor 'image': its shape is not known",
        "shape": r"SIPU-4120: .*\[4, 3, 8, 8\], not \[1, 3, 8, 8\]",
        "dtype": "SIPU-4120: .*takes float32, not float64",
        "name": "SIPU-4120: .*no input 'nobody'",
        "output": "SIPU-4120: .*Reshape is for inputs",
        "outtype": "SIPU-4120: .*float32, not int64",
        "intype": "SIPU-4120: Tensor 'image': .*float32, not int64",
        "indata": "SIPU-4120: Tensor 'image': .*float32, not int32",
    }.items():
        assert re.search(text, said[what]), what


def test_foreign_python_variables_do_no_harm(check):
    environment = os.environ | {"PYTHONHOME": "/nowhere", "PYTHONPATH": "/nowhere"}
    done = check("values", env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_program_that_is_ended_gives_its_ipu_back(prefix, tiny_models, how):
    process = subprocess.Popen(
        _command(prefix, "hold", tiny_models, "json"), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
        # In a job in the background, shells have Ctrl-C ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    with process:
        assert process.stdout.readline() == "ready\n"
        (held,) = [status for status in devices.status() if status.record is not None]
        assert held.record.command == "checks"
        assert held.record.pid == process.pid
        assert held.record.executable == "tiny"
        shown = subprocess.run(
            [sys.executable, "-c", "from softipu.tools.gc_monitor import entry; entry()"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert str(process.pid) in shown.stdout
        process.send_signal(how)
        assert process.wait(30) == -how  # ended by the signal, without a handler of Paddle's
        assert process.stderr.read() == ""
    assert not any(status.record is not None for status in devices.status())


def test_at_the_end_the_record_is_gone(check, state):
    assert check("static").returncode == 0
    assert not [path for path in state.rglob("*.json") if "record" in path.name]
    assert not any(status.record is not None for status in devices.status())


def test_without_the_environment_there_is_an_error(prefix, tiny_models, tmp_path):
    """The Python that the library was made for may be removed later."""
    installed = tmp_path / "installed"
    shutil.copytree(prefix, installed, symlinks=True)
    library = installed / "paddle" / "lib" / "libpaddle_inference.so"
    content = library.read_bytes()
    python = sys.executable.encode()
    assert python in content
    library.write_bytes(content.replace(python, b"/gone" + python[5:]))
    done = subprocess.run(
        _command(prefix, "values", tiny_models, "json"), capture_output=True, text=True,
        check=False, env=os.environ | {"LD_LIBRARY_PATH": str(library.parent),
                                       "LD_PRELOAD": str(library)},
    )  # fmt: skip
    assert done.returncode == 3
    assert "SIPU-4140: The Python environment /gone" in done.stderr


def test_the_install_directory_is_laid_out_as_paddles(prefix):
    assert "Paddle version: 3." in (prefix / "version.txt").read_text()
    headers = {path.name for path in (prefix / "paddle" / "include").iterdir()}
    assert {"paddle_inference_api.h", "paddle_analysis_config.h", "paddle_tensor.h"} <= headers


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake (apt install cmake)")
def test_what_build_files_for_paddles_own_library_link_is_there(prefix, tmp_path, tiny_models):
    """Paddle's demos name files, and libraries with a folder for each."""
    third_party = prefix / "third_party" / "install"
    files = [
        *(prefix / "paddle" / "lib" / f"lib{name}.so" for name in ("paddle_inference", "phi", "common")),
        *(third_party / "mklml" / "lib" / f"lib{name}.so" for name in ("mklml_intel", "iomp5")),
        third_party / "mkldnn" / "lib" / "libdnnl.so.3",
        third_party / "openblas" / "lib" / "libopenblas.a",
    ]  # fmt: skip
    names = ("protobuf", "xxhash", "cryptopp", "utf8proc")
    target = tmp_path / "checks"
    subprocess.run(
        ["g++", "-std=c++11", "-fopenmp", str(CHECKS), "-o", str(target),
         f"-I{prefix / 'paddle' / 'include'}", *(f"-L{third_party / name / 'lib'}" for name in names),
         *map(str, files), *(f"-l{name}" for name in names), "-lrt", "-ldl", "-lpthread",
         f"-Wl,-rpath,{prefix / 'paddle' / 'lib'}"],
        check=True,
    )  # fmt: skip
    needed = subprocess.run(["readelf", "-d", target], capture_output=True, text=True, check=True)
    assert "libpaddle_inference.so" in needed.stdout
    assert not re.search("libphi|mklml|dnnl|protobuf", needed.stdout)
    command = [str(target), *_command(prefix, "options", tiny_models, "json")[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_the_cmake_package_builds_a_program(prefix, tmp_path):
    (tmp_path / "main.cc").write_text(
        '#include "paddle_inference_api.h"\n'
        "int main() { return paddle_infer::GetNumBytesOfDataType(paddle_infer::INT64) - 8; }\n"
    )
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.10)\nproject(demo CXX)\n"
        "find_package(PaddleInference REQUIRED)\nadd_executable(demo main.cc)\n"
        "target_link_libraries(demo ${PADDLE_INFERENCE_LIBRARIES})\n"
    )
    build = tmp_path / "build"
    for command in (
        ["cmake", "-S", str(tmp_path), "-B", str(build), f"-DCMAKE_PREFIX_PATH={prefix}"],
        ["cmake", "--build", str(build)],
        [str(build / "demo")],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("device", ["ipu", "custom"])
@pytest.mark.parametrize("extension", FORMATS)
def test_the_example_runs_resnet50(request, prefix, resnet50_models, tmp_path, extension, device):
    if device == "custom":
        request.getfixturevalue("plugin")
    if not (THIRD_PARTY / "include" / "gflags").exists():
        pytest.skip("no gflags and glog (apt install libgflags-dev libgoogle-glog-dev)")
    build = [str(EXAMPLE / "compile.sh"), str(prefix), str(tmp_path)]
    subprocess.run(build, check=True, capture_output=True, text=True)
    done = subprocess.run(
        [str(tmp_path / "resnet50_test"), f"--model_file={resnet50_models}/resnet50.{extension}",
         f"--params_file={resnet50_models}/resnet50.pdiparams", "--repeats=2",
         f"--device={device}"],
        capture_output=True, text=True, check=False,
        env=os.environ | {"GLOG_minloglevel": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(r"average of 2 runs: [0-9.]+ ms", done.stderr)
    printed = dict(re.findall(r"output\[(\d+)\] = (\S+)", done.stderr))
    image = (np.arange(3 * 224 * 224) % 255).astype(np.float32) / np.float32(255)
    config = plain_config(resnet50_models / "resnet50", extension)
    predictor = paddle.inference.create_predictor(config)
    expected = infer(predictor, image.reshape(1, 3, 224, 224))[0]
    assert list(printed) == [str(index) for index in range(0, 1000, 100)]
    actual = np.array([float(value) for value in printed.values()])
    assert np.abs(actual - expected[::100]).max() <= 1e-5 * np.abs(expected).max()


def test_a_compiler_that_fails_is_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", shutil.which("false"))
    with pytest.raises(Exception, match=r"SIPU-4140.*false failed with status 1"):
        paddle_inference.install(tmp_path / "installed", third_party=Path("/usr"))
    assert not list((tmp_path / "installed" / "paddle" / "lib").iterdir())


def test_missing_packages_are_named(tmp_path):
    missing = paddle_inference.link_third_party(tmp_path / "prefix", tmp_path / "nothing")
    assert missing == ["libgflags-dev", "libgoogle-glog-dev"]
