"""The images that the harness feeds: folders, noise, and the form in which they travel."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from cnn_support import figures, one_way  # noqa: F401 - a fixture
from PIL import Image

from softipu.bench import data, harness, images, run
from softipu.bench.layers import DEVIATION, MEAN
from softipu.bench.options import Options
from softipu.errors import ImagesMissing, ImageUnreadable
from softipu.tools import cli


def picture(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (320, 240)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three images of one colour each, two of them in folders of classes."""
    picture(tmp_path / "set" / "a.png", (255, 0, 0))
    picture(tmp_path / "set" / "bird" / "b.png", (0, 255, 0), (20, 300))
    picture(tmp_path / "set" / "cat" / "c.BMP", (0, 0, 255), (224, 224))
    (tmp_path / "set" / "README.txt").write_text("not an image")
    return tmp_path / "set"


def batches(options: Options) -> list[torch.Tensor]:
    return list(data.loader(options, harness.poptorch_options(options)))


def test_images_are_found_in_subfolders_and_cut_to_size(folder: Path) -> None:
    found = images.load(str(folder), 224, 100)
    assert (found.shape, found.dtype) == ((3, 3, 224, 224), torch.uint8)
    assert [one.amax((1, 2)).tolist() for one in found] == [[255, 0, 0], [0, 255, 0], [0, 0, 255]]
    assert len(images.load(str(folder), 224, 2)) == 2


def test_grey_and_transparent_images_get_three_channels(tmp_path: Path) -> None:
    Image.new("L", (50, 50), 77).save(tmp_path / "grey.png")
    Image.new("RGBA", (50, 50), (1, 2, 3, 4)).save(tmp_path / "veil.png")
    assert images.load(str(tmp_path), 32, 9).shape == (2, 3, 32, 32)


def test_without_a_folder_there_are_photographs() -> None:
    found = images.load(None, 64, 9)
    assert found.shape == (2, 3, 64, 64)
    assert found.float().std() > 10


@pytest.mark.parametrize("what", ["text", "cut", "empty"])
def test_an_image_that_cannot_be_read_is_named(folder: Path, what: str) -> None:
    bad = folder / "bird" / "bad.jpg"
    if what == "cut":
        Image.effect_noise((300, 300), 90).save(bad)
        bad.write_bytes(bad.read_bytes()[:2000])
    else:
        bad.write_text("hello" if what == "text" else "")
    with pytest.raises(ImageUnreadable, match="bad.jpg can't be read"):
        images.load(str(folder), 224, 100)


def test_an_image_that_is_a_line_is_refused_before_it_grows(folder: Path) -> None:
    picture(folder / "strip.png", (1, 2, 3), (300, 3))
    assert images.load(str(folder), 32, 9).shape == (4, 3, 32, 32)
    picture(folder / "line.png", (1, 2, 3), (10_000, 1))
    with pytest.raises(ImageUnreadable, match=r"line\.png can't be cut .* 10000 x 1 pix") as found:
        images.load(str(folder), 224, 9)
    assert "100 times" in found.value.cause


@pytest.mark.usefixtures("one_way")
def test_the_command_measures_with_the_images_of_a_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--model", "resnet18", "--precision", "32.32", "--data-path", str(folder)]
    found = figures(capsys, *words, "--micro-batch-size", "4", "--iterations", "1")
    assert (found["options"]["data"], found["options"]["data_path"]) == ("real", str(folder))
    assert found["host"]["throughput"]["mean"] > 0
    assert found["host"]["latency"]["avg"] > 0


def test_the_command_names_the_bad_image_in_one_block(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "bad.png").write_text("hello")
    words = ["--model", "resnet18", "--data-path", str(folder), "--iterations", "100"]
    assert cli.guarded(run.main, words) == 1
    text = capsys.readouterr().err
    assert "SIPU-6009" in text
    assert "bad.png" in text
    assert "Traceback" not in text


def test_folders_without_images(tmp_path: Path) -> None:
    with pytest.raises(ImagesMissing, match="none is no folder"):
        images.load(str(tmp_path / "none"), 224, 1)
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "folder.jpg").mkdir()
    with pytest.raises(ImagesMissing, match="has no images"):
        images.load(str(tmp_path), 224, 1)


# --- form -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "dtype"),
    [
        ({"precision": "32.32"}, torch.float32),
        ({"precision": "16.16"}, torch.float16),
        ({"normalization_location": "ipu", "eight_bit_io": True}, torch.uint8),
        ({"normalization_location": "ipu"}, torch.float16),
        ({"normalization_location": "none", "precision": "32.32"}, torch.float32),
    ],
)
def test_form_in_which_images_travel(folder: Path, fields: dict[str, str], dtype: object) -> None:
    options = Options(data_path=str(folder), iterations=1, **fields)  # type: ignore[arg-type]
    (batch,) = batches(options)
    assert batch.dtype == dtype
    red = batch[0, 0, 0, 0].item()
    normalised = options.normalization_location == "host"
    wanted = (1 - MEAN[0]) / DEVIATION[0] if normalised else 255
    assert red == pytest.approx(wanted, rel=1e-3)


def test_a_host_batch_for_every_call(folder: Path) -> None:
    options = Options(
        data_path=str(folder), micro_batch_size=2, device_iterations=3, replicas=2, iterations=2
    )
    found = batches(options)
    assert [len(batch) for batch in found] == [12, 12]
    assert torch.equal(found[0][0], found[0][3])
    assert not torch.equal(found[0][0], found[0][1])


@pytest.mark.parametrize("extra", [{"dataloader_worker": 2}, {"dataloader_rebatch_size": 2}])
def test_loading_in_other_processes_and_ahead_gives_the_same(
    folder: Path, extra: dict[str, int]
) -> None:
    plain = Options(data_path=str(folder), micro_batch_size=4, iterations=3)
    other = Options(data_path=str(folder), micro_batch_size=4, iterations=3, **extra)  # type: ignore[arg-type]
    for ours, theirs in zip(batches(other), batches(plain), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("kind", ["generated", "synthetic"])
def test_noise_is_the_same_every_time_and_differs_between_images(kind: str) -> None:
    options = Options(data=kind, micro_batch_size=3, iterations=1, precision="32.32")
    (first,), (second,) = batches(options), batches(options)
    assert torch.equal(first, second)
    assert not torch.equal(first[0], first[1])
    assert torch.equal(first, data.batch_of_noise(options))
    assert abs(first.mean()) < 1
