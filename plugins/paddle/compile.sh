#!/usr/bin/env bash
# Builds the plugin and its wheel against the Paddle of the current Python environment.
#
#   bash compile.sh
#   pip install build/dist/paddle_custom_ipu-*.whl      or:  export CUSTOM_DEVICE_ROOT=$PWD/build
#
# Variables: ON_INFER=ON|OFF (other backends need it for C++ inference; the same plugin here),
# WITH_TESTING=ON|OFF, SOFTIPU_SANITIZE=ON|OFF, PYTHON (default python3), PADDLE_DIR,
# CMAKE_BUILD_TYPE, JOBS. The sources are the same for x86_64 and aarch64.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

for option in ON_INFER WITH_TESTING SOFTIPU_SANITIZE; do
    case "${!option:-OFF}" in
        ON | OFF) ;;
        *) echo "$option=${!option}: expected ON or OFF" >&2; exit 2 ;;
    esac
done
command -v cmake >/dev/null || { echo "cmake is missing: apt install cmake, or pip install cmake" >&2; exit 2; }

PYTHON=${PYTHON:-python3}
command -v "$PYTHON" >/dev/null || { echo "no such Python: $PYTHON" >&2; exit 2; }
PYTHON=$(command -v "$PYTHON")
JOBS=${JOBS:-$(nproc)}

cmake -S . -B build \
    -DCMAKE_BUILD_TYPE="${CMAKE_BUILD_TYPE:-Release}" \
    -DPython3_EXECUTABLE="$PYTHON" \
    -DPADDLE_DIR="${PADDLE_DIR:-}" \
    -DON_INFER="${ON_INFER:-OFF}" \
    -DPADDLE_INFERENCE_LIB_DIR="${PADDLE_INFERENCE_LIB_DIR:-}" \
    -DWITH_TESTING="${WITH_TESTING:-OFF}" \
    -DSOFTIPU_SANITIZE="${SOFTIPU_SANITIZE:-OFF}"
cmake --build build --parallel "$JOBS"

# The wheel takes the libraries just built; setup.py finds them through this variable. pip fetches what
# makes wheels where the environment has none (a new venv, for one).
isolation=()
if "$PYTHON" -c 'import setuptools, wheel' 2>/dev/null; then isolation=(--no-build-isolation); fi
SOFTIPU_BUILT="$PWD/build" "$PYTHON" -m pip wheel --quiet --no-deps "${isolation[@]}" \
    --wheel-dir build/dist .
ls -l build/dist/*.whl
