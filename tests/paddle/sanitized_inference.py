"""The checks of the C++ inference library under AddressSanitizer and UndefinedBehaviorSanitizer.

Not a test that pytest collects: `make inference-asan` runs it, which takes some minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

_HERE = Path(__file__).parent
_CHECKS = ("values", "options", "memory", "half", "threads", "buffers", "errors", "static",
           "description")  # fmt: skip
_SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g"]


def _environment() -> dict[str, str]:
    import paddle

    return os.environ | {
        # Python and Paddle never free what lives as long as the process, and Paddle frees arrays
        # with the wrong operator. Everything else ends the program.
        "ASAN_OPTIONS": "detect_leaks=0:alloc_dealloc_mismatch=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        # The sanitizer opens libraries on Paddle's behalf, so Paddle's own search path is lost.
        "LD_LIBRARY_PATH": str(Path(paddle.__file__).parent / "libs"),
    }


def _build(folder: Path) -> Path:
    prefix, program = folder / "installed", folder / "checks"
    command = [sys.executable, "-m", "softipu.tools.paddle_inference", "--sanitize"]
    subprocess.run([*command, "--prefix", str(prefix)], check=True)
    library, include = prefix / "paddle" / "lib", prefix / "paddle" / "include"
    subprocess.run(
        ["g++", "-std=c++14", "-O1", *_SANITIZE, f"-I{include}",
         str(_HERE / "test_inference_checks.cc"), "-o", str(program), f"-L{library}",
         "-lpaddle_inference", f"-Wl,-rpath,{library}", "-pthread"],
        check=True,
    )  # fmt: skip
    for newer, extension in (("0", "pdmodel"), ("1", "json")):
        subprocess.run(
            [sys.executable, "-W", "ignore", str(_HERE / "inference_export.py"), "tiny",
             str(folder), extension],
            check=True,
            env=os.environ | {"FLAGS_enable_pir_api": newer, "SOFTIPU_DISABLE_HOOKS": "1"},
        )  # fmt: skip
    return program


def main() -> int:
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program, environment = _build(folder), _environment()
        for check in _CHECKS:
            # Only the older format is read from memory.
            model = folder / ("tiny.pdmodel" if check == "buffers" else "tiny.json")
            done = subprocess.run(
                [str(program), check, str(model), str(folder / "tiny.pdiparams")],
                capture_output=True, text=True, env=environment, check=False,
            )  # fmt: skip
            fine = done.returncode == 0
            print(f"{check}: {'no findings' if fine else f'exit code {done.returncode}'}")
            if not fine:
                failed += 1
                print(done.stderr[-5000:])
    print(f"{len(_CHECKS)} checks, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
