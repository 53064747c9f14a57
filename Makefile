# `make demo` and `make test` do all the set-up themselves; a second run starts in seconds.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
#: How many files of tests run at the same time; each takes a core and up to 2 GB.
TEST_PROCESSES ?= 2
# In the order of the folders: the last files are short, so that nobody waits long for the last one.
SIDE_BY_SIDE := --numprocesses=$(TEST_PROCESSES) --dist=loadfile --no-loadscope-reorder
# By name: to look for them in all files takes longer than most of them do.
ALONE := $(sort $(shell grep -rl 'mark\.alone' tests --include='test_*.py'))
TORCH := $(shell grep '^torch==' constraints.txt)
#: Beside the environment's packages: this client is older than the one that programs use.
ANALYZER := $(VENV)/perf-analyzer

.PHONY: demo test lint bench perf-analyzer docs accuracy plugin plugin-asan plugin-aarch64 inference-asan docker-check clean
.DEFAULT_GOAL := demo

$(STAMP): pyproject.toml hatch_build.py constraints.txt src/zz_softipu.pth
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	# First, and by its exact version: any other request may bring gigabytes of CUDA libraries.
	$(BIN)/python -m pip install --quiet --constraint constraints.txt $(TORCH)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,torch,tensorflow,paddle,bench]'
	# Headers only: what the package asks for besides would be gigabytes of SYCL.
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps onednn-devel
	# These ask for numpy 1, which the parts that we use don't need.
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps nvidia-pytriton tritonclient python-rapidjson grpcio
	touch $@

demo: $(STAMP)
	$(BIN)/softipu demo

# Files of tests side by side, each with one thread, or they take the cores from each other; then those
# that need the machine to themselves. Paddle's tests in processes of their own: its signal handlers and
# libraries stay away from others.
test: $(STAMP) lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --ignore=tests/paddle -m 'not alone' $(SIDE_BY_SIDE)
	$(BIN)/python -m pytest -m alone $(ALONE)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/paddle $(SIDE_BY_SIDE)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m softipu.tools.docs --check docs

bench: $(STAMP) plugin perf-analyzer
	$(BIN)/python -m benchmarks.devices
	$(BIN)/python -m benchmarks.estimates
	$(BIN)/python -m benchmarks.poptorch --first --memory --growth
	$(BIN)/python -m benchmarks.popdist
	$(BIN)/python -m benchmarks.keras_fit --together --first
	$(BIN)/python -m benchmarks.paddle_inference
	$(BIN)/python -m benchmarks.paddle_plugin
	$(BIN)/python -m benchmarks.cnn_harness
	$(BIN)/python -m benchmarks.triton --load 120

# Triton's own measuring program: newer wheels of the client have none. It needs the CUDA runtime's
# library to start, also where no GPU is.
perf-analyzer: $(ANALYZER)/bin/perf_analyzer

$(ANALYZER)/bin/perf_analyzer: | $(STAMP)
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(ANALYZER) tritonclient==2.50.0 nvidia-cuda-runtime-cu12==12.9.79

# The Paddle plugin, built against the environment's Paddle and installed beside it.
plugin: $(STAMP)
	$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps ./plugins/paddle

# The plugin under AddressSanitizer and UndefinedBehaviorSanitizer: its C++ tests, then its Python tests.
plugin-asan: $(STAMP)
	cmake -S plugins/paddle -B plugins/paddle/build/asan -DWITH_TESTING=ON -DSOFTIPU_SANITIZE=ON \
	  -DCMAKE_BUILD_TYPE=Debug -DPython3_EXECUTABLE=$(abspath $(BIN))/python
	cmake --build plugins/paddle/build/asan --parallel
	plugins/paddle/build/asan/tests/runtime_tests
	$(BIN)/python tests/paddle/sanitized_plugin.py plugins/paddle/build/asan

# The plugin for aarch64, with Debian's cross compiler (g++-aarch64-linux-gnu): the runtime's tests run
# under qemu (qemu-user-static); the kernels are only compiled, as there is no Paddle to link them with.
# qemu makes up when a process started: on a busy machine ranks may take each other for dead. Run it again then.
CROSS := plugins/paddle/build/aarch64
SITE = $(shell $(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
HOST_HEADERS = /usr/include/$(shell gcc -print-multiarch)
plugin-aarch64: $(STAMP)
	cmake -S plugins/paddle -B $(CROSS) -DWITH_TESTING=ON -DSOFTIPU_ONEDNN=OFF -DCMAKE_SYSTEM_NAME=Linux \
	  -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
	  -DPython3_EXECUTABLE=$(abspath $(BIN))/python -DFFI_INCLUDE=$(HOST_HEADERS) -DFFI_LIBRARY=ffi
	cmake --build $(CROSS) --parallel --target runtime_tests
	qemu-aarch64-static -L /usr/aarch64-linux-gnu $(CROSS)/tests/runtime_tests
	for source in plugins/paddle/src/*.cc; do \
	  aarch64-linux-gnu-g++ -std=c++17 -fsyntax-only -DPADDLE_WITH_CUSTOM_DEVICE -DPADDLE_WITH_CUSTOM_KERNEL \
	    -Iplugins/paddle/src -Iplugins/paddle/runtime -isystem $(SITE)/paddle/include \
	    -isystem $(SITE)/paddle/include/third_party -idirafter $(HOST_HEADERS) $$source || exit 1; done

inference-asan: $(STAMP)
	$(BIN)/python tests/paddle/sanitized_inference.py

# Builds the image for real and uses it; needs root, podman, buildah and debootstrap.
docker-check:
	docker/check.sh

docs: $(STAMP)
	$(BIN)/python -m softipu.tools.docs --write docs

# Every published figure beside the machine model's prediction. Takes some minutes.
accuracy: $(STAMP)
	$(BIN)/python -m softipu.accuracy --write docs/accuracy.md

clean:
	rm -rf $(VENV) dist build .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
