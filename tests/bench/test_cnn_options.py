"""The command line of the CNN harness and its configurations, as far as no model is needed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from softipu.bench import cli as bench
from softipu.bench import configs, run
from softipu.bench.options import FIELDS, MODELS, Options, checked, spelling
from softipu.errors import ConfigFileUnusable, UnfitBenchOption, UnknownConfig, UnknownModel
from softipu.tools import cli, main

#: The options that users know, from the harness that they know.
# fmt: off
KNOWN = [
    "--config", "--model", "--micro-batch-size", "--data", "--pipeline-splits", "--replicas",
    "--device-iterations", "--precision", "--iterations", "--half-partial", "--norm-type",
    "--norm-num-groups", "--enable-fast-groupnorm", "--efficientnet-expand-ratio",
    "--efficientnet-group-dim", "--profile", "--eight-bit-io", "--normalization-location",
    "--model-cache-path", "--random-weights", "--num-io-tiles", "--dataloader-worker",
    "--compile-only", "--norm-eps", "--batchnorm-momentum", "--input-image-padding",
    "--exchange-memory-target", "--dataloader-rebatch-size", "--offline-target-ipu-version",
]
# fmt: on
CONFIGS = [
    "resnet50",
    "efficientnet-b0",
    "efficientnet-b4",
    "efficientnet-b0-g16-gn",
    "efficientnet-b4-g16-gn",
    "mobilenet-v3-small",
    "mobilenet-v3-large",
]


def parsed(*words: str) -> Options:
    """The options that a command line means."""
    return run.parse(words)[0]


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What the command says to wrong usage."""
    with pytest.raises(SystemExit) as ended:
        run.main(words)
    assert ended.value.code == 2
    text = capsys.readouterr().err
    assert "SIPU-1504" in text
    assert "Traceback" not in text
    return text


def test_every_known_option_is_there() -> None:
    ours = run.parser()._option_string_actions
    assert [name for name in KNOWN if name not in ours] == []


def test_every_field_is_an_option_with_its_default() -> None:
    options = run.parser().parse_args([])
    for name, field in FIELDS.items():
        assert getattr(options, name) == field.default, spelling(name)


def test_help_explains_every_option_without_a_framework() -> None:
    code = (
        "import sys\nfrom softipu.tools.main import main\n"
        "try: main(['bench', 'run', '--help'])\nexcept SystemExit: pass\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in (*KNOWN, *MODELS, *CONFIGS))


def test_words_become_values() -> None:
    words = "--model resnet34 --micro-batch-size 3 --device-iterations 4 --replicas 2"
    more = "--pipeline-splits layer1/0 layer3 --precision 32.32 --norm-eps 0.01"
    options = parsed(*words.split(), *more.split())
    assert (options.model, options.precision, options.norm_eps) == ("resnet34", "32.32", 0.01)
    assert options.pipeline_splits == ("layer1/0", "layer3")
    assert options.batch_size == 24
    assert options.ipus == 6


def test_the_old_spelling_of_device_iterations_works() -> None:
    assert parsed("--device-iteration", "7").device_iterations == 7


# --- configurations ---------------------------------------------------------------------------


def test_the_configurations_are_those_that_users_know() -> None:
    assert configs.names() == CONFIGS


def test_the_script_folder_shows_the_same_configurations() -> None:
    beside = Path(__file__).parents[2] / "benchmarks" / "cnns" / "configs.yml"
    assert configs.names(beside) == CONFIGS
    assert beside.resolve() == configs.FILE.resolve()


@pytest.mark.parametrize("name", CONFIGS)
def test_every_configuration_is_valid(name: str) -> None:
    options = configs.for_config(name)
    assert options.model == name.removesuffix("-g16-gn")
    assert (options.precision, options.eight_bit_io) == ("16.16", True)
    assert (options.norm_type == "group") == name.endswith("-gn")


def test_the_command_line_wins_over_a_configuration() -> None:
    options = parsed("--config", "resnet50", "--micro-batch-size", "4", "--no-half-partial")
    assert (options.micro_batch_size, options.half_partial) == (4, False)
    assert (options.device_iterations, options.model) == (128, "resnet50")


def test_a_file_of_weights_wins_over_a_configuration_with_random_ones() -> None:
    options = parsed("--config", "efficientnet-b0-g16-gn", "--weights", "some.pt")
    assert options.weights == "some.pt"


def test_configurations_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.yml"
    file.write_text("small: {model: resnet18, pipeline_splits: [layer2], precision: '32.32'}")
    options = parsed("--config-file", str(file), "--config", "small")
    assert (options.pipeline_splits, options.stages) == (("layer2",), 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("small: {modell: resnet18}", "sets 'modell', which is no option"),
        ("small: {micro_batch_size: many}", "micro_batch_size is 'many', not a whole number"),
        ("small: {precision: 16.16}", "precision is 16.16, not one of 16.16, 32.32"),
        ("small: {half_partial: 1}", "half_partial is 1, not true or false"),
        ("small: {pipeline_splits: layer1}", "pipeline_splits is 'layer1', not a list"),
        ("small: {norm_eps: 2}", "norm_eps is 2, not a number between 0 and 1"),
        ("small: {replicas: true}", "replicas is True, not a whole number"),
        ("small: {model: null, iterations: null}", "There is no model None"),
        ("small: {weights: 3}", "weights is 3, not a path"),
        ("small: 3", "small in .* is not a mapping"),
        ("- small", "is not a mapping from names to options"),
        ("small: {", "is not YAML"),
    ],
)
def test_a_wrong_file_of_configurations_is_explained(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "mine.yml"
    file.write_text(text)
    with pytest.raises(ConfigFileUnusable, match=message):
        configs.load("small", file)


def test_a_file_of_configurations_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigFileUnusable, match="can't be read: No such file"):
        configs.names(tmp_path / "none.yml")


