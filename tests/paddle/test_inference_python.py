"""`paddle.inference` with IPUs: results as on a plain CPU, leases, telemetry, threads."""

from __future__ import annotations

import gc
import inspect
import json
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")
pytest.register_assert_rewrite("inference_models")
from inference_models import infer, output_of, plain_config  # noqa: E402

from softipu import devices  # noqa: E402

pytest_plugins = ("inference_models",)
inference = paddle.inference
FORMATS = ("pdmodel", "json")


@pytest.fixture(params=FORMATS)
def model(request, tiny_models):
    """Prefix and format of a small convolutional network."""
    return tiny_models / "tiny", request.param


@pytest.fixture
def images():
    return np.random.default_rng(0).normal(size=(4, 3, 8, 8)).astype(np.float32)


def holders() -> list[int]:
    return [status.ipu.id for status in devices.status() if status.record is not None]


def test_results_are_those_of_a_plain_cpu(model, images):
    expected = infer(inference.create_predictor(plain_config(*model)), images)
    config = plain_config(*model)
    config.enable_ipu(ipu_micro_batch_size=4)
    predictor = inference.create_predictor(config)
    assert isinstance(predictor, inference.Predictor)
    np.testing.assert_allclose(infer(predictor, images), expected, rtol=1e-5, atol=1e-6)
    assert not np.array_equal(infer(predictor, images + 1), expected)


@pytest.fixture(params=["ipu", "custom"])
def on_ipu(request):
    """Both doors to an IPU: `enable_ipu`, and the plugin's device."""
    if request.param == "ipu":
        return lambda config, batch: config.enable_ipu(ipu_micro_batch_size=batch)
    request.getfixturevalue("plugin")
    return lambda config, batch: config.enable_custom_device("ipu", 0)


def test_both_devices_give_what_a_plain_cpu_gives(model, images, on_ipu):
    expected = infer(inference.create_predictor(plain_config(*model)), images)
    config = plain_config(*model)
    on_ipu(config, 4)
    actual = infer(inference.create_predictor(config), images)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("extension", FORMATS)
