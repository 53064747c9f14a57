"""`softipu.estimate` and `softipu estimate`: models, graphs, files, sweeps, and wrong input."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import poptorch
import softipu
from softipu.errors import (
    ArchUnknown,
    EstimateSourceUnknown,
    EstimateTargetFailed,
    EstimateTargetUnknown,
    GraphEmpty,
    OptionsContradict,
    ReportUnwritable,
    SettingsContradict,
    SweepUnreadable,
)
from softipu.estimating import compared, summary
from softipu.estimating.command import main
from softipu.graph import Builder, Role
from softipu.machine import Settings
from softipu.machine.chip import machine
from softipu.machine.text import digits, grouped, shares
from softipu.report.payload import of_estimate


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 128)
        self.second = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.second(torch.relu(self.first(x)))
        return result


class Trained(Net):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return nn.functional.cross_entropy(super().forward(x), y)


def graph(work: bool = True) -> softipu.graph.Graph:
    build = Builder("small")
    x = build.tensor("x", [1, 512, 256], role=Role.INPUT)
    if not work:
        return build.finish(build.op("view", [x], [([512, 256], "float16")]))
    w = build.tensor("w", [1, 256, 512], role=Role.WEIGHT)
    return build.finish(build.op("matmul", [x, w], [([1, 512, 512], "float16")]))


# --- the function ------------------------------------------------------------------------------


def test_a_model_and_its_inputs_are_enough() -> None:
    found = softipu.estimate(Net(), torch.randn(16, 64))
    assert found.fits
    assert found.throughput > 0
    assert found.name == "Net"
    assert found.settings.chip == "bow"
    assert {step.path for step in found.steps} >= {"first", "second"}


def test_training_takes_longer_than_inference() -> None:
    y = torch.randint(0, 10, (16,))
    infers = softipu.estimate(Trained(), (torch.randn(16, 64), y))
    trains = softipu.estimate(Trained(), (torch.randn(16, 64), y), training=True)
    assert trains.seconds > infers.seconds
    # Only the last outputs travel, once.
    assert {step.phase for step in trains.steps} == {"forward", "backward", "update", "end"}


def test_a_system_stands_for_its_chip() -> None:
    assert softipu.estimate(Net(), torch.randn(4, 64), arch="pod16").settings.chip == "mk2"


@pytest.mark.parametrize("arch", ["bow-pod4", "bow-2000"])
def test_a_program_larger_than_its_system_is_refused(arch: str) -> None:
    def found(replicas: int, arch: str) -> softipu.Estimate:
        options = poptorch.Options().replicationFactor(replicas)
        return softipu.estimate(Net(), torch.randn(4 * replicas, 64), arch=arch, options=options)

    with pytest.raises(SettingsContradict, match=f"takes 16 IPUs, the system {arch} has 4"):
        found(16, arch)
    fits = found(4, arch)
    assert fits.settings.system == arch
    assert f"4 × bow of a {arch}" in summary(fits)
    # A chip alone stands for as many as there need to be.
    assert found(16, "bow").settings.system is None


def test_the_first_generation_has_as_many_ipus_as_the_program_takes() -> None:
    """No system of theirs is known: what a program can't have is not that of another chip."""
    options = poptorch.Options().replicationFactor(8)
    found = softipu.estimate(Net(), torch.randn(32, 64), arch="mk1", options=options)
    assert (found.settings.chip, found.settings.system) == ("mk1", None)
    assert found.schedule["replicas"] == 8


def test_a_program_larger_than_any_system_is_not_sent_to_a_larger_one() -> None:
    with pytest.raises(SettingsContradict, match="no system with mk2 chips has more than the 256"):
        softipu.estimate(graph().with_schedule(replicas=512), arch="mk2")


def test_links_are_those_of_the_system() -> None:
    x = torch.randn(4, 64)
    named = machine(softipu.estimate(Net(), x, arch="pod256").settings)
    smallest = machine(softipu.estimate(Net(), x, arch="mk2").settings)
    assert (named.system, named.link_domain) == ("pod256", 64)
    assert (smallest.system, smallest.link_domain) == ("m2000", 4)