def test_an_unknown_configuration_shows_the_nearest() -> None:
    with pytest.raises(UnknownConfig) as found:
        configs.for_config("mobilenet-v3-smal")
    assert "Did you mean mobilenet-v3-small?" in found.value.remedy


# --- wrong usage ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--model resnt50", "Did you mean resnet50?"),
        ("--config resnet5", "Did you mean resnet50?"),
        ("--config .all", "there is no configuration '.all'"),
        ("--microbatch-size 3", "Did you mean --micro-batch-size?"),
        ("--micro-batch-size 0", "0 is less than 1"),
        ("--replicas two", "is not a whole number"),
        ("--data imaginary", "invalid choice: 'imaginary'"),
        ("--precision 16.32", "invalid choice: '16.32'"),
        ("--weights file.pt --random-weights", "not allowed with"),
        ("--config-file some.yml", "--config-file needs a --config"),
    ],
)
def test_wrong_usage_exits_with_2(
    capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    assert message in refused(capsys, *words.split())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"eight_bit_io": True}, "only with normalization_location ipu"),
        ({"eight_bit_io": True, "normalization_location": "none"}, "only with"),
        ({"data": "generated", "data_path": "x"}, "no meaning with data generated"),
        ({"micro_batch_size": 6, "dataloader_rebatch_size": 4}, "batch of 6 samples is not divis"),
        ({"profile": True, "compile_only": True}, "profile and compile_only exclude"),
        ({"iterations": 0}, "iterations is 0, not a whole number from 1"),
    ],
)
def test_options_that_do_not_go_together(fields: dict[str, object], message: str) -> None:
    with pytest.raises(UnfitBenchOption, match=message):
        checked(Options(**fields))  # type: ignore[arg-type]


def test_an_unknown_model_from_a_program() -> None:
    with pytest.raises(UnknownModel):
        checked(Options(model="vgg"))


def test_eight_bit_images_move_the_normalisation_to_the_ipu(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert parsed("--eight-bit-io").normalization_location == "ipu"
    assert "normalised on the IPU" in capsys.readouterr().err


def test_io_tiles_make_no_pipeline_which_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--pipeline-splits", "layer2", "layer3"]
    assert parsed(*words, "--num-io-tiles", "32").stages == 3
    assert "The 3 stages run one after the other, not as a pipeline" in capsys.readouterr().err
    parsed(*words)
    parsed("--num-io-tiles", "32")
    assert capsys.readouterr().err == ""


def test_the_bench_command_finds_its_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["bench", "--help"]) == 0
    assert re.search(r"^  run ", capsys.readouterr().out, re.MULTILINE)
    assert main.main(["bench"]) == 2
    assert bench.main(["rum"]) == 2
    assert "Did you mean `softipu bench run`?" in capsys.readouterr().err


def test_a_wrong_option_of_a_file_is_one_block_and_exit_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yml"
    file.write_text("small: {modell: resnet18}")
    words = ["--config-file", str(file), "--config", "small"]
    assert cli.guarded(run.main, words) == 1
    text = capsys.readouterr().err
    assert text.startswith("SIPU-6003: ")
    assert "Did you mean model?" in text
