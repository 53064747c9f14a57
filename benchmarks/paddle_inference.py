"""`paddle.inference` on a virtual IPU, against Paddle's plain CPU inference with oneDNN.

python -m benchmarks.paddle_inference [--rows TEXT] [--rounds N]

Sides are processes that take turns. Every side has the same number of threads: those of the machine
as `enable_ipu` takes them, unless SOFTIPU_PADDLE_THREADS or OMP_NUM_THREADS says otherwise.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from . import turns

_SECONDS_PER_TURN = 2.0
#: Row -> model, format, batch.
_ROWS = {
    "ResNet-50, .pdmodel, batch 1": ("resnet50", "pdmodel", 1),
    "ResNet-50, .json, batch 1": ("resnet50", "json", 1),
    "ResNet-50, .pdmodel, batch 4": ("resnet50", "pdmodel", 4),
    "LeNet, .json, batch 8": ("lenet", "json", 8),
}
_INPUTS = {"resnet50": (3, 224, 224), "lenet": (1, 28, 28)}
_SIDES = ("softipu", "plain")
_QUIET = {"GLOG_minloglevel": "2", "PYTHONWARNINGS": "ignore"}


def _save(model: str, folder: str) -> None:
    import paddle

    paddle.seed(0)
    layer = {"resnet50": paddle.vision.models.resnet50, "lenet": paddle.vision.models.LeNet}[
        model
    ]()
    layer.eval()
    spec = paddle.static.InputSpec([None, *_INPUTS[model]], "float32", "image")
    paddle.jit.save(layer, f"{folder}/{model}", input_spec=[spec])


def _export(folder: str) -> None:
    for model in _INPUTS:
        for pir in ("0", "1"):
            turns.output_of(
                ["benchmarks.paddle_inference", "--save", model, folder],
                {**_QUIET, "FLAGS_enable_pir_api": pir},
            )


def _config(side: str, row: str, folder: str) -> Any:
    from paddle import inference

    model, extension, batch = _ROWS[row]
    config = inference.Config(f"{folder}/{model}.{extension}", f"{folder}/{model}.pdiparams")
    config.disable_glog_info()
    if side == "softipu":
        config.enable_ipu(ipu_micro_batch_size=batch)
        return config
    # The best that a person gets out of the CPU engine.
    config.enable_onednn()
    cores = 1 if model == "lenet" else len(os.sched_getaffinity(0))
    config.set_cpu_math_library_num_threads(int(os.environ["SOFTIPU_PADDLE_THREADS"]) or cores)
    if extension == "json":
        config.enable_new_ir(True)
        config.enable_new_executor(True)
    config.enable_memory_optim()
    return config


def _predictor(config: Any) -> Any:
    from paddle import inference

    return inference.create_predictor(config)


def _call(side: str, row: str, folder: str) -> Callable[[], Any]:
    """A whole inference: input in, run, output out."""
    import numpy as np

    model, _, batch = _ROWS[row]
    predictor = _predictor(_config(side, row, folder))
    data = np.random.default_rng(0).normal(size=(batch, *_INPUTS[model])).astype(np.float32)
    source = predictor.get_input_handle(predictor.get_input_names()[0])
    source.copy_from_cpu(data)
    predictor.run()
    result = predictor.get_output_handle(predictor.get_output_names()[0])

    def call() -> Any:
        source.copy_from_cpu(data)
        predictor.run()
        return result.copy_to_cpu()

    return call


def _player(side: str, row: str, folder: str) -> None:
    call = _call(side, row, folder)

    def turn() -> float:
        call()  # a process that waited is slow at first
        start, calls = time.perf_counter(), 0
        while time.perf_counter() - start < _SECONDS_PER_TURN:
            call()
            calls += 1
        return (time.perf_counter() - start) / calls

    turns.take_turns(side, turn)


def table(rows: list[str], rounds: int, folder: str) -> None:
    print(f"{'milliseconds of an inference':32}{'plain':>10}{'softipu':>10}{'x plain':>9}")
    for row in rows:
        players = {
            side: turns.Player(
                ["benchmarks.paddle_inference", "--turns-of", side, row, folder], _QUIET
            )
            for side in _SIDES
        }
        times = turns.medians(players, rounds)
        shown = "".join(f"{times[side] * 1e3:10.3f}" for side in ("plain", "softipu"))
        print(f"{row:32}{shown}{times['plain'] / times['softipu']:9.3f}", flush=True)


def imports(rounds: int) -> None:
    """`import paddle` with our finder and without."""
    times: dict[str, list[float]] = {"without": [], "with": []}
    for turn in range(rounds + 1):
        for side, values in times.items():
            hooks = {"SOFTIPU_DISABLE_HOOKS": "1" if side == "without" else "0"}
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, "-c", "import paddle"], check=True,
                env={**os.environ, **_QUIET, **hooks},
            )  # fmt: skip
            if turn:  # the first reads files for the first time
                values.append(time.perf_counter() - start)
    without, ours = (statistics.median(values) for values in times.values())
    print(f"\n{'seconds of `import paddle`':32}{without:10.3f}{ours:10.3f}{without / ours:9.3f}")


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--turns-of", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--save", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.turns_of:
        _player(*arguments.turns_of)
    elif arguments.save:
        _save(*arguments.save)
    else:
        with tempfile.TemporaryDirectory() as folder:
            _export(folder)
            table([row for row in _ROWS if arguments.rows in row], arguments.rounds, folder)
            imports(arguments.rounds)


if __name__ == "__main__":
    main()