def test_the_arch_that_is_asked_for_wins_over_the_options_chip() -> None:
    options = poptorch.Options().useOfflineIpuTarget(2)
    x = torch.randn(4, 64)
    assert softipu.estimate(Net(), x, options=options).settings.chip == "mk2"
    assert softipu.estimate(Net(), x, arch="bow", options=options).settings.chip == "bow"
    assert softipu.estimate(Net(), x).settings.chip == "bow"


def test_two_systems_are_refused() -> None:
    with pytest.raises(OptionsContradict, match="arch is pod4"):
        softipu.estimate(graph(), arch="pod4", options=Settings(chip="mk2", system="pod16"))
    same = softipu.estimate(graph(), arch="mk2", options=Settings(chip="mk2", system="pod16"))
    assert same.settings.system == "pod16"


def test_a_faster_chip_is_faster() -> None:
    slow, fast = (
        softipu.estimate(Net(), torch.randn(64, 64), arch=chip) for chip in ("mk2", "bow")
    )
    assert fast.throughput > slow.throughput


def test_options_count() -> None:
    options = poptorch.Options().deviceIterations(8)
    found = softipu.estimate(Net(), torch.randn(32, 64), options=options)
    assert found.schedule["device_iterations"] == 8
    assert found.schedule["micro_batch"] == 4


def test_replicas_of_other_processes_count() -> None:
    """A program of four processes with two replicas each sums gradients over eight."""

    def found(replicas: int, processes: int) -> softipu.Estimate:
        options = poptorch.Options().replicationFactor(replicas)
        options.Distributed.configureProcessId(0, processes)
        batch = 4 * replicas
        inputs = (torch.randn(batch, 64), torch.randint(0, 10, (batch,)))
        return softipu.estimate(Trained(), inputs, options=options, training=True)

    apart, together = found(2, 4), found(8, 1)
    assert apart.schedule["replicas"] == 8
    assert apart.cycles == together.cycles
    assert apart.throughput == together.throughput
    assert apart.cycles.links > found(2, 1).cycles.links


def test_a_compiled_model_is_estimated_as_it_is() -> None:
    options = poptorch.Options().showCompilationProgressBar(False).useIpuModel(True)
    model = poptorch.inferenceModel(Net(), options)
    before = softipu.estimate(model, torch.randn(4, 64))
    model.compile(torch.randn(4, 64))
    assert softipu.estimate(model).cycles == before.cycles


def test_a_graph_takes_settings() -> None:
    one = softipu.estimate(graph(), arch="mk2")
    half = softipu.estimate(graph(), arch="mk2", options=Settings(matmul_partials="float16"))
    # The host is the limit in total; what the IPU does itself gets shorter.
    assert half.cycles.compute < one.cycles.compute
    assert half.settings.chip == "mk2"


def test_an_unknown_chip_is_refused_with_a_guess() -> None:
    with pytest.raises(ArchUnknown, match="'bow2'") as caught:
        softipu.estimate(graph(), arch="bow2")
    assert "Did you mean 'bow'" in str(caught.value)


@pytest.mark.parametrize("source", [3, "model", Net, None])
def test_what_is_no_model_is_refused(source: object) -> None:
    with pytest.raises(EstimateSourceUnknown):
        softipu.estimate(source, torch.randn(1))


def test_an_empty_graph_is_refused() -> None:
    with pytest.raises(GraphEmpty):
        softipu.estimate(graph(work=False))


def test_arguments_that_exclude_each_other_are_refused() -> None:
    x = torch.randn(4, 64)
    with pytest.raises(OptionsContradict, match=r"poptorch\.Options"):
        softipu.estimate(Net(), x, options=Settings())
    with pytest.raises(OptionsContradict, match="no backward pass"):
        softipu.estimate(graph(), training=True)
    with pytest.raises(OptionsContradict, match="Settings"):
        softipu.estimate(graph(), options=poptorch.Options())
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(OptionsContradict, match="training is False"):
        softipu.estimate(net, x, optimizer=optimizer)
    with pytest.raises(OptionsContradict, match="inference"):
        softipu.estimate(poptorch.inferenceModel(Net()), x, training=True)