def test_resnet50_gives_what_a_plain_cpu_gives(resnet50_models, extension, on_ipu):
    image = np.random.default_rng(1).normal(size=(1, 3, 224, 224)).astype(np.float32)
    prefix = resnet50_models / "resnet50"
    expected = infer(inference.create_predictor(plain_config(prefix, extension)), image)
    config = plain_config(prefix, extension)
    on_ipu(config, 1)
    actual = infer(inference.create_predictor(config), image)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(actual / scale, expected / scale, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("device", "settings", "leading", "ipus"),
    [
        ((1, 1, False, 4), {"ipu_replica_num": 4}, (4,), 4),
        ((2, 1, True, 4), {}, (4,), 2),
        ((2, 1, True, 2), {"ipu_replica_num": 2}, (2, 2), 4),
        ((3, 4, False, 1), {}, (), 4),
    ],
)
def test_a_run_takes_all_micro_batches_of_all_replicas(
    model, images, device, settings, leading, ipus
):
    expected = infer(inference.create_predictor(plain_config(*model)), images)
    config = plain_config(*model)
    config.enable_ipu(*device)
    config.set_ipu_config(**settings)
    predictor = inference.create_predictor(config)
    actual = infer(predictor, images)
    assert actual.shape == (*leading, 4 // max(1, int(np.prod(leading))), 10)
    assert output_of(predictor).shape() == list(actual.shape)
    np.testing.assert_allclose(actual.reshape(4, 10), expected, rtol=1e-5, atol=1e-6)
    assert len(holders()) == ipus


def test_a_static_batch_of_the_model_counts_instead_of_the_option(tiny_models):
    config = plain_config(tiny_models / "fixed", "json")
    config.enable_ipu(ipu_micro_batch_size=7)
    predictor = inference.create_predictor(config)
    assert infer(predictor, np.ones((2, 3, 8, 8), np.float32)).shape == (2, 10)


def test_half_precision_rounds_weights_inputs_and_outputs(model, images):
    expected = infer(inference.create_predictor(plain_config(*model)), images)
    config = plain_config(*model)
    config.enable_ipu(1, 4)
    config.set_ipu_config(ipu_enable_fp16=True)
    predictor = inference.create_predictor(config)
    actual = infer(predictor, images)
    assert actual.dtype == np.float16
    assert output_of(predictor).type() == inference.DataType.FLOAT16
    error = np.abs(actual.astype(np.float32) - expected).max()
    assert 0 < error < 0.02
    # Half precision in: the same, as rounding twice is rounding once.
    np.testing.assert_array_equal(infer(predictor, images.astype(np.float16)), actual)
    assert np.isinf(infer(predictor, np.full_like(images, 60_000))).any()


def test_weights_are_rounded_in_the_engine_and_not_in_the_files(model, images):
    prefix, extension = model
    before = prefix.with_suffix(".pdiparams").read_bytes()
    ones = np.ones_like(images)
    config = plain_config(prefix, extension)
    config.enable_ipu(1, 4)
    config.set_ipu_config(ipu_enable_fp16=True)
    rounded = infer(inference.create_predictor(config), ones).astype(np.float32)
    exact = infer(inference.create_predictor(plain_config(prefix, extension)), ones)
    # Inputs of 1 are exact: what differs beyond the rounding of outputs comes from the weights.
    assert not np.array_equal(rounded, exact.astype(np.float16).astype(np.float32))
    assert prefix.with_suffix(".pdiparams").read_bytes() == before


def test_integers_may_be_fed_narrow(tiny_models):
    config = plain_config(tiny_models / "words", "json")
    config.enable_ipu(1, 2)
    predictor = inference.create_predictor(config)
    words = np.array([[1, 2], [3, 4]])
    wide = infer(predictor, words.astype(np.int64), name="words")
    np.testing.assert_array_equal(infer(predictor, words.astype(np.int32), name="words"), wide)


def test_a_list_of_tensors_runs_without_handles(model, images):
    config = plain_config(*model)
    config.enable_ipu(1, 4)
    predictor = inference.create_predictor(config)
    (output,) = predictor.run([paddle.to_tensor(images)])
    np.testing.assert_array_equal(output.numpy(), infer(predictor, images))
    config.enable_ipu(1, 2, True, 2)
    (stacked,) = inference.create_predictor(config).run([paddle.to_tensor(images)])
    assert stacked.shape == [2, 2, 10]


def test_clones_share_the_ipus_and_run_in_threads(model, images):
    config = plain_config(*model)
    config.enable_ipu(1, 4)
    predictor = inference.create_predictor(config)
    inputs = [images * scale for scale in (1, 2, 3)]
    expected = [infer(predictor, one) for one in inputs]
    wrong: list[object] = []

    def work(index: int) -> None:
        try:
            for _ in range(5):  # each drops its clone while others run
                clone = predictor.clone()
                for _ in range(10):
                    if not np.array_equal(infer(clone, inputs[index]), expected[index]):
                        wrong.append(index)
                del clone
        except Exception as error:  # noqa: BLE001 - it belongs to the main thread
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(holders()) == 1
    clone = predictor.clone()
    predictor = None
    gc.collect()
    np.testing.assert_array_equal(infer(clone, inputs[0]), expected[0])
    assert len(holders()) == 1


def test_ipus_are_given_back_with_the_last_clone(model, images):
    config = plain_config(*model)
    config.enable_ipu(2, 4)
    predictor = inference.create_predictor(config)
    handle = predictor.get_input_handle("image")
    clone = predictor.clone()
    assert len(holders()) == 2
    del predictor, clone
    gc.collect()
    handle.copy_from_cpu(images)  # a tensor keeps its predictor
    assert len(holders()) == 2
    del handle
    gc.collect()
    assert holders() == []


def test_dropped_clones_are_used_again(model):
    config = plain_config(*model)
    config.enable_ipu(1, 4)
    predictor = inference.create_predictor(config)
    for _ in range(5):
        predictor.clone()
    assert len(predictor._family.members) == 2


@pytest.mark.parametrize(
    ("wanted", "weights", "threads"),
    [("3", 0, 3), ("0", 0, 1), ("0", 1 << 24, len(os.sched_getaffinity(0)))],
)
def test_threads_are_those_asked_for_or_pay(monkeypatch, wanted, weights, threads):
    from softipu.frontends.paddle.inference_predictor import _threads

    monkeypatch.setenv("SOFTIPU_PADDLE_THREADS", wanted)
    assert _threads(weights) == threads


def test_a_pool_has_predictors_for_threads(model, images):
    config = plain_config(*model)
    config.enable_ipu(1, 4)
    pool = inference.PredictorPool(config, 2)
    first, second = pool.retrieve(0), pool.retrieve(1)
    one, two = infer(first, images), infer(second, images + 1)
    np.testing.assert_array_equal(output_of(pool.retrieve(0)).copy_to_cpu(), one)
    assert not np.array_equal(one, two)
    assert len(holders()) == 1
    with pytest.raises(RuntimeError, match="SIPU-4130.*2 predictors"):
        pool.retrieve(2)
    del pool
    gc.collect()
    np.testing.assert_array_equal(infer(first, images), one)
    del first, second
    gc.collect()
    assert holders() == []


def test_models_may_come_from_memory(tiny_models, images):
    prefix = tiny_models / "tiny"
    program = prefix.with_suffix(".pdmodel").read_bytes()
    weights = prefix.with_suffix(".pdiparams").read_bytes()
    expected = infer(inference.create_predictor(plain_config(prefix, "pdmodel")), images)
    config = inference.Config()
    config.disable_glog_info()
    config.set_model_buffer(program, len(program), weights, len(weights))
    config.enable_ipu(1, 4)
    np.testing.assert_allclose(
        infer(inference.create_predictor(config), images), expected, rtol=1e-5, atol=1e-6
    )
    config.set_ipu_config(ipu_enable_fp16=True)
    assert infer(inference.create_predictor(config), images).dtype == np.float16


def test_a_copy_of_a_config_keeps_its_ipus(model):
    config = plain_config(*model)
    config.enable_ipu(2, 4)
    copy = inference.Config(config)
    config.enable_ipu(1)
    assert copy.use_ipu()
    assert (copy.ipu_device_num(), config.ipu_device_num()) == (2, 1)
    inference.create_predictor(copy)


def test_methods_have_the_signatures_of_paddle():
    def defaults(method: str) -> dict[str, object]:
        parameters = inspect.signature(getattr(inference.Config, method)).parameters
        return {name: row.default for name, row in parameters.items() if name != "self"}

    assert defaults("enable_ipu") == {
        "ipu_device_num": 1,
        "ipu_micro_batch_size": 1,
        "ipu_enable_pipelining": False,
        "ipu_batches_per_step": 1,
    }
    assert defaults("set_ipu_config") == {
        "ipu_enable_fp16": False,
        "ipu_replica_num": 1,
        "ipu_available_memory_proportion": 1.0,
        "ipu_enable_half_partial": False,
        "ipu_enable_model_runtime_executor": False,
    }
    assert defaults("set_ipu_custom_info") == {"ipu_custom_ops_info": [], "ipu_custom_patterns": {}}


def test_options_come_from_a_file(tmp_path):
    path = tmp_path / "ipu.conf"
    path.write_text(
        "ipu_device_num, 2\nipu_micro_batch_size,4\nipu_enable_pipelining, True\n"
        "ipu_batches_per_step, 6\nipu_enable_fp16, 1\nipu_replica_num, 2\n"
        "ipu_available_memory_proportion, 0.25\nipu_enable_half_partial, false\n\n"
        "ipu_custom_ops_info, [[relu, Relu, custom.ops, 1], [tanh, Tanh, custom.ops, 2]]\n"
        "ipu_custom_patterns, [[AttentionFusion, True]]\n"
    )
    config = inference.Config()
    config.load_ipu_config(str(path))
    assert not config.use_ipu()  # as on the real system: enable_ipu turns it on
    assert config.ipu_device_num() == 2
    assert config.ipu_batches_per_step() == 6
    assert config.ipu_enable_fp16() is True
    assert config.ipu_available_memory_proportion() == 0.25
    assert config.ipu_custom_ops_info() == [
        ["relu", "Relu", "custom.ops", "1"],
        ["tanh", "Tanh", "custom.ops", "2"],
    ]
    assert config.ipu_custom_patterns() == {"AttentionFusion": True}


def test_options_without_effect_say_so_once(model):
    config = plain_config(*model)
    config.enable_ipu(1, 4)
    # These two change estimates: nothing to say about them.
    config.set_ipu_config(ipu_available_memory_proportion=0.3, ipu_enable_half_partial=True)
    config.set_ipu_custom_info(
        [["relu", "Relu", "custom.ops", "1"]], ipu_custom_patterns={"AttentionFusion": True}
    )
    from softipu.frontends.paddle import inference_predictor

    inference_predictor._warned.clear()
    with pytest.warns(
        UserWarning, match="no effect here: ipu_custom_ops_info, ipu_custom_patterns \\("
    ):
        inference.create_predictor(config)
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inference.create_predictor(config)


def test_modelled_cycles_of_a_predictor_are_counted(model, images, monkeypatch):
    monkeypatch.setenv("SOFTIPU_STRICT", "1")  # asks for an estimate
    config = plain_config(*model)
    config.enable_ipu(1, 4)
    predictor = inference.create_predictor(config)
    for _ in range(3):
        infer(predictor, images)
    session = predictor.session
    session.attachment._lease.telemetry.flush()
    (counters,) = [status.counters for status in devices.status() if status.record is not None]
    assert counters.cycles == 3 * session.modelled.cycles() > 0


def test_monitors_see_the_model_and_its_work(model, images):
    config = plain_config(*model)
    config.enable_ipu(1, 4)
    predictor = inference.create_predictor(config)
    (status,) = [status for status in devices.status() if status.record is not None]
    assert status.record.pid == os.getpid()
    assert status.record.executable == "tiny"
    assert status.record.memory_bytes > 6000
    end = time.monotonic() + 20
    while time.monotonic() < end:
        infer(predictor, images)
        counters = next(s.counters for s in devices.status() if s.record is not None)
        if counters is not None and counters.host_bytes_out:
            break
    assert counters.busy_seconds > 0
    assert counters.host_bytes_in % images.nbytes == 0
    assert counters.host_bytes_out % (4 * 10 * 4) == 0
    shown = subprocess.run(
        [sys.executable, "-m", "softipu.tools.gc_monitor", "-j"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if shown.returncode == 0 and shown.stdout.strip():
        assert str(os.getpid()) in json.dumps(json.loads(shown.stdout))


def test_programs_without_ipus_keep_paddles_own_methods():
    code = """
import paddle
from paddle.base import core
before = {(kind, name) for kind in ("PaddleInferPredictor", "PaddleInferTensor", "PredictorPool")
          for name, value in vars(getattr(core, kind)).items()
          if type(value).__name__ == "function" and value.__module__.startswith("softipu")}
import sys
print(sorted(before), any(name.endswith("inference_predictor") for name in sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "[] False", done.stderr[-500:]
