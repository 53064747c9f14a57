"""Steps that XLA compiles: chosen by measurement, equal to the executor's, and kept on disk."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras


def network(*layers: keras.layers.Layer) -> keras.Model:
    model = keras.Sequential(
        [keras.layers.Dense(8, activation="tanh", input_shape=(4,)), *layers, keras.layers.Dense(1)]
    )
    model.compile(keras.optimizers.legacy.SGD(0.05), "mse", steps_per_execution=2)
    return model


def data() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    return (
        random.normal(size=(16, 4)).astype(np.float32),
        random.normal(size=(16, 1)).astype(np.float32),
    )


def choice_of(model: keras.Model):
    (execution,) = model._ipu_functions.values()
    return execution.choice


def fitted(model: keras.Model, epochs: int = 3) -> list[float]:
    x, y = data()
    options = {"batch_size": 4, "epochs": epochs, "shuffle": False, "verbose": 0}
    return model.fit(x, y, **options).history["loss"]


@pytest.fixture
def at_once(monkeypatch):
    """A compiled form is tried in the second execution."""
    monkeypatch.setenv("SOFTIPU_COMPILE_AFTER", "1e-9")


def fastest(monkeypatch, winner: str) -> None:
    """Makes one of the forms look fast, whatever the machine does."""
    from tf_keras.ipu.extensions import choice

    timed = choice._timed

    def told(form, iterator):
        results, _ = timed(form, iterator)
        return results, 0.5 if form.name == winner else 1.0

    monkeypatch.setattr(choice, "_timed", told)


@pytest.mark.parametrize("winner", ["executor", "one thread", "XLA"])
def test_the_fastest_form_runs_and_learns_the_same(ipus, at_once, monkeypatch, winner):
    fastest(monkeypatch, winner)
    plain = network()
    with ipus().scope():
        ours = network()
        ours.set_weights(plain.get_weights())
        losses = fitted(ours, epochs=8)
    assert choice_of(ours).form == winner
    assert [form.name for form in choice_of(ours)._forms] == ["executor", "one thread", "XLA"]
    np.testing.assert_allclose(losses, fitted(plain, epochs=8), rtol=1e-4)
    for mine, theirs in zip(ours.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)


def test_one_thread_gives_the_executor_s_numbers_to_the_bit(ipus, at_once, monkeypatch):
    weights = {}
    for winner in ("executor", "one thread"):
        with ipus().scope():
            ours = network()
            weights.setdefault("begin", ours.get_weights())
            ours.set_weights(weights["begin"])
            ours.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=2)
            only(monkeypatch, winner)
            fitted(ours, epochs=8)
        assert choice_of(ours).form == winner
        weights[winner] = ours.get_weights()
    for one, other in zip(weights["executor"], weights["one thread"], strict=True):
        np.testing.assert_array_equal(one, other)


def only(monkeypatch, winner: str) -> None:
    """The winner wins, and there is no XLA, whose trials round differently."""
    from tf_keras.ipu.extensions import choice

    fastest(monkeypatch, winner)
    monkeypatch.setattr(choice, "compiled_step", lambda step: None)


class Recurrent(keras.layers.Layer):
    """Has a loop of its own, traced for all threads."""

    def call(self, x):
        done = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y * 1.01), (0, x))
        return tf.ensure_shape(done[1], x.shape)


def test_steps_with_loops_are_not_tried_on_one_thread(ipus, at_once):
    with ipus().scope():
        ours = network(Recurrent())
        losses = fitted(ours, epochs=8)
    assert "one thread" not in [form.name for form in choice_of(ours)._forms]
    assert losses[-1] < losses[0]


def test_only_the_step_is_on_one_thread(ipus, at_once):
    """A loop there would keep a thread from others while it waits for data."""
    from tf_keras.ipu.extensions import choice

    with ipus().scope():
        ours = network()
        fitted(ours, epochs=8)
    executors = {
        form.name: [
            op.get_attr("executor_type")
            for op in choice._operations(form.run.traced.graph)
            if op.type == "StatefulPartitionedCall"
        ]
        for form in choice_of(ours)._forms
    }
    assert executors == {
        "executor": [b""], "one thread": [b"SINGLE_THREADED_EXECUTOR"], "XLA": [b""],
    }  # fmt: skip


def test_a_single_step_needs_no_loop_until_there_are_more(ipus):
    """The last execution of data may have fewer steps than those before and after."""
    from tf_keras.ipu.extensions import choice

    x, _ = data()
    with ipus().scope():
        ours = network()
        first = ours.predict(x[:4], batch_size=4, verbose=0)
        operations = choice._operations(choice_of(ours)._executor.run.traced.graph)
        assert not any(op.type in ("While", "StatelessWhile") for op in operations)
        all_steps = ours.predict(x, batch_size=4, verbose=0)
        operations = choice._operations(choice_of(ours)._executor.run.traced.graph)
        assert any(op.type in ("While", "StatelessWhile") for op in operations)
        again = ours.predict(x[:4], batch_size=4, verbose=0)
    expected = ours(x).numpy()
    np.testing.assert_allclose(first, expected[:4], rtol=1e-5)
    np.testing.assert_allclose(all_steps, expected, rtol=1e-5)
    np.testing.assert_array_equal(again, all_steps[:4])


@pytest.mark.parametrize("replicas", [1, 2])
def test_one_step_at_a_time_trains_like_two(ipus, replicas):
    found = []
    start = network().get_weights()
    for steps in (1, 2):
        with ipus(replicas).scope():
            ours = network()
            ours.set_weights(start)
            ours.compile(keras.optimizers.legacy.SGD(0.05), "mse", steps_per_execution=steps)
            losses = fitted(ours)
            x, _ = data()
            found.append((losses, ours.predict(x, batch_size=4, verbose=0), ours.get_weights()))
    (losses, results, weights), (_, expected, others) = found
    assert losses[-1] < losses[0]
    np.testing.assert_allclose(results, expected, rtol=1e-5)
    for mine, theirs in zip(weights, others, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_an_execution_during_a_trial_is_none(at_once):
    from tf_keras.ipu.extensions import choice

    ran = []

    def on_rival(iterator):
        ran.append(f"rival {iterator}")
        if iterator == "outer":
            chosen("inner", 1)

    chosen = choice.Choice(
        lambda iterator: ran.append(f"executor {iterator}"),
        lambda: [choice.Form("one thread", on_rival)],
    )
    chosen("first", 1)
    chosen("outer", 1)
    assert ran == ["executor first", "rival outer", "executor inner"]
    assert [form.seconds for form in chosen._forms] == [[], []]


def test_random_steps_stay_on_the_executor(ipus, at_once):
    with ipus().scope():
        ours = network(keras.layers.Dropout(0.5))
        fitted(ours)
    assert choice_of(ours).form == "executor"
    assert len(choice_of(ours)._forms) == 1


class Shaken(keras.constraints.Constraint):
    def __call__(self, weights):
        return weights + 0.01 * tf.random.normal(weights.shape)


def test_random_updates_stay_on_the_executor(ipus, at_once):
    with ipus().scope():
        ours = network(keras.layers.Dense(8, kernel_constraint=Shaken()))
        ours.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=2)
        fitted(ours)
    assert choice_of(ours).form == "executor"
    assert len(choice_of(ours)._forms) == 1


class Nested(keras.layers.Layer):
    """Calls a function, which wants a thread while the step has one."""

    @tf.function
    def call(self, x):
        return x * 1.01


def test_steps_with_functions_are_not_tried_on_one_thread(ipus, at_once):
    with ipus().scope():
        ours = network(Nested())
        losses = fitted(ours, epochs=8)
    assert "one thread" not in [form.name for form in choice_of(ours)._forms]
    assert losses[-1] < losses[0]


class Hosted(keras.layers.Layer):
    """Runs Python on the host, which XLA can't compile."""

    def call(self, x):
        return tf.ensure_shape(tf.py_function(lambda value: value, [x], tf.float32), x.shape)


