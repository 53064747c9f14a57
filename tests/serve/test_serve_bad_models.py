"""Entries that cannot be served are refused with a code, while the others are served."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from serve_support import Layer, Running, options, samples, serving

import poptorch


def damaged(entry: Path) -> None:
    path = entry / "1/executable.popef"
    body = bytearray(path.read_bytes())
    body[-20] ^= 1
    path.write_bytes(body)


def cut_short(entry: Path) -> None:
    path = entry / "1/executable.popef"
    path.write_bytes(path.read_bytes()[:-100])


def foreign(entry: Path) -> None:
    (entry / "1/executable.popef").write_bytes(b"PopEF" + bytes(1000))


def without_executable(entry: Path) -> None:
    (entry / "1/executable.popef").unlink()


def without_names(entry: Path) -> None:
    (entry / "1/name_map.json").unlink()


def without_config(entry: Path) -> None:
    (entry / "config.pbtxt").unlink()


def without_version(entry: Path) -> None:
    shutil.rmtree(entry / "1")


def config_unreadable(entry: Path) -> None:
    (entry / "config.pbtxt").write_text("name: {{{")


def name_of_another(entry: Path) -> None:
    changed(f'name: "{entry.name}"', 'name: "another"')(entry)


def names_not_json(entry: Path) -> None:
    (entry / "1/name_map.json").write_text("{")


def names_of_another(entry: Path) -> None:
    (entry / "1/name_map.json").write_text(json.dumps({"data": "input_0", "fc": "output_0"}))


def names_to_nowhere(entry: Path) -> None:
    path = entry / "1/name_map.json"
    path.write_text(path.read_text().replace("output_0", "output_7"))


def changed(old: str, new: str) -> Callable[[Path], None]:
    def change(entry: Path) -> None:
        path = entry / "config.pbtxt"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return change


def for_training(entry: Path) -> None:
    model = poptorch.trainingModel(Trained(), options())
    model.compile(samples(2), torch.zeros(2, 3))
    model.save(str(entry / "1/executable.popef"), export_model=False)
    model.destroy()


class Trained(Layer):
    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return poptorch.identity_loss((self.layer(x) - target).square(), "sum")


def with_parameter(name: str, value: str) -> Callable[[Path], None]:
    def add(entry: Path) -> None:
        with (entry / "config.pbtxt").open("a") as file:
            file.write(f'parameters {{ key: "{name}" value: {{ string_value: "{value}" }} }}\n')

    return add


#: How an entry is spoilt -> what the server must say of it.
BAD = {
    "damaged": (damaged, "SIPU-1602"),
    "cut-short": (cut_short, "SIPU-1602"),
    "foreign": (foreign, "SIPU-1601"),
    "no-executable": (without_executable, "SIPU-6105"),
    "no-names": (without_names, "SIPU-6105"),
    "no-config": (without_config, "SIPU-6105"),
    "no-version": (without_version, "SIPU-6105"),
    "config-unreadable": (config_unreadable, "SIPU-6104"),
    "other-name": (name_of_another, "SIPU-6104"),
    "not-json": (names_not_json, "SIPU-6106"),
    "other-names": (names_of_another, "SIPU-6106"),
    "nowhere": (names_to_nowhere, "SIPU-6106"),
    "other-type": (changed("TYPE_FP32", "TYPE_FP16"), "SIPU-6107"),
    "other-shape": (changed("dims: [ 3 ]", "dims: [ 5 ]"), "SIPU-6107"),
    "odd-threads": (with_parameter("threads", "many"), "SIPU-6107"),
    "training": (for_training, "SIPU-6108"),
}


@pytest.fixture(scope="module")
def server(models, tmp_path_factory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("bad")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOFTIPU_HOME", str(tmp_path_factory.mktemp("export-home")))
        for name, (spoil, _) in BAD.items():
            shutil.copytree(models[0] / "joined", folder / name)
            changed('name: "joined"', f'name: "{name}"')(folder / name)
            spoil(folder / name)
    shutil.copytree(models[0] / "joined", folder / "joined")
    with serving(folder, tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.mark.parametrize("name", BAD)
def test_a_bad_entry_is_refused_with_its_code(server: Running, name: str) -> None:
    said = [line for line in server.lines if line.startswith(f"Model {name} is not served:")]
    assert len(said) == 1, server.lines
    assert BAD[name][1] in said[0]
    assert "Way out:" in said[0]
    assert not server.is_served(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no-config", "no-config has no config.pbtxt. "),
        ("no-version", "no-version has no directory 1 "),
        ("config-unreadable", "failed to read text proto from "),
        ("other-name", "directory name must equal model name"),
    ],
)
def test_an_entry_that_the_server_passes_over_is_told_with_the_reason(
    server: Running, name: str, reason: str
) -> None:
    [said] = [line for line in server.lines if line.startswith(f"Model {name} is not served:")]
    assert reason in said


def test_the_good_one_is_served_beside_them(server: Running, models) -> None:
    assert server.models == ["joined"]
    tensor = samples(3)
    with torch.no_grad():
        torch.testing.assert_close(server.values("joined", tensor), models[1]["joined"](tensor))


def test_a_refused_model_holds_no_process(server: Running) -> None:
    assert len(server.backend_processes()) == 1
