"""What goes wrong with `paddle.inference` on IPUs is told in words; the process lives on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

paddle = pytest.importorskip("paddle")
pytest.register_assert_rewrite("inference_models")
from inference_models import infer, plain_config  # noqa: E402

from softipu import devices, errors  # noqa: E402

pytest_plugins = ("inference_models",)
inference = paddle.inference
FORMATS = ("pdmodel", "json")


@pytest.fixture(params=FORMATS)
def extension(request):
    return request.param


@pytest.fixture
def copied(tmp_path, tiny_models, extension) -> Path:
    """A copy of the small network that a test may damage; the path of its program."""
    for suffix in (extension, "pdiparams"):
        shutil.copy(tiny_models / f"tiny.{suffix}", tmp_path / f"tiny.{suffix}")
    return tmp_path / f"tiny.{extension}"


def config_of(program: Path, **options):
    config = inference.Config(str(program), str(program.with_suffix(".pdiparams")))
    config.disable_glog_info()
    config.enable_ipu(**({"ipu_micro_batch_size": 4} | options))
    return config


def holders() -> int:
    return sum(status.record is not None for status in devices.status())


# --- files -----------------------------------------------------------------------------------


def test_a_model_that_is_not_there(copied):
    with pytest.raises(RuntimeError, match="nowhere"):
        inference.Config(str(copied.with_name("nowhere.pdmodel")), "nowhere.pdiparams")
    config = config_of(copied)
    copied.unlink()
    with pytest.raises(errors.InferenceModelMissing, match=r"SIPU-4110.*tiny.*No such file"):
        inference.create_predictor(config)
    assert holders() == 0


def test_weights_that_are_not_there(copied):
    config = config_of(copied)
    copied.with_suffix(".pdiparams").unlink()
    with pytest.raises(errors.InferenceModelMissing, match=r"SIPU-4110.*pdiparams"):
        inference.create_predictor(config)


def test_no_model_at_all(tmp_path):
    for config in (inference.Config(), inference.Config(str(tmp_path / "nowhere"))):
        config.enable_ipu()
        with pytest.raises(errors.InferenceModelMissing, match="SIPU-4110"):
            inference.create_predictor(config)


@pytest.mark.parametrize("part", ["program", "weights"])
def test_files_cut_short_anywhere(copied, part):
    path = copied if part == "program" else copied.with_suffix(".pdiparams")
    whole = path.read_bytes()
    for size in {0, 1, 11, 20, len(whole) // 3, len(whole) // 2, len(whole) - 1}:
        path.write_bytes(whole[:size])
        with pytest.raises(errors.InferenceModelUnreadable, match=r"SIPU-4111.*tiny"):
            inference.create_predictor(config_of(copied))
    assert holders() == 0


@pytest.mark.parametrize("part", ["program", "weights"])
def test_files_of_an_unknown_format(copied, part):
    path = copied if part == "program" else copied.with_suffix(".pdiparams")
    for content in (b"PK\x03\x04 a zip file " * 40, b"{}", b"[]", b'{"base_code": 3}', b"\0" * 512):
        path.write_bytes(content)
        with pytest.raises(errors.InferenceModelUnreadable, match="SIPU-4111"):
            inference.create_predictor(config_of(copied))


def test_weights_of_another_model(copied, tiny_models):
    shutil.copy(tiny_models / "words.pdiparams", copied.with_suffix(".pdiparams"))
    with pytest.raises(errors.InferenceModelUnreadable, match="holds 1 weights, but .* has 8"):
        inference.create_predictor(config_of(copied))


def test_weights_of_other_shapes(copied, extension):
    if extension == "pdmodel":
        pytest.skip("the JSON format is easier to change")
    text = (
        copied.read_text().replace("[8, 3, 3, 3]", "[3, 8, 3, 3]").replace("[8,3,3,3]", "[3,8,3,3]")
    )
    assert text != copied.read_text()
    copied.write_text(text)
    with pytest.raises(errors.InferenceModelUnreadable, match=r"\[8, 3, 3, 3\] where 'conv2d"):
        inference.create_predictor(config_of(copied))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damaged_weights_are_refused_or_read(tiny_models, data):
    """No byte of the headers can make the reader do anything but read or complain."""
    from softipu.frontends.paddle import inference_model

    whole = bytearray((tiny_models / "tiny.pdiparams").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        list(inference_model.saved_tensors(whole, "file"))
    except errors.InferenceModelUnreadable as error:
        assert "file is not a whole file of weights" in error.what


def test_a_json_model_in_memory_is_refused(tiny_models):
    program = (tiny_models / "tiny.json").read_bytes()
    weights = (tiny_models / "tiny.pdiparams").read_bytes()
    config = inference.Config()
    config.set_model_buffer(program, len(program), weights, len(weights))
    config.enable_ipu()
    with pytest.raises(errors.InferenceUnsupported, match=r"SIPU-4130.*JSON format in memory"):
        inference.create_predictor(config)


# --- inputs ----------------------------------------------------------------------------------


@pytest.fixture
def predictor(copied):
    return inference.create_predictor(config_of(copied))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (np.ones((1, 3, 8, 8), np.float32), r"shape \[4, 3, 8, 8\], not \[1, 3, 8, 8\]"),
        (np.ones((4, 3, 8, 9), np.float32), r"shape \[4, 3, 8, 8\]"),
        (np.ones((4, 192), np.float32), r"not \[4, 192\]"),
        (np.float32(1)[None], r"not \[1\]"),
        (np.ones((4, 3, 8, 8), np.float64), "takes float32, not float64"),
        (np.ones((4, 3, 8, 8), np.int32), "takes float32, not int32"),
        (np.ones((4, 3, 8, 8), np.float16), "takes float32, not float16"),
        (np.ones((4, 3, 8, 8), object), "takes float32, not object"),
    ],
)
def test_a_wrong_shape_or_type(predictor, data, said):
    handle = predictor.get_input_handle("image")
    with pytest.raises(errors.InferenceInput, match=f"SIPU-4120.*'image' of tiny.*{said}"):
        handle.copy_from_cpu(data)
    assert infer(predictor, np.ones((4, 3, 8, 8), np.float32)).shape == (4, 10)
    with pytest.raises(errors.InferenceInput):  # also when right ones came before
        handle.copy_from_cpu(data)


def test_not_an_array(predictor):
    with pytest.raises(TypeError, match="numpy"):
        predictor.get_input_handle("image").copy_from_cpu([[1.0]])


def test_wrong_lists_of_tensors(predictor):
    for inputs in ([], [paddle.ones([4, 3, 8, 8])] * 2, paddle.ones([4, 3, 8, 8])):
        with pytest.raises(errors.InferenceInput, match="a list of 1 tensors: image"):
            predictor.run(inputs)
    with pytest.raises(errors.InferenceInput, match=r"not \[1, 3, 8, 8\]"):
        predictor.run([paddle.ones([1, 3, 8, 8])])
    with pytest.raises(errors.InferenceInput, match="not int64"):
        predictor.run([paddle.ones([4, 3, 8, 8], "int64")])


def test_names_that_do_not_exist(predictor):
    with pytest.raises(errors.InferenceInput, match="no input 'nobody'"):
        predictor.get_input_handle("nobody")
    with pytest.raises(errors.InferenceInput, match="no output 'nobody'"):
        predictor.get_output_handle("nobody")


def test_a_run_without_inputs(predictor):
    with pytest.raises(errors.InferenceInput, match="'image' of tiny was never set"):
        predictor.run()


def test_outputs_before_the_run(copied):
    config = config_of(copied, ipu_enable_pipelining=True, ipu_batches_per_step=2)
    predictor = inference.create_predictor(config)
    output = predictor.get_output_handle(predictor.get_output_names()[0])
    with pytest.raises(errors.InferenceInput, match="read before a run"):
        output.copy_to_cpu()


def test_writing_to_an_output(predictor):
    output = predictor.get_output_handle(predictor.get_output_names()[0])
    with pytest.raises(errors.InferenceUnsupported, match="it is an output"):
        output.copy_from_cpu(np.ones((4, 10), np.float32))


# --- options ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "options", "kind"),
    [
        ("enable_ipu", {"ipu_device_num": "1"}, TypeError),
        ("enable_ipu", {"ipu_device_num": 1.5}, TypeError),
        ("enable_ipu", {"ipu_device_num": True}, TypeError),
        ("enable_ipu", {"ipu_device_num": 0}, ValueError),
        ("enable_ipu", {"ipu_micro_batch_size": -1}, ValueError),
        ("enable_ipu", {"ipu_enable_pipelining": 1}, TypeError),
        ("enable_ipu", {"ipu_devices": 1}, TypeError),
        ("set_ipu_config", {"ipu_replica_num": None}, TypeError),
        ("set_ipu_config", {"ipu_available_memory_proportion": "much"}, TypeError),
        ("set_ipu_config", {"ipu_available_memory_proportion": 0}, ValueError),
        ("set_ipu_config", {"ipu_available_memory_proportion": float("nan")}, ValueError),
        ("set_ipu_config", {"ipu_enable_fp16": "yes"}, TypeError),
        ("set_ipu_custom_info", {"ipu_custom_ops_info": "relu"}, TypeError),
        ("set_ipu_custom_info", {"ipu_custom_ops_info": [["relu", "Relu"]]}, ValueError),
        ("set_ipu_custom_info", {"ipu_custom_patterns": [("a", True)]}, TypeError),
        ("set_ipu_custom_info", {"ipu_custom_patterns": {"a": "True"}}, TypeError),
        ("load_ipu_config", {"config_path": 3}, TypeError),
    ],
)
def test_options_of_a_wrong_type_or_value(method, options, kind):
    config = inference.Config()
    with pytest.raises(kind) as caught:
        getattr(config, method)(**options)
    assert next(iter(options)) in str(caught.value) or "path" in str(caught.value)
    assert not config.use_ipu()
    assert config.ipu_device_num() == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ipu_device_nums,2", "no option 'ipu_device_nums'"),
        ("ipu_device_num,two", ":1: ipu_device_num takes a whole number, not 'two'"),
        (
            "ipu_micro_batch_size,4\nipu_enable_fp16,maybe",
            ":2: ipu_enable_fp16 takes True or False",
        ),
        ("ipu_custom_ops_info,relu", "list of lists"),
        ("ipu_device_num", "takes a whole number, not ''"),
        ("ipu_device_num,-2", "at least 1"),
    ],
)
def test_wrong_lines_of_a_configuration_file(tmp_path, text, said):
    path = tmp_path / "ipu.conf"
    path.write_text(text)
    config = inference.Config()
    with pytest.raises(ValueError, match=said):
        config.load_ipu_config(str(path))
    assert config.ipu_micro_batch_size() == 1  # nothing of a wrong file counts


def test_a_configuration_file_that_is_not_there(tmp_path):
    with pytest.raises(errors.InferenceConfigFile, match="nowhere.conf"):
        inference.Config().load_ipu_config(str(tmp_path / "nowhere.conf"))


def test_a_pipeline_with_fewer_batches_than_ipus(copied):
    config = config_of(copied, ipu_device_num=4, ipu_enable_pipelining=True, ipu_batches_per_step=2)
    with pytest.raises(errors.InferenceOptionValue, match="a micro-batch for each"):
        inference.create_predictor(config)


def test_predictor_directly_from_a_config_for_ipus(copied):
    with pytest.raises(errors.InferenceUnsupported, match="create_predictor"):
        inference.Predictor(config_of(copied))


# --- IPUs ------------------------------------------------------------------------------------


def test_more_ipus_than_there_are(copied):
    with pytest.raises(errors.SoftIPUError, match=r"SIPU-1202: 32 IPUs were asked for.*has 16"):
        inference.create_predictor(config_of(copied, ipu_device_num=17))


def test_ipus_that_somebody_else_holds(copied, hold):
    hold(16)
    with pytest.raises(errors.DevicesBusy, match=r"SIPU-1203.*\n.*held by"):
        inference.create_predictor(config_of(copied))


def test_a_failed_creation_gives_the_ipus_back(copied, extension):
    if extension == "pdmodel":
        pytest.skip("the JSON format is easier to change")
    document = json.loads(copied.read_text())
    for op in document["program"]["regions"][0]["blocks"][0]["ops"]:
        if op["#"] == "1.relu":
            op["#"] = "1.no_such_op"
    copied.write_text(json.dumps(document))
    code = """