def test_what_a_program_has_decided_already_is_refused() -> None:
    x = torch.randn(4, 64)
    options = poptorch.Options().showCompilationProgressBar(False).useIpuModel(True)
    model = poptorch.inferenceModel(Net(), options)
    trained = poptorch.trainingModel(Trained(), options)
    optimizer = torch.optim.SGD(Net().parameters(), lr=0.1)
    with pytest.raises(OptionsContradict, match="own options, optimizer: options can't"):
        softipu.estimate(model, x, options=poptorch.Options())
    with pytest.raises(OptionsContradict, match="optimizer can't"):
        softipu.estimate(trained, (x, torch.zeros(4).long()), training=True, optimizer=optimizer)
    with pytest.raises(OptionsContradict, match="inputs and optimizer can't"):
        softipu.estimate(graph(), x, optimizer=optimizer)
    model.compile(x)
    assert softipu.estimate(model, torch.randn(4, 64)).schedule["micro_batch"] == 4
    with pytest.raises(OptionsContradict, match="compiled for other inputs: Shape mismatch for x"):
        softipu.estimate(model, torch.randn(64, 64))


def test_shapes_that_depend_on_values_are_refused() -> None:
    with pytest.raises(poptorch.Error, match="shape depends on values"):
        softipu.estimate(lambda x: x[x > 0], torch.randn(4))


# --- text --------------------------------------------------------------------------------------


def test_a_summary_says_what_people_ask() -> None:
    found = softipu.estimate(Net(), torch.randn(16, 64))
    text = summary(found)
    assert "fits" in text
    assert f"{found.throughput:,.1f} samples/s" in text
    assert "fullest tile" in text
    assert "first" in text
    assert "by layer" in text
    assert str(found) == text


@pytest.mark.parametrize("by", ["op", "layer", "kind", "phase"])
def test_groups_hold_all_cycles_once(by: str) -> None:
    found = softipu.estimate(Net(), torch.randn(16, 64))
    total = sum(step.cycles.total for step in found.steps)
    assert sum(row[1].total for row in grouped(found, by)) == pytest.approx(total)


def test_an_update_weighs_once_for_all_its_micro_batches() -> None:
    """As on the page of a report: what runs often counts as often."""

    def shares_of_phases(accumulation: int) -> dict[str, float]:
        options = poptorch.Options()
        options.Training.gradientAccumulation(accumulation)
        batch = 4 * accumulation
        inputs = (torch.randn(batch, 64), torch.randint(0, 10, (batch,)))
        found = softipu.estimate(Trained(), inputs, options=options, training=True)
        rows = {name: spent.total for name, spent, _ in grouped(found, "phase")}
        page = of_estimate(found)
        each = {"forward": accumulation, "backward": accumulation}
        assert page["runs"] == {**each, "update": 1, "end": 1}
        on_page: dict[str, float] = dict.fromkeys(rows, 0.0)
        for step in found.steps:
            on_page[step.phase] += step.cycles.total * page["runs"][step.phase]
        assert rows == pytest.approx(on_page)
        told = f"{accumulation} × micro-batch, 1 × update, outputs once"
        assert told in summary(found, by="phase")
        return {name: size / sum(rows.values()) for name, size in rows.items()}

    few, many = shares_of_phases(4), shares_of_phases(64)
    assert many["update"] < few["update"] / 8
    assert sum(many.values()) == pytest.approx(1)


def test_shares_add_up() -> None:
    found = softipu.estimate(Net(), torch.randn(16, 64))
    assert sum(share for _, share in shares(found.cycles)) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"), (0.0, "0"), (1.2345e-5, "0.0000123"), (0.0123456, "0.0123"), (0.5, "0.500"),
        (1.2345, "1.23"), (12.345, "12.3"), (12_345.67, "12,345.7"), (123_456.7, "123,457"),
    ],
)  # fmt: skip
def test_small_figures_keep_their_digits(value: float, shown: str) -> None:
    assert digits(value) == shown


def test_a_small_model_does_not_look_as_if_it_took_no_time() -> None:
    found = softipu.estimate(Net(), torch.randn(1, 64))
    heads, row = compared({"net": found}).splitlines()
    assert found.cycles.total < 50_000
    shown = dict(zip(heads.replace("latency ms", "latency").split(), row.split()[1:], strict=False))
    assert float(shown["Mcycles"]) == pytest.approx(found.cycles.total / 1e6, rel=0.01)
    assert float(shown["latency"]) == pytest.approx(1e3 * found.latency_seconds, rel=0.01)


