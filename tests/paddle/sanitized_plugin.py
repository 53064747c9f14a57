"""The plugin's tests with a plugin under AddressSanitizer and UndefinedBehaviorSanitizer.

    python tests/paddle/sanitized_plugin.py BUILD [ARGUMENTS OF PYTEST]

Not a test that pytest collects: `make plugin-asan` builds the plugin into a folder and runs this, which
takes some minutes. Any finding counts, also one in a process whose end a test expects.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

_HERE = Path(__file__).parent
#: Every op with its gradients; native kernels, threads, half precision, static programs; sparse and
#: complex gradients; devices, streams, leases, random numbers; LeNet's training; processes that compute together.
_TESTS = ("test_plugin_gradients.py", "test_plugin_ops.py", "test_plugin_runtime.py",
          "test_paddle_examples.py::test_lenet_learns_digits_on_the_device_and_serves_them",
          "test_plugin_random.py", "test_plugin_distributed.py", "test_op_coverage.py")  # fmt: skip
#: These look at memory or threads of the process, which the sanitizers have their own of; or load
#: TensorFlow, whose libraries want RTLD_DEEPBIND, which the sanitizers do not.
_NOT_HERE = ("test_thousands_of_steps_leak_nothing", "test_tensorflow_imported_first")


def _library(name: str) -> str:
    path = subprocess.run(
        ["g++", f"-print-file-name={name}"], check=True, capture_output=True, text=True
    ).stdout.strip()
    if not Path(path).is_absolute():
        raise SystemExit(f"{name} is missing: install the sanitizers of g++ (apt install g++).")
    return path


def _environment(findings: Path) -> dict[str, str]:
    import paddle

    return os.environ | {
        # Python itself knows no sanitizer; C++'s library must be there when theirs looks for throw.
        "LD_PRELOAD": f"{_library('libasan.so')} {_library('libstdc++.so')}",
        # Python and Paddle never free what lives as long as the process, and Paddle frees arrays
        # with the wrong operator. Tests ask for more memory than there is. Everything else ends
        # the process.
        "ASAN_OPTIONS": f"detect_leaks=0:alloc_dealloc_mismatch=0:allocator_may_return_null=1"
        f":log_path={findings}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={findings}",
        # Each tensor gets memory of its own and gives it back at once, or no sanitizer could tell
        # where it ends.
        "FLAGS_free_idle_chunk": "1",
        "FLAGS_auto_growth_chunk_size_in_mb": "0",
        # The sanitizer opens libraries on Paddle's behalf, so Paddle's own search path is lost.
        "LD_LIBRARY_PATH": str(Path(paddle.__file__).parent / "libs"),
    }


def main() -> int:
    build, *arguments = sys.argv[1:]
    kernels = Path(build) / "softipu" / "libsoftipu-paddle-kernels.so"
    if b"__asan_report_store" not in kernels.read_bytes():
        raise SystemExit(f"{kernels} was built without SOFTIPU_SANITIZE=ON.")
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "pytest", "-q", "--timeout=900", "-o", f"cache_dir={folder}/cache",
            f"--paddle-plugin={Path(build).resolve()}",
            "-k", " and ".join(f"not {name}" for name in _NOT_HERE),
        ]  # fmt: skip
        tests = arguments or [str(_HERE / test) for test in _TESTS]
        done = subprocess.run([*command, *tests], env=_environment(Path(folder) / "finding"))
        findings = sorted(Path(folder).glob("finding*"))
        for finding in findings:
            print(finding.read_text(errors="replace")[:3000])
    print(f"{len(findings)} findings; pytest's exit code {done.returncode}")
    return 1 if findings or done.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
