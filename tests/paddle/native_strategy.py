"""paddle.static.IpuStrategy: every option can be set and read; wrong ones are refused."""

from __future__ import annotations

import warnings
from pathlib import Path

import paddle
import pytest
from paddle.static import IpuStrategy

from softipu.errors import InvalidIpuOption
from softipu.frontends.paddle.option_table import OPTIONS, PATTERNS

paddle.enable_static()

OTHER = {"bool": lambda v: not v, "uint64": lambda v: v + 1, "double": lambda v: v + 0.5}
NUMBERS = [
    row.name
    for row in OPTIONS.values()
    if row.kind in OTHER and row.name != "random_seed" and row.default + 1 != row.below
]


@pytest.fixture
def strategy() -> IpuStrategy:
    return IpuStrategy()


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.filterwarnings("ignore:IpuStrategy option")
def test_a_number_reads_as_it_was_set(strategy: IpuStrategy, name: str) -> None:
    row = OPTIONS[name]
    value = OTHER[row.kind](row.default)
    strategy.set_options({name: value})
    assert strategy.get_option(name) == value
    assert strategy._ipu_strategy.get_option(name)["type"] == row.kind


def test_there_are_as_many_options_as_in_paddles_ipu_build(strategy: IpuStrategy) -> None:
    names = strategy._ipu_strategy.get_all_option_names()
    assert len(names) == len(set(names)) == len(OPTIONS) == 115
    assert names[-1] == "report_options"


def test_paddle_sets_means_and_off_chip_optimizer_states(strategy: IpuStrategy) -> None:
    assert strategy.get_option("accumulation_and_replication_reduction_type") == 1
    assert strategy._ipu_strategy.groups["location_optimizer"] == {
        "on_chip": 0,
        "use_replicated_tensor_sharding": 1,
    }


def test_configuration_methods_and_properties_agree(strategy: IpuStrategy) -> None:
    strategy.set_graph_config(
        num_ipus=4, is_training=False, micro_batch_size=3, enable_manual_shard=True
    )
    strategy.set_pipelining_config(
        enable_pipelining=True, batches_per_step=5,
        enable_gradient_accumulation=True, accumulation_factor=6,
    )  # fmt: skip
    strategy.set_precision_config(enable_fp16=True)
    assert (strategy.num_ipus, strategy.is_training) == (4, False)
    assert (strategy.enable_pipelining, strategy.enable_fp16) == (True, True)
    values = [
        strategy.get_option(name)
        for name in ("micro_batch_size", "batches_per_step", "accumulation_factor")
    ]
    assert values == [3, 5, 6]
    assert strategy.get_option("virtual_graph_mode") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_ipuz": 1}, "Cannot find option: num_ipuz, type: uint64"),
        ({"num_ipus": True}, "Cannot find option: num_ipus, type: bool"),
        ({"num_ipus": 2.0}, "Cannot find option: num_ipus, type: double"),
        ({"num_ipus": "2"}, "Cannot find option: num_ipus, type: string"),
        ({"num_ipus": 0}, "out of range"),
        ({"num_ipus": -1}, "out of range"),
        ({"is_training": 1}, "Cannot find option: is_training, type: uint64"),
        ({"loss_scaling": 2}, "type: uint64"),
        ({"loss_scaling": float("nan")}, "above 0"),
        ({"available_memory_proportion": 1.5}, "range \\[0.0, 1.0\\]"),
        ({"auto_recomputation": 5}, "out of range"),
        ({"accl1_type": "FLOAT32"}, "'FLOAT', 'FLOAT16'"),
        ({"dot_checks": ["Fwd9"]}, "Fwd0"),
        ({"engine_options": {"a": 1.5}}, "strings"),
        ({"location_weight": {"on_moon": 1}}, "on_moon"),
        ({"location_weight": 1}, "dictionary"),
        ({"replicated_collectives_settings": {"x": True}}, "Unknown option 'x'"),
        ({"accumulate_outer_fragment": {"0": []}}, "schedule"),
        ({"custom_op": {"operator": "x"}}, "paddle_op, popart_op, domain or version"),
        ({"compilation_progress_logger": 3}, "function"),
        ({"num_ipus": None}, "Invalid IpuStrategy option value type"),
        ({3: 4}, "name of an option"),
    ],
)
def test_a_wrong_option_is_refused_by_name(
    strategy: IpuStrategy, options: dict[str, object], said: str
) -> None:
    with pytest.raises(InvalidIpuOption, match=said):
        strategy._ipu_strategy.set_options(options)


