"""The plugin as people build, install and mix it up: wheel, versions, copies, damage; C++ tests."""

from __future__ import annotations

import ctypes
import email
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

paddle = pytest.importorskip("paddle")

from softipu import arch, devices  # noqa: E402
from softipu.devices import embedded, ipuof  # noqa: E402

PLUGIN = Path(__file__).parent.parent.parent / "plugins" / "paddle"
LIBRARY = "libpaddle-custom-ipu.so"
KERNELS = "softipu/libsoftipu-paddle-kernels.so"
LIST = "import paddle; print(paddle.device.get_all_custom_device_type())"


def run(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    merged = os.environ | environment
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, env=merged, timeout=200
    )


def listed_with(root: Path) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-c", LIST, CUSTOM_DEVICE_ROOT=str(root))


@pytest.fixture
def copy(plugin: Path, tmp_path: Path) -> Path:
    """A copy of the plugin to damage."""
    root = tmp_path / "root"
    (root / "softipu").mkdir(parents=True)
    for name in (LIBRARY, KERNELS):
        shutil.copy(plugin / name, root / name)
    return root


# --- C++ ------------------------------------------------------------------------------------------


def test_the_tests_in_cpp_pass(plugin: Path) -> None:
    done = run(plugin / "tests" / "runtime_tests")
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.splitlines()[-1].split()[0]) >= 40


def test_the_table_of_systems_in_cpp_is_the_one_in_the_data_files(plugin: Path) -> None:
    printed = {
        line.split()[0]: line.split()[1:]
        for line in run(plugin / "tests" / "runtime_tests", "--systems").stdout.splitlines()
    }
    assert set(printed) == set(arch.system_names())
    for name, row in printed.items():
        system = arch.system(name)
        chip = system.chip
        facts = [chip.name, chip.product, chip.architecture, chip.tiles, chip.worker_contexts]
        facts += [chip.tile_memory, system.streaming_memory]
        keys = [ipu.key for ipu in embedded.whole_system(name).ipus]
        assert row == [str(fact) for fact in facts] + keys


def _two_ipus(path: Path, **attributes: str) -> dict[str, str]:
    partition = embedded.whole_system("bow-pod4")
    config = ipuof.build(partition)
    config["devices"] = config["devices"][:2]
    config["attributes"] |= attributes
    path.write_text(ipuof.dumps(config))
    return {"IPUOF_CONFIG_PATH": str(path)}


