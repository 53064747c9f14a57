"""Finds what the plugin is built against, for CMake: prints a list, or says on stderr what to do.

    locate.py paddle [DIRECTORY]   package directory; version; commit
    locate.py onednn BUILD_DIR     directory with oneapi/dnnl/dnnl.hpp

Paddle is looked up, not imported: that would take seconds and load the very plugin being built.
"""

from __future__ import annotations

import re
import site
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

_HEADER = Path("oneapi") / "dnnl" / "dnnl.hpp"
#: Headers only are taken from it, so any 3.x that Paddle's own library is not newer than will do.
_HEADERS_PACKAGE = "onednn-devel>=2025"


def main(what: str, argument: str | None = None) -> str:
    if what == "paddle":
        return ";".join(find_paddle(argument))
    return str(find_onednn(Path(argument or ".")))


def site_directories() -> Iterator[Path]:
    """Of the environment that the plugin is for; an isolated build hides them from sys.path."""
    seen = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *sys.path]
    if site.ENABLE_USER_SITE is not False:
        seen.append(site.getusersitepackages())
    yield from (Path(entry) for entry in dict.fromkeys(seen) if entry)


def find_paddle(directory: str | None) -> tuple[str, str, str]:
    places = [Path(directory)] if directory else [base / "paddle" for base in site_directories()]
    for package in places:
        version = package / "version" / "__init__.py"
        if not version.is_file():
            continue
        text = version.read_text()
        if not (package / "include" / "paddle" / "phi" / "backends" / "device_ext.h").is_file():
            raise SystemExit(f"{package} has no headers for custom devices: install paddlepaddle.")
        return str(package), _assigned(text, "full_version"), _assigned(text, "commit")
    raise SystemExit(
        f"Paddle is not installed in the environment of {sys.executable}, and the plugin is built "
        "against it.\nInstall it first (pip install paddlepaddle==3.3.1), or give its directory "
        "with -DPADDLE_DIR=…/site-packages/paddle (PADDLE_DIR=… for pip and compile.sh)."
    )


def _assigned(text: str, name: str) -> str:
    match = re.search(rf"^{name}\s*=\s*['\"]([^'\"]*)['\"]", text, re.MULTILINE)
    if match is None:
        raise SystemExit(f"The installed Paddle does not tell its {name}.")
    return match[1]


def find_onednn(build: Path) -> Path:
    prefixes = [Path(sys.prefix), Path(sys.base_prefix), Path("/usr/local"), Path("/usr")]
    fetched = build / "onednn-headers"
    for include in [*(prefix / "include" for prefix in prefixes), fetched]:
        if (include / _HEADER).is_file():
            return include
    return _fetch_headers(fetched)


def _fetch_headers(target: Path) -> Path:
    """The headers out of the wheel; without its dependencies, which are a compiler's run time."""
    target.mkdir(parents=True, exist_ok=True)
    # -I: an isolated build hides pip, too.
    pip = [sys.executable, "-I", "-m", "pip", "download", "--quiet", "--no-deps"]
    done = subprocess.run(
        [*pip, "--dest", str(target), _HEADERS_PACKAGE], capture_output=True, text=True, check=False
    )
    wheels = sorted(target.glob("onednn_devel-*.whl"))
    if done.returncode != 0 or not wheels:
        raise SystemExit(
            f"oneDNN's headers are missing, and pip could not fetch {_HEADERS_PACKAGE}:\n"
            f"{done.stderr.strip()}\nInstall them (apt install libdnnl-dev, or pip install "
            "onednn-devel), name their directory with -DONEDNN_INCLUDE=…, or build without oneDNN: "
            "-DSOFTIPU_ONEDNN=OFF (slower: Paddle's own CPU kernels do all the work)."
        )
    with zipfile.ZipFile(wheels[-1]) as wheel:
        for name in wheel.namelist():
            _, found, inside = name.partition("/data/include/")
            if found and inside and not name.endswith("/"):
                path = target / inside
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(wheel.read(name))
    if not (target / _HEADER).is_file():
        raise SystemExit(
            f"{wheels[-1].name} has no {_HEADER}: name another with -DONEDNN_INCLUDE=…"
        )
    return target


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
