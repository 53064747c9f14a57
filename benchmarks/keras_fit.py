"""Keras `fit` on virtual IPUs, against plain tf.keras in all the ways a person would try.

python -m benchmarks.keras_fit [--rows TEXT] [--processes N] [--rounds N] [--together] [--first]

In the table each side has a process of its own, which keeps its luck with memory and processors all
its life; `--together` has both sides of a comparison in one process, fit by fit in turns.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

from . import turns

_BATCH, _STEPS = 64, 100
_SECONDS_PER_TURN = 0.6
#: A process that waited finds its memory and caches taken by others, and is slow for a while.
_SECONDS_TO_WARM = 0.3
#: Enough to try all ways to run a step and to choose one; all sides get as many.
_SETTLING_EXECUTIONS = 40
#: Ours: steps per execution.
_OURS = {"softipu": _STEPS, "softipu, 1 step": 1}
#: Plain tf.keras: steps per execution, XLA.
_PLAIN = {
    "plain": (1, False),
    "plain, 100 steps": (_STEPS, False),
    "XLA": (1, True),
    "XLA, 100 steps": (_STEPS, True),
}
_SIDES = (*_OURS, *_PLAIN)
_ROWS = ("MNIST MLP", "MNIST CNN")


def _model(row: str) -> Any:
    from tensorflow import keras

    layers = keras.layers
    if row == "MNIST MLP":
        return keras.Sequential(
            [layers.Flatten(input_shape=(28, 28, 1)), layers.Dense(128, activation="relu"),
             layers.Dense(10)]
        )  # fmt: skip
    return keras.Sequential(
        [layers.Conv2D(32, 3, activation="relu", input_shape=(28, 28, 1)), layers.MaxPooling2D(),
         layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten(),
         layers.Dense(64, activation="relu"), layers.Dense(10)]
    )  # fmt: skip


def _compiled(row: str, steps: int, **options: Any) -> Any:
    from tensorflow import keras

    model = _model(row)
    model.compile(
        keras.optimizers.legacy.SGD(0.01),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        steps_per_execution=steps,
        **options,
    )
    return model


def _dataset() -> Any:
    import numpy as np
    import tensorflow as tf

    random = np.random.default_rng(0)
    images = random.normal(size=(_BATCH * 8, 28, 28, 1)).astype(np.float32)
    labels = random.integers(0, 10, _BATCH * 8).astype(np.int32)
    data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(_BATCH, drop_remainder=True)
    # tf.data's tuner makes the end of an iterator wait for its next look, up to seconds later.
    untuned = tf.data.Options()
    untuned.autotune.enabled = False
    return data.cache().repeat().prefetch(16).with_options(untuned)


def fit_of(side: str, row: str) -> Callable[[int], Any]:
    """A function that fits for so many steps."""
    if side in _OURS:
        from tensorflow.python import ipu

        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 1
        config.configure_ipu_system()
        with ipu.ipu_strategy.IPUStrategy().scope():
            model = _compiled(row, _OURS[side])
    else:
        steps, xla = _PLAIN[side]
        model = _compiled(row, steps, jit_compile=xla)
    data = _dataset()
    return lambda steps: model.fit(data, steps_per_epoch=steps, epochs=1, verbose=0)


def _player(side: str, row: str) -> None:
    fit = fit_of(side, row)
    fit(_SETTLING_EXECUTIONS * _STEPS)

    def seconds_per_step(seconds: float) -> float:
        start, steps = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            fit(5 * _STEPS)
            steps += 5 * _STEPS
        return (time.perf_counter() - start) / steps

    def turn() -> float:
        seconds_per_step(_SECONDS_TO_WARM)
        return seconds_per_step(_SECONDS_PER_TURN)

    turns.take_turns(side, turn)


_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": "1"}
#: Ways to run a step are tried before the clock starts, not in the middle of a turn.
_SETTLED = {"SOFTIPU_COMPILE_AFTER": "0.2"}


def _players(row: str) -> dict[str, turns.Player]:
    return {
        side: turns.Player(["benchmarks.keras_fit", "--turns-of", side, row], _QUIET | _SETTLED)
        for side in _SIDES
    }


def table(rows: list[str], processes: int, rounds: int) -> None:
    heads = "".join(f"{side:>18}" for side in _SIDES)
    print(f"{'row':12}{heads}{'x best':>8}{'x best, 1 step':>16}")
    for row in rows:
        times = turns.medians_over_processes(functools.partial(_players, row), processes, rounds)
        best = min(times[side] for side in _PLAIN)
        # A program that asks for one step at a time would get the same from the others.
        best_of_one = min(times[side] for side, (steps, _) in _PLAIN.items() if steps == 1)
        shown = "".join(f"{times[side] * 1e3:18.3f}" for side in _SIDES)
        ratios = best / times["softipu"], best_of_one / times["softipu, 1 step"]
        print(f"{row:12}{shown}{ratios[0]:8.2f}{ratios[1]:16.2f}", flush=True)
    print("milliseconds per step")


def together(rows: list[str], rounds: int) -> None:
    """Ours against plain tf.keras without XLA, which small convolutions lose by."""
    print(f"\n{'in one process':24}{'softipu':>10}{'plain':>10}{'x plain':>9}")
    for row in rows:
        for ours, plain in (("softipu", "plain, 100 steps"), ("softipu, 1 step", "plain")):
            times = turns.output_of(
                ["benchmarks.keras_fit", "--together-of", ours, plain, row, str(rounds)],
                _QUIET | _SETTLED,
            ).split()[-2:]
            shown = [float(seconds) * 1e3 for seconds in times]
            name = f"{row}{', 1 step' if plain == 'plain' else ''}"
            print(
                f"{name:24}{shown[0]:10.3f}{shown[1]:10.3f}{shown[1] / shown[0]:9.2f}", flush=True
            )


def _side_by_side(sides: list[str], row: str, rounds: int) -> list[float]:
    """Seconds of a step of each side, medians over fits that follow one another."""
    fits = [fit_of(side, row) for side in sides]
    for fit in fits:
        fit(_SETTLING_EXECUTIONS * _STEPS)
    times: list[list[float]] = [[] for _ in fits]
    for turn in range(rounds):
        for index in (0, 1) if turn % 2 else (1, 0):
            start = time.perf_counter()
            fits[index](5 * _STEPS)
            times[index].append((time.perf_counter() - start) / (5 * _STEPS))
    return [statistics.median(each) for each in times]


def first_steps(rows: list[str]) -> None:
    print(f"\n{'seconds to the first execution':32}{'plain':>10}{'softipu':>10}")
    for row in rows:
        times: dict[str, list[float]] = {"plain, 100 steps": [], "softipu": []}
        for turn in range(4):
            for side, values in times.items():
                seconds = turns.seconds_to_result(
                    ["benchmarks.keras_fit", "--first-of", side, row], _QUIET
                )
                if turn:  # the first reads files for the first time
                    values.append(seconds)
        shown = "".join(f"{sorted(values)[1]:10.2f}" for values in times.values())
        print(f"{row:32}{shown}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument("--processes", type=int, default=3, help="of each side, one by one")
    parser.add_argument("--rounds", type=int, default=4, help="turns of each process")
    parser.add_argument("--together", action="store_true", help="also both sides in one process")
    parser.add_argument("--skip-table", action="store_true", help="only what else is asked for")
    parser.add_argument("--first", action="store_true", help="also the time to the first execution")
    parser.add_argument("--together-of", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--turns-of", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--first-of", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.turns_of:
        return _player(*arguments.turns_of)
    if arguments.together_of:
        *sides, row, rounds = arguments.together_of
        print(*_side_by_side(sides, row, int(rounds)))
        return None
    if arguments.first_of:
        fit_of(*arguments.first_of)(_STEPS)
        print("first execution", flush=True)
        return None
    rows = [row for row in _ROWS if arguments.rows in row]
    if not arguments.skip_table:
        table(rows, arguments.processes, arguments.rounds)
    if arguments.together:
        together(rows, 5 * arguments.rounds)
    if arguments.first:
        first_steps(rows)
    return None


if __name__ == "__main__":
    main()