@pytest.mark.parametrize(
    "case",
    ["default", "system", "card", "file", "whole", "folder", "foreign", "unknown", "damaged"],
)
def test_python_and_cpp_choose_the_same_partition(
    case: str, plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "some.conf"
    folder = Path(os.environ["HOME"]) / ".ipuof.conf.d"
    environment: dict[str, str] = {}
    match case:
        case "system" | "card":
            environment = {"SOFTIPU_SYSTEM": {"system": "pod64", "card": "c600"}[case]}
        case "file":
            environment = _two_ipus(file)
        case "whole":
            environment = _two_ipus(file, **{"Fabric Reconfigurable": "false"})
        case "folder":
            folder.mkdir()
            _two_ipus(folder / "one.conf")
        case "foreign":
            file.write_text('[{"ip": "10.1.2.3", "device_id": 1}]')
            environment = {"IPUOF_CONFIG_PATH": str(file)}
        case "unknown":
            environment = {"SOFTIPU_SYSTEM": "pod17"}
        case "damaged":
            file.write_text('{"devices": ')
            environment = {"IPUOF_CONFIG_PATH": str(file)}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    done = run(plugin / "tests" / "runtime_tests", "--partition")
    try:
        partition = devices.active_partition()
    except Exception as error:  # noqa: BLE001  # whatever Python says, C++ must say with that code
        assert done.returncode == 1
        assert done.stdout.startswith(f"{error.label}: ")
        return
    chosen = [device for device in partition.devices if partition.attachable(device)]
    smallest = min(len(device.ipus) for device in chosen)
    words = [
        ":".join([str(device.id), *(ipu.key for ipu in device.ipus)])
        for device in chosen
        if len(device.ipus) == smallest
    ]
    assert done.stdout.split() == [partition.name, partition.system, *words]


# --- what refuses to load -------------------------------------------------------------------------


def _replace(library: Path, old: bytes, new: bytes) -> None:
    assert len(old) == len(new)
    content = library.read_bytes()
    assert old in content
    library.write_bytes(content.replace(old, new))


def test_a_plugin_for_another_paddle_refuses_with_both_versions(copy: Path) -> None:
    version = paddle.version.full_version
    other = version[:-1] + ("0" if version[-1] != "0" else "1")
    _replace(copy / LIBRARY, version.encode() + b"\0", other.encode() + b"\0")
    done = listed_with(copy)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
    assert (
        f"SIPU-4210: This plugin was built for Paddle {other}, but Paddle {version} loads it"
        in (done.stderr)
    )


def test_a_plugin_for_another_commit_of_the_same_version_refuses(copy: Path) -> None:
    commit = paddle.version.commit.encode()
    _replace(copy / LIBRARY, commit, commit[::-1])
    done = listed_with(copy)
    assert (done.returncode, done.stdout.strip()) == (0, "[]")
    assert f"({paddle.version.commit[:12]})" in done.stderr


def test_a_smaller_device_interface_is_left_untouched(plugin: Path) -> None:
    """As an older Paddle has it: nothing may be written beyond its end."""
    code = """
import ctypes, sys
interface = (ctypes.c_size_t * 64)(64 * 8, *[7] * 63)
params = (ctypes.c_size_t * 12)(96, ctypes.addressof(interface))
ctypes.CDLL(sys.argv[1]).InitPlugin(params)
print(set(interface[1:]), list(params[2:]))
"""
    done = run(sys.executable, "-c", code, plugin / LIBRARY)
    assert done.stdout.strip() == f"{{7}} {[0] * 10}", done.stderr
    assert "SIPU-4210" in done.stderr


def test_two_copies_of_the_plugin_are_one_device(copy: Path) -> None:
    shutil.copy(copy / LIBRARY, copy / "libpaddle-custom-ipu-copy.so")
    code = LIST + "; paddle.set_device('ipu'); print((paddle.ones([3]) + 1).sum().item())"
    done = run(sys.executable, "-c", code, CUSTOM_DEVICE_ROOT=str(copy))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["['ipu']", "6.0"]
    assert "SIPU-4211: The device `ipu` comes from " in done.stderr


@pytest.mark.parametrize("damage", ["missing", "text", "truncated"])
def test_damaged_kernels_are_named_and_paddle_goes_on(damage: str, copy: Path) -> None:
    kernels = copy / KERNELS
    content = kernels.read_bytes()
    kernels.unlink()
    if damage == "text":
        kernels.write_text("not a library")
    elif damage == "truncated":
        kernels.write_bytes(content[: len(content) // 3])
    done = listed_with(copy)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
    assert "SIPU-4212" in done.stderr
    assert KERNELS in done.stderr


def test_the_runtime_alone_needs_no_library_of_paddle(plugin: Path) -> None:
    """So it can be opened by any Paddle, and refuse; only then are Paddle's classes touched."""
    needed = subprocess.run(
        ["readelf", "-d", plugin / LIBRARY], capture_output=True, text=True, check=True
    ).stdout
    assert "NEEDED" in needed
    assert not any(name in needed for name in ("libphi", "libcommon", "libpaddle.so", "libdnnl"))
    assert ctypes.CDLL(str(plugin / LIBRARY)).InitPlugin


# --- building and installing ----------------------------------------------------------------------


def test_the_wheel_installs_where_paddle_looks(plugin: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns("build", "*.egg-info", "dist")
    shutil.copytree(PLUGIN, source, ignore=ignored)
    # With the libraries that are built already; that the sources build, this session has shown.
    built = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "bdist_wheel", "--dist-dir", tmp_path / "dist"],
        cwd=source,
        env=os.environ | {"SOFTIPU_BUILT": str(plugin)},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    version = paddle.version.full_version
    platform = sysconfig.get_platform().replace("-", "_")
    assert wheel.name == f"paddle_custom_ipu-0.1.0+paddle{version}-py3-none-{platform}.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith("/METADATA"))
        requirements = email.message_from_bytes(archive.read(metadata)).get_all("Requires-Dist")
        archive.extractall(tmp_path / "site")
    expected = {f"paddle_custom_device/{LIBRARY}", f"paddle-plugins/{LIBRARY}"}
    assert expected | {f"paddle_custom_device/{KERNELS}"} <= names
    assert requirements == [f"paddlepaddle=={version}"]
    site = _environment_with(tmp_path / "env", tmp_path / "site")
    done = run(site, "-c", LIST, CUSTOM_DEVICE_ROOT="")
    assert done.stdout.strip() == "[]"
    without = {name: value for name, value in os.environ.items() if name != "CUSTOM_DEVICE_ROOT"}
    done = subprocess.run([site, "-c", LIST], capture_output=True, text=True, env=without)
    assert done.stdout.strip() == "['ipu']", done.stderr


def _environment_with(folder: Path, extra: Path) -> Path:
    """A virtual environment with all that this one has, by links, and the unpacked wheel."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = Path(sysconfig.get_path("purelib"))
    target = folder / site.relative_to(sys.prefix)
    # Paddle finds plugins by way of `paddle/libs/../..`, which must not lead out through a link.
    for within in ("", "paddle", "paddle/libs"):
        (target / within).mkdir(exist_ok=True)
    for within in ("paddle/libs", "paddle", ""):
        for source in (site, extra):
            for entry in (source / within).iterdir() if (source / within).is_dir() else ():
                if not (target / within / entry.name).exists():
                    (target / within / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


def test_the_libraries_are_found_relative_to_the_plugin(plugin: Path, tmp_path: Path) -> None:
    done = run("cmake", "--install", plugin, "--prefix", tmp_path)
    assert done.returncode == 0, done.stderr
    installed = tmp_path / "paddle_custom_device" / KERNELS
    dynamic = run("readelf", "-d", installed).stdout
    assert "[$ORIGIN/../../paddle/libs]" in dynamic
    assert "NODELETE" in dynamic
    assert "NODELETE" in run("readelf", "-d", tmp_path / "paddle-plugins" / LIBRARY).stdout


def test_without_paddle_the_build_says_what_to_install(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    python = tmp_path / "bare" / "bin" / "python"
    done = run(python, PLUGIN / "tools" / "locate.py", "paddle")
    assert done.returncode == 1
    assert "Paddle is not installed in the environment of" in done.stderr
    assert "pip install paddlepaddle" in done.stderr
    done = run(python, PLUGIN / "tools" / "locate.py", "paddle", Path(paddle.__file__).parent)
    assert done.stdout.strip().split(";")[1] == paddle.version.full_version


def test_compile_sh_refuses_options_that_are_neither_on_nor_off() -> None:
    done = run("bash", PLUGIN / "compile.sh", ON_INFER="maybe")
    assert (done.returncode, done.stderr.strip()) == (2, "ON_INFER=maybe: expected ON or OFF")
    done = run("bash", PLUGIN / "compile.sh", PYTHON="python-of-nowhere")
    assert (done.returncode, done.stderr.strip()) == (2, "no such Python: python-of-nowhere")
