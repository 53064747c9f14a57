"""Paddle programs on IPUs: warned about, refused and reported by the machine model."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import warnings

import numpy as np
import paddle
import pytest

import pva
from softipu import report
from softipu.errors import OutOfMemory, ReportUnwritable, SoftIPUError
from softipu.estimating.modelled import THREAD
from softipu.frontends.paddle import neutral
from softipu.frontends.paddle.neutral_programs import of_compiled, of_predictor
from softipu.frontends.paddle.option_table import OPTIONS
from softipu.graph import Phase

paddle.enable_static()


@pytest.fixture(autouse=True)
def no_devices(monkeypatch):
    monkeypatch.setenv("POPLAR_IPUMODEL", "1")


def program(width=8, training=False, open_batch=False):
    """A program of one product, its executor, and what it is fed and gives back."""
    main, start = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, start):
        x = paddle.static.data("x", [-1 if open_batch else 4, width])
        weight = paddle.create_parameter(
            [x.shape[1], width], "float32",
            default_initializer=paddle.nn.initializer.Constant(0.0),
        )  # fmt: skip
        out = paddle.matmul(x, weight)
        if training:
            out = paddle.mean(out)
            paddle.optimizer.SGD(0.1).minimize(out)
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(start)
    return main, executor, x, out


def compiled(main, out, training=False, **options):
    strategy = paddle.static.IpuStrategy()
    strategy.set_graph_config(num_ipus=1, is_training=training, micro_batch_size=4)
    strategy.set_options(options)
    made = paddle.static.IpuCompiledProgram(main, ipu_strategy=strategy)
    return made.compile(["x"], [out.name])


def waited_for():
    threads = [thread for thread in threading.enumerate() if thread.name == THREAD]
    for thread in threads:
        thread.join(300)
    return len(threads)


def test_a_program_without_room_is_warned_about_and_strictly_refused(caplog, monkeypatch):
    """1.02 GB of weights, which no IPU has room for."""
    monkeypatch.setenv("SOFTIPU_PADDLE_ONEDNN", "0")  # its engine would copy them
    main, _, _, out = program()
    compiled(main, out)
    assert waited_for() == 0  # nobody needs an estimate of that
    main, executor, _, out = program(16_000, open_batch=True)
    built = compiled(main, out)
    ones = np.ones((4, 16_000), np.float32)
    for _ in range(2):
        (result,) = executor.run(built, feed={"x": ones}, fetch_list=[out])
    assert result.shape == (4, 16_000)
    waited_for()
    (said,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert "program would be out of memory on a real bow IPU" in said
    assert "weights" in said
    assert "Change " in said
    assert "runs here nevertheless" in said
    monkeypatch.setenv("SOFTIPU_STRICT", "1")
    with pytest.raises(OutOfMemory, match="KiB"):
        compiled(main, out)
    small, _, _, result = program()
    compiled(small, result)


def test_programs_and_predictors_write_reports(tmp_path, monkeypatch):
    asked = {"autoReport.all": "true", "autoReport.directory": str(tmp_path / "all")}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(asked))
    main, executor, x, out = program()
    built = compiled(main, out)
    trained, _, _, loss = program(training=True)
    compiled(trained, loss, training=True)
    prefix = str(tmp_path / "model")
    paddle.static.save_inference_model(prefix, [x], [out], executor, program=main)
    config = paddle.inference.Config(f"{prefix}.pdmodel", f"{prefix}.pdiparams")
    config.enable_ipu(1, 4)
    paddle.inference.create_predictor(config)
    found = report.find(tmp_path / "all")
    assert [path.parent.name for path in found] == ["training", "inference", "inference_2"]
    opened = pva.openReport(str(found[1]))
    graph, settings = of_compiled(built)
    assert opened.execution.totalCycles.total == round(neutral_cycles(graph, settings))
    assert json.loads(found[2].read_text())["name"] == "model"
    assert {path.name for path in found[0].parent.iterdir()} == {
        report.PAGE, report.TRACE, report.PROFILE, report.DATA
    }  # fmt: skip
    monkeypatch.delenv("POPLAR_ENGINE_OPTIONS")
    own = {"autoReport.all": "true", "autoReport.directory": str(tmp_path / "own")}
    compiled(main, out, engine_options=own)
    assert [path.parent.name for path in report.find(tmp_path / "own")] == ["inference"]
    monkeypatch.setenv("SOFTIPU_PROFILE_DIR", f"{prefix}.pdmodel")
    with pytest.raises(ReportUnwritable):
        compiled(main, out)


def neutral_cycles(graph, settings):
    from softipu.machine import estimate

    return estimate(graph, settings).cycles.total


def test_what_cannot_be_modelled_runs_with_one_warning(tmp_path, caplog, monkeypatch):
    def fails(*_):
        raise KeyError("nobody foresaw this")

    monkeypatch.setattr(neutral, "graph_of", fails)
    monkeypatch.setenv("SOFTIPU_PROFILE_DIR", str(tmp_path))
    main, executor, _, out = program()
    built = compiled(main, out)
    executor.run(built, feed={"x": np.ones((4, 8), np.float32)}, fetch_list=[out])
    (said,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert "nobody foresaw this" in said
    assert "No estimate of program" in said
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("SOFTIPU_STRICT", "1")
    with pytest.raises(SoftIPUError, match="nobody foresaw this"):
        compiled(main, out)


#: A value for each option that the table calls modelled.
MODELLED = {
    "available_memory_proportion": 0.2,
    "partials_type_matmuls": "half",
    "convolution_options": {"partialsType": "half"},
    "enable_half_partial": True,
    "auto_recomputation": 4,
    "num_io_tiles": 32,
    "enable_prefetch_datastreams": False,
    "default_prefetch_buffering_depth": 3,
    "synthetic_data_mode": 1,
}
MODELLED_LOCATIONS = [
    ("location_weight", "on_chip", 0),
    ("location_activation", "on_chip", 0),
    ("location_accumulator", "on_chip", 0),
    ("location_optimizer", "on_chip", 1),
    ("location_optimizer", "use_replicated_tensor_sharding", 0),
]


def seen_by_estimates(**options):
    main, _, _, out = program(training=True)
    graph, settings = of_compiled(compiled(main, out, training=True, **options))
    return settings, graph.schedule


def test_every_modelled_option_has_a_value_here():
    assert set(MODELLED) == {row.name for row in OPTIONS.values() if row.support == "modelled"}


@pytest.mark.parametrize("name", MODELLED)
@pytest.mark.filterwarnings("ignore:IpuStrategy option")
def test_a_modelled_option_reaches_the_machine_model(name):
    assert seen_by_estimates(**{name: MODELLED[name]}) != seen_by_estimates()


@pytest.mark.parametrize(("group", "key", "value"), MODELLED_LOCATIONS)
def test_locations_reach_the_machine_model(group, key, value):
    assert seen_by_estimates(**{group: {key: value}}) != seen_by_estimates()


@pytest.mark.filterwarnings("ignore:IpuStrategy option")
def test_ignored_options_do_not_reach_the_machine_model():
    numbers = {"bool": lambda v: not v, "uint64": lambda v: v + 1, "double": lambda v: v + 0.5}
    ignored = {
        row.name: numbers[row.kind](row.default)
        for row in OPTIONS.values()
        if row.support == "ignored" and row.kind in numbers and row.default + 1 != row.below
    }
    del ignored["enable_stochastic_rounding"]  # noted in the settings, though nothing costs more
    assert len(ignored) > 50
    assert seen_by_estimates(**ignored) == seen_by_estimates()


def test_recomputing_norms_alone_keeps_everything_else():
    main, start = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, start):
        x = paddle.static.data("x", [4, 8])
        normal = paddle.static.nn.layer_norm(paddle.static.nn.fc(x, 8))
        out = paddle.mean(paddle.static.nn.fc(normal, 8))
        paddle.optimizer.SGD(0.1).minimize(out)
    paddle.static.Executor(paddle.CPUPlace()).run(start)

    def recomputed(kind):
        built = compiled(main, out, training=True, auto_recomputation=kind)
        graph, _ = of_compiled(built)
        schedule = graph.schedule
        return {
            op.kind
            for op in graph.ops
            if op.phase is Phase.FORWARD and op.stage in schedule.recomputed_stages
            for name in op.outputs
            if name not in schedule.checkpoints
        }

    assert recomputed(0) == set()
    assert recomputed(2) == {"normalise"}
    assert recomputed(4) > {"normalise", "matmul"}


@pytest.mark.parametrize("half", [False, True])
def test_predictors_take_half_partials_for_products_and_convolutions(tmp_path, half):
    main, start = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, start):
        x = paddle.static.data("x", [-1, 3, 8, 8])
        out = paddle.static.nn.fc(paddle.static.nn.conv2d(x, 4, 3), 10)
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(start)
    prefix = str(tmp_path / "model")
    paddle.static.save_inference_model(prefix, [x], [out], executor, program=main)
    config = paddle.inference.Config(f"{prefix}.pdmodel", f"{prefix}.pdiparams")
    config.enable_ipu(1, 4)
    config.set_ipu_config(ipu_enable_half_partial=half, ipu_available_memory_proportion=0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predictor = paddle.inference.create_predictor(config)
    _, settings = of_predictor(predictor)
    expected = "float16" if half else "float32"
    assert (settings.matmul_partials, settings.convolution_partials) == (expected, expected)
    assert settings.available_memory_proportion == 0.3


CALL = "import sys; from softipu.tools.main import main; sys.exit(main())"
SCRIPT = """
import sys
import numpy as np
import paddle

