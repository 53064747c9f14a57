"""The images that the harness feeds: from a folder or noise, in the form that options ask for."""

from __future__ import annotations

import torch

import poptorch

from . import images
from .layers import scale_and_shift
from .models import input_shape
from .options import Options

#: So many random images are made, and used again and again; which they are changes no speed.
DISTINCT = 64


class Repeated(torch.utils.data.Dataset[torch.Tensor]):
    """A few images, over and over, as many as asked for."""

    def __init__(self, few: torch.Tensor, count: int) -> None:
        self._few = few
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._few[index % len(self._few)]


def loader(options: Options, settings: poptorch.Options) -> poptorch.DataLoader:
    """A host batch for every call. Freezes the PopTorch options."""
    mode = poptorch.DataLoaderMode
    ahead = options.dataloader_rebatch_size is not None
    return poptorch.DataLoader(
        settings,
        Repeated(prepared(_images(options), options), options.total_samples),
        batch_size=options.micro_batch_size,
        num_workers=options.dataloader_worker,
        mode=mode.AsyncRebatched if ahead else mode.Sync,
        rebatched_worker_size=options.dataloader_rebatch_size,
    )


def _images(options: Options) -> torch.Tensor:
    if options.data == "real":
        side = input_shape(options.model)[-1]
        return images.load(options.data_path, side, options.total_samples)
    return noise(options, min(DISTINCT, options.batch_size))


def batch_of_noise(options: Options) -> torch.Tensor:
    """A host batch of random images: the same one every time."""
    return prepared(noise(options, options.batch_size), options)


def noise(options: Options, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    shape = (count, *input_shape(options.model))
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def prepared(pictures: torch.Tensor, options: Options) -> torch.Tensor:
    """Images of bytes as they travel to the IPU: type, and normalised if that is the host's job."""
    if options.eight_bit_io:
        return pictures
    dtype = torch.float16 if options.half else torch.float32
    if options.normalization_location != "host":
        return pictures.to(dtype)
    scale, shift = scale_and_shift(torch.float32)
    return (pictures * scale - shift).to(dtype)