def test_the_error_is_a_value_error_with_code_and_hint(strategy: IpuStrategy) -> None:
    with pytest.raises(ValueError, match="(?s)SIPU-4002.*Similar names: num_ipus"):
        strategy.set_options({"num_ipu": 2})
    with pytest.raises(InvalidIpuOption, match="Cannot find option name: nothing"):
        strategy.get_option("nothing")


def test_pipelining_without_manual_shards_is_refused(strategy: IpuStrategy) -> None:
    with pytest.raises(RuntimeError, match="enable_manual_shard=True"):
        strategy.set_pipelining_config(enable_pipelining=True)
    with pytest.raises(RuntimeError, match="num_ipus > 1"):
        strategy.set_graph_config(num_ipus=1, enable_manual_shard=True)


def test_patterns_are_switched_by_name(strategy: IpuStrategy) -> None:
    options = strategy._ipu_strategy
    assert {name: options.is_pattern_enabled(name) for name in PATTERNS} == PATTERNS
    strategy.enable_pattern("TiedGather")
    strategy.disable_pattern("InPlace")
    assert options.is_pattern_enabled("TiedGather")
    assert not options.is_pattern_enabled("InPlace")
    with pytest.raises(InvalidIpuOption, match="Unknown pattern 'Inplace'"):
        strategy.enable_pattern("Inplace")


def test_lists_and_maps_collect(strategy: IpuStrategy) -> None:
    strategy.set_options({"dot_checks": ["Fwd1"], "engine_options": {"a": "1"}})
    strategy.set_options({"dot_checks": {"Fwd0"}, "engine_options": {"b": 2}})
    assert strategy.get_option("dot_checks") == ["Fwd0", "Fwd1"]
    assert strategy.get_option("engine_options") == {"a": "1", "b": "2"}


def test_half_partials_are_a_view_of_two_options(strategy: IpuStrategy) -> None:
    strategy.set_options({"enable_half_partial": True})
    assert strategy.get_option("partials_type_matmuls") == "half"
    assert strategy.get_option("convolution_options") == {"partialsType": "half"}


def test_custom_operations_are_listed(strategy: IpuStrategy) -> None:
    strategy.add_custom_op(paddle_op="custom_relu", popart_op="Relu", domain="mine", version=2)
    assert strategy.get_option("custom_ops") == [
        "paddle_op: custom_relu, popart_op: Relu, domain: mine, version: 2"
    ]
    assert strategy.has_custom_ops


def test_an_option_without_effect_says_so_once(
    strategy: IpuStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("softipu.frontends.paddle.strategy._warned", set())
    with pytest.warns(UserWarning, match="enable_stochastic_rounding=True has no effect"):
        strategy.set_options({"enable_stochastic_rounding": True})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        strategy.set_options({"enable_stochastic_rounding": True})
        strategy.set_options({"enable_outlining": False})  # only modelled: nothing to say


def test_set_optimizer_is_for_dynamic_graphs(strategy: IpuStrategy) -> None:
    with pytest.raises(RuntimeError, match="dynamic mode"):
        strategy.set_optimizer(paddle.optimizer.SGD(0.1))


def test_the_documentation_lists_every_option() -> None:
    page = Path(__file__).parents[2] / "docs" / "paddle.md"
    text = page.read_text()
    assert [name for name in OPTIONS if f"`{name}`" not in text] == []
