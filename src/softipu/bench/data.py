"""The images that the harness feeds: from a folder or noise, in the form that options ask for."""

from __future__ import annotations

import torch

from .layers import scale_and_shift
from .models import input_shape
from .options import Options


def batch_of_noise(options: Options) -> torch.Tensor:
    """A host batch of random images: the same one every time."""
    return prepared(noise(options, options.batch_size), options)


def noise(options: Options, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    shape = (count, *input_shape(options.model))
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def prepared(images: torch.Tensor, options: Options) -> torch.Tensor:
    """Images of bytes as they travel to the IPU: type, and normalised if that is the host's job."""
    if options.eight_bit_io:
        return images
    dtype = torch.float16 if options.half else torch.float32
    if options.normalization_location != "host":
        return images.to(dtype)
    scale, shift = scale_and_shift(torch.float32)
    return (images * scale - shift).to(dtype)