def test_estimates_compare_side_by_side() -> None:
    found = {chip: softipu.estimate(graph(), arch=chip) for chip in ("mk2", "bow")}
    lines = compared(found).splitlines()
    assert len(lines) == 3
    assert lines[0].split()[0] == "samples/s"
    assert [line.split()[0] for line in lines[1:]] == ["mk2", "bow"]
    assert all(line.endswith("yes") for line in lines[1:])
    assert found["mk2"].compare(found["bow"], names=("mk2", "bow")).splitlines() == lines
    unnamed = found["mk2"].compare(found["bow"]).splitlines()
    assert [line.split()[0] for line in unnamed[1:]] == ["1:", "2:"]


# --- the command -------------------------------------------------------------------------------


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "mine_for_estimates.py").write_text(
        "import torch\n"
        "def net():\n"
        "    return torch.nn.Linear(64, 64), torch.randn(8, 64)\n"
        "def wrong():\n"
        "    return torch.nn.Linear(64, 64)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine_for_estimates", raising=False)
    return "mine_for_estimates"


def test_a_function_of_the_user_s(user_module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"{user_module}:net", "--arch", "mk2"]) == 0
    assert "Linear on 1 × mk2: fits" in capsys.readouterr().out


def test_the_command_refuses_what_a_system_has_no_room_for(user_module: str) -> None:
    net = f"{user_module}:net"
    with pytest.raises(SettingsContradict, match="bow-pod4 has 4"):
        main([net, "--arch", "bow-pod4", "--replicas", "16"])
    assert main([net, "--arch", "bow-pod16", "--replicas", "16"]) == 0