def test_what_xla_does_not_compile_stays_on_the_executor(ipus, at_once):
    with ipus().scope():
        ours = network(Hosted())
        losses = fitted(ours, epochs=8)
    assert choice_of(ours).form == "executor"
    assert losses[-1] < losses[0]


def test_deterministic_programs_are_not_tried(ipus, at_once, monkeypatch):
    monkeypatch.setenv("SOFTIPU_DETERMINISTIC", "1")
    with ipus().scope():
        ours = network()
        fitted(ours)
    assert choice_of(ours).form == "executor"
    assert choice_of(ours)._forms == []


@pytest.mark.parametrize("replicas", [1, 2])
def test_programs_that_are_only_compiled_give_zeros(ipus, replicas):
    from tensorflow.python.ipu.utils import DeviceConnectionType

    options = {
        "device_connection__version": "ipu2",
        "device_connection__type": DeviceConnectionType.PRE_COMPILE,
    }
    with ipus(replicas, **options).scope():
        ours = network()
        before = ours.get_weights()
        assert fitted(ours, epochs=1) == [0.0]
        np.testing.assert_array_equal(ours.predict(data()[0], batch_size=4), np.zeros((16, 1)))
    for now, then in zip(ours.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)


PROGRAM = """
    import numpy as np
    from tensorflow.python import ipu
    import tensorflow as tf
    from tensorflow import keras
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = keras.Sequential([keras.layers.Dense(1, input_shape=(4,), name="d")])
        model.compile("sgd", "mse", steps_per_execution=2)
        x, y = np.ones((8, 4), "f"), np.ones((8, 1), "f")
        losses = model.fit(x, y, batch_size=2, epochs=4, verbose=0).history["loss"]
    assert len(losses) == 4 and losses[-1] < losses[0], losses
    print("learnt")
"""