import sys, paddle
from softipu import devices
config = paddle.inference.Config(*sys.argv[1:])
config.disable_glog_info()
config.enable_ipu()
try:
    paddle.inference.create_predictor(config)
except Exception as error:
    print("no_such_op" in str(error) or type(error).__name__)
print(sum(status.record is not None for status in devices.status()))
"""
    done = _python(code, str(copied), str(copied.with_suffix(".pdiparams")))
    assert done.returncode == 0, done.stderr[-1000:]
    assert done.stdout.split()[-1] == "0"


def test_a_killed_process_gives_the_ipus_back(copied, start):
    code = """
import sys, time, numpy, paddle
config = paddle.inference.Config(*sys.argv[1:])
config.disable_glog_info()
config.enable_ipu(2)
predictor = paddle.inference.create_predictor(config)
print("ready", flush=True)
time.sleep(60)
"""
    weights = str(copied.with_suffix(".pdiparams"))
    process = start(code, str(copied), weights, env={"PYTHONWARNINGS": "ignore"})
    assert process.stdout.readline() == "ready\n"
    assert holders() == 2
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert holders() == 0


def test_the_device_of_a_plugin_that_is_not_installed(copied):
    code = """
import sys, paddle
config = paddle.inference.Config(*sys.argv[1:])
config.enable_custom_device("ipu", 0)
"""
    environment = {
        name: value for name, value in os.environ.items() if name != "CUSTOM_DEVICE_ROOT"
    }
    done = _python(code, str(copied), str(copied.with_suffix(".pdiparams")), env=environment)
    if done.returncode == 0:
        pytest.skip("the plugin is installed in this environment")
    assert "SIPU-4130" in done.stderr
    assert "paddle-custom-ipu is not installed" in done.stderr


def test_an_ipu_of_the_plugin_that_does_not_exist(tiny_models, plugin):
    config = plain_config(tiny_models / "tiny", "json")
    with pytest.raises(errors.InferenceOptionValue, match="there are 16 IPUs"):
        config.enable_custom_device("ipu", 99)


@pytest.mark.parametrize("number", [np.int64(99), np.int64(-1)])
def test_numbers_of_numpy_are_looked_at_too(tiny_models, plugin, number):
    config = plain_config(tiny_models / "tiny", "json")
    with pytest.raises(errors.InferenceOptionValue, match="there are 16 IPUs"):
        config.enable_custom_device("ipu", number)
    with pytest.raises(errors.InferenceOptionType, match="a whole number, not str"):
        config.enable_custom_device("ipu", str(number))
    config.enable_custom_device("ipu", np.int64(1))


@pytest.mark.parametrize("first", ["enable_ipu", "enable_custom_device"])
def test_only_one_of_the_doors_to_an_ipu(tiny_models, plugin, first):
    config = plain_config(tiny_models / "tiny", "json")
    doors = {
        "enable_ipu": lambda: config.enable_ipu(1, 4),
        "enable_custom_device": lambda: config.enable_custom_device("ipu", 0),
    }
    doors.pop(first)()
    next(iter(doors.values()))()
    with pytest.raises(errors.InferenceUnsupported, match="for IPUs and for the device of the plu"):
        inference.create_predictor(config)
    assert holders() == 0


def test_a_device_of_no_plugin(tiny_models, plugin):
    config = plain_config(tiny_models / "tiny", "json")
    with pytest.raises(errors.InferenceUnsupported, match="Plugins brought these: ipu"):
        config.enable_custom_device("nobodys", 0)


@pytest.mark.parametrize(
    "make",
    [
        inference.create_predictor,
        inference.Predictor,
        lambda config: inference.PredictorPool(config, 2),
        lambda config: inference.create_predictor(inference.Config(config)),
    ],
    ids=["create", "class", "pool", "copy"],
)
@pytest.mark.parametrize("in_memory", [False, True])
def test_weights_that_end_too_early_are_not_for_the_plugins_device(
    tmp_path, tiny_models, in_memory, make, plugin
):
    """Paddle takes them, and computes with what its memory happened to hold before."""
    program = (tiny_models / "tiny.pdmodel").read_bytes()
    weights = (tiny_models / "tiny.pdiparams").read_bytes()
    for kept in (len(weights), len(weights) - 10):
        config = inference.Config()
        if in_memory:
            config.set_model_buffer(program, len(program), weights, kept)
        else:
            (tmp_path / "tiny.pdiparams").write_bytes(weights[:kept])
            config.set_model(str(tiny_models / "tiny.pdmodel"), str(tmp_path / "tiny.pdiparams"))
        config.disable_glog_info()
        config.enable_custom_device("ipu", 0)
        if kept == len(weights):
            make(config)
        else:
            with pytest.raises(errors.InferenceModelUnreadable, match="10 bytes are missing"):
                make(config)


def on_plugin(program: Path, weights: Path):
    config = inference.Config(str(program), str(weights))
    config.disable_glog_info()
    config.enable_custom_device("ipu", 0)
    return config


def test_damaged_programs_are_not_for_the_plugins_device(copied, plugin):
    whole, weights = copied.read_bytes(), copied.with_suffix(".pdiparams")
    inference.create_predictor(on_plugin(copied, weights))
    for content in (whole[: len(whole) // 2], whole[:-1], b"\0" * 512, b"{}", b""):
        copied.write_bytes(content)
        with pytest.raises(errors.InferenceModelUnreadable, match=r"SIPU-4111.*tiny"):
            inference.create_predictor(on_plugin(copied, weights))


def test_weights_of_another_model_are_not_for_the_plugins_device(copied, tiny_models, plugin):
    weights = tiny_models / "words.pdiparams"
    with pytest.raises(errors.InferenceModelUnreadable, match="holds 1 weights, but .* has 8"):
        inference.create_predictor(on_plugin(copied, weights))
    if copied.suffix != ".pdmodel":
        return
    program, values = copied.read_bytes(), weights.read_bytes()
    config = inference.Config()
    config.set_model_buffer(program, len(program), values, len(values))
    config.enable_custom_device("ipu", 0)
    with pytest.raises(errors.InferenceModelUnreadable, match="holds 1 weights, but .* has 8"):
        inference.create_predictor(config)


def test_damaged_models_in_a_directory_are_not_for_the_plugins_device(
    tmp_path, tiny_models, plugin
):
    (tmp_path / "__model__").write_bytes((tiny_models / "tiny.pdmodel").read_bytes())
    config = inference.Config(str(tmp_path))
    config.enable_custom_device("ipu", 0)
    with pytest.raises(errors.InferenceModelMissing, match="SIPU-4110.*cannot be read"):
        inference.create_predictor(config)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float64"])
def test_numbers_of_another_type_are_not_for_the_plugins_device(tiny_models, dtype, plugin):
    """Programs of the newer kind choose their kernels before they see what is fed."""
    config = plain_config(tiny_models / "tiny", "json")
    config.enable_custom_device("ipu", 0)
    predictor = inference.create_predictor(config)
    (name,) = predictor.get_input_names()
    predictor.get_input_handle(name).copy_from_cpu(np.ones((4, 3, 8, 8), dtype))
    with pytest.raises(ValueError, match="does not match the type of data"):
        predictor.run()


def _python(code: str, *arguments: str, env=None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *arguments],
        capture_output=True, text=True, check=False, env=env,
    )  # fmt: skip