def test_json_is_the_whole_estimate(user_module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"{user_module}:net", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["format"] == 1
    assert told["fits"] is True
    assert told["steps"]


def test_the_command_writes_a_report_with_changes_tried(
    user_module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([f"{user_module}:net", "--report", str(tmp_path / "out")]) == 0
    assert f"Report: {tmp_path / 'out' / 'report.html'}" in capsys.readouterr().out
    written = json.loads((tmp_path / "out" / "profile.json").read_text())
    assert written["hints_tried"] is True
    assert softipu.estimate(Net(), torch.randn(4, 64)).hints_tried is False
    assert softipu.estimate(Net(), torch.randn(4, 64), hints=True).hints_tried is True
    with pytest.raises(SystemExit):
        main(["resnet50", "--report", "out", "--compare", "bow"])


def test_a_report_that_can_not_be_written_is_told_before_the_model_is_looked_at(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ReportUnwritable, match=f"--report {tmp_path / 'file'}"):
        main(["no-such-model", "--report", str(tmp_path / "file")])


def test_a_model_by_name_is_swept_over(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mobilenet-v3-small", "--sweep", "micro_batch=1,4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["micro_batch=1", "micro_batch=4"]
    rates = [float(line.split()[1].replace(",", "")) for line in lines[1:]]
    assert rates[1] > rates[0]


def test_chips_are_compared(user_module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"{user_module}:net", "--compare", "mk2,bow"]) == 0
    assert capsys.readouterr().err == ""
    assert main([f"{user_module}:net", "--compare", "mk2,nonsense"]) == 1
    said = capsys.readouterr()
    assert said.out.splitlines()[-1].startswith("mk2 ")  # the others are shown nevertheless
    assert "nonsense" not in said.out
    assert said.err.startswith("nonsense: SIPU-8012: There is no chip")
    assert main([f"{user_module}:net", "--compare", "mk2,bow,nonsense", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["bow"]["throughput"] > told["mk2"]["throughput"]
    assert told["nonsense"]["error"]["code"] == "SIPU-8012"


def test_an_exported_executable_is_estimated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = poptorch.Options().showCompilationProgressBar(False).useOfflineIpuTarget()
    options.deviceIterations(3)
    model = poptorch.inferenceModel(Net(), options)
    for export in (True, False):
        path = tmp_path / f"net{export}.poptorch"
        model.compileAndExport(str(path), torch.randn(12, 64), export_model=export)
        assert main([str(path), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["schedule"]["device_iterations"] == 3
        assert told["schedule"]["micro_batch"] == 4
        model = poptorch.inferenceModel(Net(), options)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (["resnet5"], EstimateTargetUnknown, "Did you mean 'resnet5"),
        (["no_such_module:f"], EstimateTargetUnknown, "no_such_module"),
        (["json:no_function"], EstimateTargetUnknown, "no_function"),
        (["json:__name__"], EstimateTargetUnknown, "no function '__name__'"),
        (["folder/file.py:f"], EstimateTargetUnknown, "'folder/file.py' is no name of a module"),
        (["resnet50", "--sweep", "colour=1"], SweepUnreadable, "micro_batch"),
        (["resnet50", "--sweep", "micro_batch=a"], SweepUnreadable, "'a' is not a whole number"),
        (["roberta-base", "--training"], EstimateTargetUnknown, "inference"),
    ],
)
def test_wrong_requests_are_told_apart(
    arguments: list[str], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        main(arguments)


def test_a_function_that_returns_something_else(user_module: str) -> None:
    with pytest.raises(EstimateTargetUnknown, match=r"not \(model, inputs\)"):
        main([f"{user_module}:wrong"])


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that needs another one beside it only when its functions run."""
    (tmp_path / "sibling_for_estimates.py").write_text("from torch import nn\nNet = nn.Linear\n")
    (tmp_path / "late_for_estimates.py").write_text(
        "import sys\n"
        "import torch\n"
        "sys.path.insert(0, '/nowhere')\n"
        "def late():\n"
        "    from sibling_for_estimates import Net\n"
        "    return Net(64, 64), torch.randn(8, 64)\n"
        "def fails():\n"
        "    return {}['absent']\n"
        "def forward_fails():\n"
        "    return torch.nn.Linear(64, 64), torch.randn(8, 63)\n"
        "def lacks():\n"
        "    import no_such_sibling\n"
    )
    monkeypatch.chdir(tmp_path)
    # Without the entry for the present directory that `python -m pytest` makes, as under a script.
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", ".")])
    for name in ("late_for_estimates", "sibling_for_estimates"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "late_for_estimates"


def test_a_function_imports_what_lies_beside_it_when_it_runs(beside: str, tmp_path: Path) -> None:
    assert main([f"{beside}:late"]) == 0
    assert str(tmp_path) not in sys.path
    assert "/nowhere" in sys.path  # what the module put there itself stays


@pytest.mark.parametrize(
    ("function", "said", "line"),
    [
        ("fails", "KeyError: 'absent'", "return {}['absent']"),
        ("forward_fails", "RuntimeError", "in forward"),
        ("lacks", "ModuleNotFoundError: No module named 'no_such_sibling'", "import no_such_sib"),
    ],
)
def test_what_fails_in_code_of_the_user_s_is_shown_with_the_way_to_it(
    beside: str, function: str, said: str, line: str
) -> None:
    with pytest.raises(EstimateTargetFailed, match=f"{beside}:{function} failed: ") as caught:
        main([f"{beside}:{function}"])
    assert said in caught.value.what
    assert line in caught.value.cause
    assert "Traceback" in caught.value.cause
    assert "targets.py" not in caught.value.cause  # it begins with the user's own code
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--sweep", "micro_batch=1", "--compare", "bow"], "exclude"),
        (["--compare", "mk2,bow", "--arch", "bow"], "--arch is about one chip"),
        (["--compare", "mk2,bow", "--by", "op"], "--by is about one estimate"),
        (["--sweep", "micro_batch=1", "--top", "10"], "--top is about one estimate"),
        (["--json", "--by", "layer"], "--by is about the text"),
        (["--json", "--top", "3"], "--top is about the text"),
    ],
)
def test_options_that_would_have_no_say_are_refused(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["resnet50", *options])
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_by_and_top_say_what_the_text_shows(
    user_module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([f"{user_module}:net", "--by", "kind", "--top", "1"]) == 0
    assert "by kind" in capsys.readouterr().out
    assert main([f"{user_module}:net"]) == 0
    assert "by layer" in capsys.readouterr().out