IN_THREADS = """
    import os, threading
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import numpy as np
    from tensorflow.python import ipu
    import tensorflow as tf
    from tensorflow import keras
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()
    def train():
        x, y = np.ones((8, 4), "f"), np.ones((8, 1), "f")
        data = tf.data.Dataset.from_tensor_slices((x, y)).repeat()
        data = data.map(lambda x, y: (x * 2, y), num_parallel_calls=4)
        with strategy.scope():
            model = keras.Sequential([keras.layers.Dense(1, input_shape=(4,))])
            model.compile("sgd", "mse", steps_per_execution=4)
            batches = data.batch(2, drop_remainder=True)
            model.fit(batches, steps_per_epoch=4, epochs=14, verbose=0)
        (execution,) = model._ipu_functions.values()
        print(execution.choice.form != "trying", flush=True)
    threads = [threading.Thread(target=train) for _ in range(2)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


def test_models_in_threads_go_on_where_tensorflow_has_one(tmp_path):
    own = {"SOFTIPU_HOME": str(tmp_path / "home"), "SOFTIPU_COMPILE_AFTER": "1e-9"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(IN_THREADS)],
        capture_output=True, text=True, env=os.environ | own, check=False, timeout=150,
    )  # fmt: skip
    assert done.stdout == "True\nTrue\n", done.stderr[-2000:]


def test_compiled_code_is_kept_and_damaged_files_are_not_read(tmp_path):
    cache = tmp_path / "cache"

    def run() -> dict[str, bytes]:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(PROGRAM)], capture_output=True, text=True,
            env={
                "PATH": "", "SOFTIPU_HOME": str(tmp_path / "home"), "SOFTIPU_COMPILE_AFTER": "1e-9",
                "TF_POPLAR_FLAGS": f"--executable_cache_path={cache}", "HOME": str(tmp_path),
                "TF_CPP_MIN_LOG_LEVEL": "3",
            },
            check=False,
        )  # fmt: skip
        assert done.stdout.endswith("learnt\n"), done.stderr[-2000:]
        return {file.name: file.read_bytes() for file in cache.glob("xla-*/*.pb")}

    first = run()
    assert len(first) == 1
    (file,) = cache.glob("xla-*/*.pb")
    assert file.with_suffix(".sha256").exists()
    written = file.stat().st_mtime_ns
    assert run() == first
    assert file.stat().st_mtime_ns == written, "compiled again"
    file.write_bytes(first[file.name][:1000])
    assert run().keys() == first.keys()
    assert len(file.read_bytes()) > 1000, "the damaged file was kept"