class Net(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.table, self.last = paddle.nn.Embedding(32, 16), paddle.nn.Linear(32, 4)

    def forward(self, words):
        found = paddle.reshape(self.table(words), [-1, 32])
        left, right = paddle.split(found, 2, axis=-1)
        return paddle.nn.functional.softmax(self.last(paddle.concat([right, left], -1)))

model = Net()
model.eval()
spec = [paddle.static.InputSpec([None, 2], "int64", "words")]
paddle.jit.save(model, sys.argv[1], input_spec=spec)
config = paddle.inference.Config(sys.argv[1] + ".json", sys.argv[1] + ".pdiparams")
config.enable_ipu(1, 4)
predictor = paddle.inference.create_predictor(config)
predictor.get_input_handle("words").copy_from_cpu(np.ones((4, 2), "int64"))
predictor.run()
"""


def test_softipu_run_profiles_a_script_with_a_model_in_the_json_format(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    child = subprocess.run(
        [sys.executable, "-c", CALL, "run", "--profile", str(tmp_path / "profile"), str(script),
         str(tmp_path / "net")],
        env=os.environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert child.returncode == 0, child.stderr[-3000:]
    data = json.loads((tmp_path / "profile" / "inference" / "profile.json").read_text())
    assert data["name"] == "net"
    assert data["unknown"] == {}
    assert data["schedule"]["micro_batch"] == 4
    kinds = [step["kind"] for step in data["steps"]]
    assert [kinds.count(kind) for kind in ("gather", "concat", "matmul", "softmax")] == [1] * 4
    opened = pva.openReport(str(tmp_path / "profile" / "inference" / "profile.pop"))
    assert sum(step.ipus[0].cycles for step in opened.execution.steps) > 0
