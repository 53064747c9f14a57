"""Images from a folder: found, decoded, and cut to the size that a model takes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch

from ..errors import BenchPackageMissing, ImagesMissing, ImageUnreadable
from .vision import package, torchvision

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm")
#: Images are decoded before the clock runs, and stay in memory: more than these would not fit.
MOST = 2048
#: The usual cut: resize to a little more than needed, keep the centre.
_MARGIN = 256 / 224
#: The short side becomes that of the cut, and the long side grows with it: a line of pixels would
#: become gigabytes, of which the cut keeps next to nothing.
_LONGEST = 100


def load(folder: str | None, side: int, most: int) -> torch.Tensor:
    """Up to `most` images, as bytes: number x 3 x side x side."""
    return torch.stack([_read(path, side) for path in find(folder)[: min(most, MOST)]])


def find(folder: str | None) -> list[Path]:
    """The image files in a folder and its subfolders, in one order on every machine."""
    root = _sample_folder() if folder is None else Path(folder)
    try:
        named = [path for path in root.rglob("*") if path.suffix.lower() in ENDINGS]
        found = sorted(path for path in named if not path.is_dir())
    except OSError as error:
        raise ImagesMissing(f"{root} can't be read: {error.strerror}.") from error
    if not found:
        missing = "has no images" if root.is_dir() else "is no folder"
        raise ImagesMissing(f"{root} {missing}.")
    return found


def _sample_folder() -> Path:
    """Two photographs that come with scikit-learn."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise BenchPackageMissing(
            "Without --data-path the images are those of scikit-learn, which is not installed."
        )
    return Path(spec.origin).parent / "datasets" / "images"


def _read(path: Path, side: int) -> torch.Tensor:
    image_module = package("PIL.Image")
    functional = _functional()
    try:
        with image_module.open(path) as image:
            _check_sides(path, *image.size)
            picture = image.convert("RGB")
    except ImageUnreadable:
        raise
    # Decoders raise what they like for damaged files: struct.error, SyntaxError, EOFError, ...
    except Exception as error:
        raise ImageUnreadable(f"The image {path} can't be read: {error}.") from error
    picture = functional.resize(picture, int(side * _MARGIN))
    cut = functional.center_crop(picture, [side, side])
    result: torch.Tensor = functional.pil_to_tensor(cut)
    return result


def _check_sides(path: Path, width: int, height: int) -> None:
    short, long = sorted((width, height))
    if long > _LONGEST * short:
        raise ImageUnreadable(
            f"The image {path} can't be cut to a square: it is {width} x {height} pixels.",
            cause=f"One side may be up to {_LONGEST} times as long as the other.",
            remedy="Remove the file, or cut the image to the part that matters.",
        )


def _functional() -> Any:
    return torchvision().transforms.functional
