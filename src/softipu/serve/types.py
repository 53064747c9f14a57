"""Data types by their names in Triton's configuration and in torch."""

from __future__ import annotations

#: Triton's TYPE_… without the prefix -> torch's dtype, by name so that torch need not be there.
TORCH_NAMES = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "BF16": "bfloat16",
    "FP32": "float32",
    "FP64": "float64",
}
TRITON_NAMES = {torch_name: triton for triton, torch_name in TORCH_NAMES.items()}


def triton_name(dtype: object) -> str | None:
    """Triton's name of a torch dtype, None if it has none."""
    return TRITON_NAMES.get(str(dtype).removeprefix("torch."))
