#!/bin/bash
# Compiles resnet50_test.cc into build/. The directory of libpaddle_inference is the first argument
# or PADDLE_INFERENCE_DIR; `python -m softipu.tools.paddle_inference --prefix DIR` makes one.
set -euo pipefail
cd "$(dirname "$0")"
prefix=${1:-${PADDLE_INFERENCE_DIR:-paddle_inference}}
build=${2:-build}
if [ ! -f "$prefix/version.txt" ]; then
  echo "There is no $prefix/version.txt. Make the directory first:" >&2
  echo "  python -m softipu.tools.paddle_inference --prefix $prefix" >&2
  exit 1
fi
prefix=$(realpath "$prefix")
third_party=$prefix/third_party/install
if [ ! -d "$third_party/gflags" ] || [ ! -d "$third_party/glog" ]; then
  echo "gflags and glog are missing: apt install libgflags-dev libgoogle-glog-dev," >&2
  echo "then run softipu.tools.paddle_inference again." >&2
  exit 1
fi
mkdir -p "$build"
"${CXX:-g++}" -std=c++14 -O2 resnet50_test.cc -o "$build/resnet50_test" \
  -I"$prefix/paddle/include" -I"$third_party/gflags/include" -I"$third_party/glog/include" \
  -L"$prefix/paddle/lib" -L"$third_party/gflags/lib" -L"$third_party/glog/lib" \
  -lpaddle_inference -lgflags -lglog -pthread \
  -Wl,-rpath,"$prefix/paddle/lib" -Wl,-rpath,"$third_party/gflags/lib" \
  -Wl,-rpath,"$third_party/glog/lib"
echo "$build/resnet50_test"
