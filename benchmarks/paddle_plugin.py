"""Paddle's `ipu` device by the plugin, against Paddle's own CPU in the same process settings.

    python -m benchmarks.paddle_plugin [--rows TEXT] [--rounds N] [--threads N] [--cpu-time]

Each side of a row has a process of its own; they run in turns, and the median of rounds counts.
`--threads 1` leaves the plugin one thread, as many as Paddle's CPU kernels use: then the kernels
alone are compared.
`--cpu-time` counts the time that the process computed instead of the time on the wall: what to
look at on a machine that others use too.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

from . import turns

_SECONDS_PER_TURN = 0.4
_THREADS = "SOFTIPU_PADDLE_THREADS"
_SELF = ["benchmarks.paddle_plugin"]
_SIDES = ("ipu", "cpu")
_GOALS = {
    "LeNet training": 1.2,
    "ResNet-50 training": 2.0,
    "ResNet-50 forward": 2.0,
}
_MOST_LONGER = {"tiny op x 1000": "+1 us"}

Step = Callable[[], Any]


def _training(model: Any, optimizer: Any, inputs: Any, labels: Any) -> Step:
    from paddle.nn import functional

    def step() -> Any:
        loss = functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        return loss

    return step


def _images(batch: int, channels: int, size: int, classes: int) -> tuple[Any, Any]:
    import numpy
    import paddle

    random = numpy.random.RandomState(0)
    images = random.rand(batch, channels, size, size).astype("float32")
    return paddle.to_tensor(images), paddle.to_tensor(random.randint(0, classes, (batch, 1)))


def _lenet() -> Step:
    import paddle

    model = paddle.vision.models.LeNet()
    optimizer = paddle.optimizer.Adam(0.001, parameters=model.parameters())
    return _training(model, optimizer, *_images(64, 1, 28, 10))


def _resnet() -> Step:
    import paddle

    model = paddle.vision.models.resnet50()
    optimizer = paddle.optimizer.Momentum(0.001, parameters=model.parameters())
    return _training(model, optimizer, *_images(4, 3, 224, 1000))


def _resnet_forward() -> Step:
    import paddle

    model = paddle.vision.models.resnet50()
    model.eval()
    images, _ = _images(4, 3, 224, 1000)

    def forward() -> Any:
        with paddle.no_grad():
            return model(images)

    return forward


def _threads() -> int:
    """What predictors compute with: as many threads as the plugin."""
    return int(os.environ.get(_THREADS, "0")) or len(os.sched_getaffinity(0))


def _resnet_predictor(onednn: bool) -> Step:
    """A saved ResNet-50 in Paddle's inference engine: input in, run, output out.

    On the CPU either as a plain `Config` has it, or with oneDNN and all fusions, which devices of
    plugins don't get: the best that a person gets out of the CPU.
    """
    import paddle
    from paddle import inference

    model = paddle.vision.models.resnet50()
    model.eval()
    spec = paddle.static.InputSpec([None, 3, 224, 224], "float32", "image")
    with tempfile.TemporaryDirectory() as folder:
        paddle.jit.save(model, f"{folder}/model", input_spec=[spec])
        # Which of its formats Paddle writes is up to the mode that it is in.
        newer = os.path.exists(f"{folder}/model.json")
        file = f"{folder}/model.{'json' if newer else 'pdmodel'}"
        config = inference.Config(file, f"{folder}/model.pdiparams")
        config.disable_glog_info()
        config.set_cpu_math_library_num_threads(_threads())
        if newer:
            config.enable_new_ir(True)
            config.enable_new_executor(True)
        if paddle.get_device() != "cpu":
            config.enable_custom_device("ipu", 0)
        elif onednn:
            config.enable_onednn()
        else:
            config.disable_onednn()
        predictor = inference.create_predictor(config)
    source = predictor.get_input_handle(predictor.get_input_names()[0])
    images = _images(1, 3, 224, 1000)[0].numpy()
    source.copy_from_cpu(images)
    predictor.run()
    result = predictor.get_output_handle(predictor.get_output_names()[0])

    def infer() -> Any:
        source.copy_from_cpu(images)
        predictor.run()
        return result.copy_to_cpu()

    return infer


def _tiny_op() -> Step:
    import paddle

    x, add = paddle.ones([4]), paddle._C_ops.add

    def thousand() -> Any:
        for _ in range(1000):
            y = add(x, x)
        return y

    return thousand


ROWS: dict[str, Callable[[], Step]] = {
    "LeNet training": _lenet,
    "ResNet-50 training": _resnet,
    "ResNet-50 forward": _resnet_forward,
    "ResNet-50 predictor": lambda: _resnet_predictor(onednn=False),
    "ResNet-50 predictor, oneDNN": lambda: _resnet_predictor(onednn=True),
    "tiny op x 1000": _tiny_op,
}


def _timed(step: Step, clock: Callable[[], float]) -> float:
    """Seconds per step, over as many steps as fit a turn."""
    import numpy

    start, began, count = clock(), time.perf_counter(), 0
    while count < 1 or time.perf_counter() - began < _SECONDS_PER_TURN:
        result = step()
        count += 1
    numpy.asarray(result)
    return (clock() - start) / count


def take_turns(row: str, side: str, cpu_time: bool) -> None:
    """One side in this process: gets ready, then takes a turn for every line it is sent."""
    import paddle

    paddle.set_device(side)
    paddle.seed(1)
    step = ROWS[row]()
    for _ in range(3):
        step()
    clock = time.process_time if cpu_time else time.perf_counter
    turns.take_turns(str(paddle.get_device()), lambda: _timed(step, clock))


def table(rows: list[str], rounds: int, threads: int, cpu_time: bool) -> None:
    environment = {"GLOG_minloglevel": "2"} | ({_THREADS: str(threads)} if threads else {})
    print(f"{'row':28}{'ipu, ms':>12}{'cpu, ms':>12}{'x cpu':>8}{'goal':>8}")
    for row in rows:
        extra = ["--cpu-time"] if cpu_time else []
        players = {
            side: turns.Player([*_SELF, "--turns-of", side, row, *extra], environment)
            for side in _SIDES
        }
        times = turns.medians(players, rounds)
        goal = f"{_GOALS[row]:.1f}" if row in _GOALS else _MOST_LONGER.get(row, "-")
        print(
            f"{row:28}{times['ipu'] * 1e3:12.3f}{times['cpu'] * 1e3:12.3f}"
            f"{times['cpu'] / times['ipu']:8.2f}{goal:>8}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=0, help="of large ops; 0: one per core")
    parser.add_argument("--cpu-time", action="store_true", help="time computed, not time passed")
    parser.add_argument("--turns-of", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.turns_of:
        take_turns(args.turns_of[1], args.turns_of[0], args.cpu_time)
    else:
        table([row for row in ROWS if args.rows in row], args.rounds, args.threads, args.cpu_time)


if __name__ == "__main__":
    main()
