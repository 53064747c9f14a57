"""TensorFlow programs on IPUs: warned about, refused and reported by the machine model."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras
from tensorflow.python import ipu

import pva
import softipu
from softipu import report
from softipu.errors import EstimateFailed
from softipu.estimating.modelled import THREAD
from softipu.frontends.tensorflow import neutral_programs

X, Y = np.ones((16, 12), np.float32), np.zeros((16, 4), np.float32)


def small(**options):
    model = keras.Sequential([keras.Input((12,), batch_size=4), keras.layers.Dense(4)])
    model.compile("sgd", "mse", steps_per_execution=4, **options)
    return model


def huge():
    """530 MB of weights, which no IPU of the first generation has, and which several can share."""
    zeros = {"use_bias": False, "kernel_initializer": "zeros"}
    model = keras.Sequential(
        [keras.Input((12,), batch_size=4), keras.layers.Dense(10_000, **zeros),
         keras.layers.Dense(6_000, **zeros), keras.layers.Dense(12_000, **zeros, name="wide")]
    )  # fmt: skip
    model.compile(steps_per_execution=4)
    return model


def waited_for():
    threads = [thread for thread in threading.enumerate() if thread.name == THREAD]
    for thread in threads:
        thread.join(300)
    return len(threads)


def ask_for_reports(monkeypatch, directory):
    asked = {"autoReport.all": "true", "autoReport.directory": str(directory)}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(asked))


def test_a_model_without_room_is_warned_about_once_and_strictly_refused(ipus, caplog, monkeypatch):
    with ipus(device_connection__version="ipu1").scope():
        little = small()
        little.predict(X, batch_size=4)
        assert waited_for() == 0  # nobody needs an estimate of that
        model = huge()
        assert model.predict(X, batch_size=4).shape == (16, 12_000)
        model.predict(X, batch_size=4)
        assert waited_for() <= 1
        messages = [record.getMessage() for record in caplog.records]
        said = [text for text in messages if "out of memory" in text]
        assert len(said) == 1
        assert "would be out of memory on a real mk1 IPU" in said[0]
        assert "weights" in said[0]
        assert "Change " in said[0]
        assert "runs here nevertheless" in said[0]
        monkeypatch.setenv("SOFTIPU_STRICT", "1")
        model._reset_ipu_extension()
        for _ in range(2):
            with pytest.raises(tf.errors.ResourceExhaustedError, match="SIPU-8017") as caught:
                model.predict(X, batch_size=4)
            assert isinstance(caught.value, tf.errors.InternalError)
            assert "KiB" in str(caught.value)
        assert small().predict(X, batch_size=4).shape == (16, 4)


def test_each_function_of_a_model_has_its_report(ipus, tmp_path, monkeypatch):
    ask_for_reports(monkeypatch, tmp_path)
    with ipus().scope():
        model = small()
        model.fit(X, Y, batch_size=4, epochs=2, validation_data=(X, Y), validation_batch_size=4,
                  verbose=0)  # fmt: skip
        model.evaluate(X, Y, batch_size=4, verbose=0)
        model.predict(X, batch_size=4)
        small().predict(X, batch_size=4)
        expected = softipu.estimate(model, arch="bow")
    names = [path.parent.name for path in report.find(tmp_path)]
    assert names == ["training", "evaluation", "inference", "inference_2"]
    opened = pva.openReport(str(tmp_path / "inference" / "profile.pop"))
    assert opened.execution.totalCycles.total == round(expected.cycles.total)
    for folder in names:
        assert {path.name for path in (tmp_path / folder).iterdir()} == {
            report.PAGE, report.TRACE, report.PROFILE, report.DATA
        }  # fmt: skip
    assert json.loads((tmp_path / "training" / "profile.json").read_text())["name"] == model.name


def test_what_cannot_be_modelled_runs_with_one_warning(ipus, caplog, tmp_path, monkeypatch):
    def fails(*_):
        raise KeyError("nobody foresaw this")

    monkeypatch.setattr(neutral_programs, "of_execution", fails)
    ask_for_reports(monkeypatch, tmp_path)
    with ipus().scope():
        model = small()
        model.predict(X, batch_size=4)
        model.predict(X, batch_size=4)
        warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        assert len([text for text in warnings if "nobody foresaw this" in text]) == 1
        assert model.name in warnings[-1]
        assert f"SIPU-{EstimateFailed.code}" in warnings[-1]
        monkeypatch.setenv("SOFTIPU_STRICT", "1")
        with pytest.raises(tf.errors.InternalError, match="nobody foresaw this"):
            small().predict(X, batch_size=4)
    assert not list(tmp_path.glob("**/profile.pop"))


def test_a_directory_that_cannot_be_written_is_an_error(ipus, tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    monkeypatch.setenv("SOFTIPU_PROFILE_DIR", str(blocked))
    with ipus().scope(), pytest.raises(tf.errors.InternalError, match="SIPU-8050"):
        small().predict(X, batch_size=4)


def product_of(weights):
    @tf.function
    def product(x):
        return tf.linalg.matvec(weights, x)

    return product


def test_functions_of_a_strategy_and_of_the_compiler_are_asked_about_once(
    ipus, caplog, tmp_path, monkeypatch
):
    strategy = ipus(device_connection__version="ipu1")
    with strategy.scope():
        product = product_of(tf.Variable(tf.zeros((12_000, 10_000))))
        for _ in range(2):
            strategy.run(product, args=[tf.ones(10_000)])
        waited_for()
        said = [r.getMessage() for r in caplog.records if "out of memory" in r.getMessage()]
        assert len(said) == 1
        assert "product would be out of memory on a real mk1 IPU" in said[0]
        monkeypatch.setenv("SOFTIPU_STRICT", "1")
        refused = product_of(tf.Variable(tf.zeros((12_000, 10_000))))
        with pytest.raises(tf.errors.ResourceExhaustedError, match="SIPU-8017"):
            strategy.run(refused, args=[tf.ones(10_000)])
        ask_for_reports(monkeypatch, tmp_path)

        def doubled(x):
            return x @ x

        with tf.device("/device:IPU:0"):
            for _ in range(2):
                ipu.ipu_compiler.compile(doubled, [tf.ones((8, 8))])
        (written,) = report.find(tmp_path)
        assert json.loads(written.read_text())["name"] == "doubled"


def test_a_pipeline_s_stages_are_those_of_the_report(ipus, tmp_path, monkeypatch):
    ask_for_reports(monkeypatch, tmp_path)
    strategy = ipus(2)
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(4, drop_remainder=True).repeat()
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    ops = ipu.pipelining_ops
    with strategy.scope():
        first = tf.Variable(tf.ones((12, 32)))
        second = tf.Variable(tf.ones((32, 4)))
        optimizer = keras.optimizers.legacy.SGD(0.01)

        def begin(x, y):
            return tf.nn.relu(x @ first), y

        def end(x, y):
            return tf.reduce_mean(tf.square(x @ second - y))

        def update(loss):
            return ops.OptimizerFunctionOutput(optimizer, loss, variables=[first, second])

        @tf.function
        def train():
            ops.pipeline(
                [begin, end], 8, repeat_count=3, infeed_queue=infeed, outfeed_queue=outfeed,
                optimizer_function=update, pipeline_schedule=ops.PipelineSchedule.Interleaved,
            )  # fmt: skip

        infeed.initializer  # noqa: B018  # starts the feed
        strategy.run(train)
    assert len(outfeed.dequeue()[0]) == 24
    (written,) = report.find(tmp_path)
    found = report.read(written)
    assert written.parent.name == "training"
    assert found.schedule["stage_ipus"] == [0, 1]
    assert (found.schedule["accumulation"], found.schedule["device_iterations"]) == (8, 3)
    assert found.schedule["micro_batch"] == 4
    assert found.settings.pipeline_schedule == "interleaved"
    assert found.unknown == {}
    places = {(step.kind, step.phase, step.stage) for step in found.steps if step.kind == "matmul"}
    assert places == {
        ("matmul", "forward", 0), ("matmul", "forward", 1), ("matmul", "backward", 1),
        ("matmul", "backward", 0),
    }  # fmt: skip
    weights = [memory.all_tiles["weights"] for memory in found.memory]
    assert weights == [4 * 12 * 32, 4 * 32 * 4]


def test_a_session_s_program_is_asked_about_too(ipus, caplog, tmp_path, monkeypatch):
    v1 = tf.compat.v1
    ask_for_reports(monkeypatch, tmp_path)
    with tf.Graph().as_default(), v1.Session() as session:
        dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(4, drop_remainder=True).repeat()
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def step(x, y):
            made = v1.layers.dense(x, 4, name="last")
            loss = tf.reduce_mean(tf.square(made - y))
            trained = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
            return outfeed.enqueue(loss), trained

        def train():
            return ipu.loops.repeat(6, step, [], infeed)

        with tf.device("/device:IPU:0"):
            run = ipu.ipu_compiler.compile(train)
        losses = outfeed.dequeue()
        ipus()
        session.run([v1.global_variables_initializer(), infeed.initializer])
        for _ in range(2):
            session.run(run)
        assert np.ravel(session.run(losses)).shape == (12,)
        assert [r.getMessage() for r in caplog.records if "No estimate" in r.getMessage()] == []
    (written,) = report.find(tmp_path)
    found = report.read(written)
    assert (found.name, written.parent.name) == ("train", "training")
    assert found.schedule["device_iterations"] == 6
    assert found.unknown == {}
    # The weights and their momentum, in single precision.
    parts = found.memory[0].all_tiles
    assert parts["weights"] + parts["state"] == 4 * 2 * (12 * 4 + 4)


CALL = "import sys; from softipu.tools.main import main; sys.exit(main())"
SCRIPT = """
import numpy as np
from tensorflow import keras
from tensorflow.python import ipu

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
with ipu.ipu_strategy.IPUStrategy().scope():
    model = keras.Sequential([keras.Input((8,), batch_size=4), keras.layers.Dense(4)])
    model.compile("adam", "mse", steps_per_execution=2)
    model.fit(np.ones((8, 8), "f"), np.ones((8, 4), "f"), batch_size=4, verbose=0)
"""


def test_softipu_run_profiles_a_keras_script(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    child = subprocess.run(
        [sys.executable, "-c", CALL, "run", "--profile", str(tmp_path / "profile"),
         str(script)],
        env=os.environ | {"SOFTIPU_HOME": str(tmp_path / "home"), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert child.returncode == 0, child.stderr[-3000:]
    opened = pva.openReport(str(tmp_path / "profile" / "training" / "profile.pop"))
    assert sum(step.ipus[0].cycles for step in opened.execution.steps) > 0
