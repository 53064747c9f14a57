"""The importer's table against torch's own list of core operators."""

from __future__ import annotations

import pytest
import torch

from poptorch._neutral_table import NEVER_CAPTURED, TABLE, row_of


def core_operators() -> set[str]:
    """The names of all operators that torch tags as core, without their overloads."""
    found = set()
    for qualified in torch._C._dispatch_get_all_op_names():
        space, _, rest = qualified.partition("::")
        name, _, overload = rest.partition(".")
        packet = getattr(torch.ops.aten, name, None) if space == "aten" else None
        operator = getattr(packet, overload or "default", None) if packet else None
        if operator is not None and torch.Tag.core in operator.tags:
            found.add(name)
    return found


def test_torch_lists_its_core_operators() -> None:
    assert len(core_operators()) > 150
    assert {"convolution", "addmm", "native_layer_norm", "scatter_add"} <= core_operators()


@pytest.mark.parametrize("name", sorted(core_operators()))
def test_every_core_operator_has_a_row_or_a_reason(name: str) -> None:
    assert (row_of(name) is None) == (name in NEVER_CAPTURED), (
        f"{name} needs exactly one of a row in TABLE and a reason in NEVER_CAPTURED"
    )


def test_reasons_are_only_given_for_operators_that_torch_has() -> None:
    assert set(NEVER_CAPTURED) <= core_operators()
    assert all(len(reason.split()) > 4 for reason in NEVER_CAPTURED.values())


def test_rows_are_named_after_operators_that_torch_has() -> None:
    """A row with a misspelt name would never be used."""
    aten = torch.ops.aten
    unknown = {name for name in TABLE if not hasattr(aten, name) and not hasattr(aten, f"{name}_")}
    # Made by rule: torch has not all combinations of them.
    ruled = ("upsample", "scaled_dot_product_attention")
    assert all(name.lstrip("_").startswith(ruled) for name in unknown), sorted(unknown)


def test_forms_that_write_in_place_share_the_row() -> None:
    assert row_of("add_") is row_of("add")
    assert row_of("_foreach_addcdiv_") is row_of("_foreach_sqrt")
    assert row_of("no_such_operator_") is None


@pytest.mark.parametrize(
    "name",
    [
        "convolution_backward",
        "native_batch_norm_backward",
        "native_group_norm_backward",
        "native_layer_norm_backward",
        "_softmax_backward_data",
        "_log_softmax_backward_data",
        "embedding_dense_backward",
        "nll_loss_forward",
        "nll_loss_backward",
        "mse_loss_backward",
        "max_pool2d_with_indices_backward",
        "avg_pool2d_backward",
        "threshold_backward",
        "gelu_backward",
        "tanh_backward",
        "sigmoid_backward",
        "silu_backward",
        "hardswish_backward",
        "hardtanh_backward",
        "_adaptive_avg_pool2d_backward",
        "select_backward",
        "slice_backward",
        "upsample_nearest2d_backward",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
    ],
)
def test_what_training_graphs_contain_has_a_row(name: str) -> None:
    assert row_of(name) is not None
