"""paddle.static.IpuStrategy: every option can be set and read; wrong ones are refused."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import paddle
import pytest
from paddle.static import IpuStrategy

from softipu.errors import InvalidIpuOption, PaddleUnsupported
from softipu.frontends.paddle import plan
from softipu.frontends.paddle.option_groups import LOCATION_KEYS, LOCATIONS, PATTERNS
from softipu.frontends.paddle.option_table import OPTIONS, Option

paddle.enable_static()

WARNED = "softipu.frontends.paddle.option_warnings._warned"
OTHER = {"bool": lambda v: not v, "uint64": lambda v: v + 1, "double": lambda v: v + 0.5}
NUMBERS = [
    row.name
    for row in OPTIONS.values()
    if row.kind in OTHER and row.name != "random_seed" and row.default + 1 != row.below
    if row.support != "refused"
]
#: Values for options that are no numbers.
OTHER_WORDS = {
    "accl1_type": "FLOAT16", "accl2_type": "FLOAT16", "accl3_type": "FLOAT16",
    "weight_decay_mode": "decay", "partials_type_matmuls": "half", "dot_checks": ["Final"],
    "engine_options": {"autoReport.all": "false"}, "convolution_options": {"partialsType": "half"},
}  # fmt: skip
DOCS = Path(__file__).parents[2] / "docs"


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
        ({"custom_op": {"paddle_op": 3, "popart_op": 3}}, r"paddle_op .* not 3 \(int\)"),
        ({"custom_op": {"paddle_op": "", "popart_op": "a"}}, "paddle_op of a custom operation"),
        ({"custom_op": {"paddle_op": "a"}}, "popart_op of a custom operation .* not None"),
        ({"custom_op": {"paddle_op": "a", "popart_op": "b", "domain": 2}}, "domain of a custom"),
        ({"custom_op": {"paddle_op": "a", "popart_op": "b", "version": "1"}}, "version of a"),
        ({"custom_op": {"paddle_op": "a", "popart_op": "b", "version": -1}}, "version of a"),
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
    strategy.set_options({"dot_checks": {"Fwd0"}, "engine_options": {"b": 2, "c": True}})
    assert strategy.get_option("dot_checks") == ["Fwd0", "Fwd1"]
    assert strategy.get_option("engine_options") == {"a": "1", "b": "2", "c": "1"}


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
    monkeypatch.setattr(WARNED, set())
    with pytest.warns(UserWarning, match="enable_stochastic_rounding=True has no effect") as said:
        strategy.set_options({"enable_stochastic_rounding": True})
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        strategy.set_options({"enable_stochastic_rounding": True})
        strategy.set_options({"num_io_tiles": 32})  # estimates count them: nothing to say


def other_value(row: Option) -> object:
    if row.name in OTHER_WORDS:
        return OTHER_WORDS[row.name]
    if row.kind in OTHER:
        value = OTHER[row.kind](row.default)
        return row.default - 1 if value == row.below or value > 2**64 - 1 else value
    return {"string": "text", "vector": ["text"], "map": {"key": "text"}}[row.kind]


@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "custom_ops"])
def test_the_table_says_what_setting_an_option_does(
    strategy: IpuStrategy, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(WARNED, set())
    row = OPTIONS[name]
    options = {name: other_value(row)}
    if row.support == "refused":
        strategy.set_options(options)
        with pytest.raises(PaddleUnsupported, match=f"(?s)SIPU-4008.*{name}"):
            plan.read(strategy._ipu_strategy)
        return
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        strategy.set_options(options)
    texts = [str(warning.message) for warning in said]
    if row.support == "ignored":
        assert len(texts) == 1
        assert f"{name}={options[name]!r} has no effect" in texts[0]
    elif row.warning:
        assert texts == [f"IpuStrategy option {name}=1 changes estimates alone: {row.warning}."]
    else:
        assert texts == []


def test_defaults_warn_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WARNED, set())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        strategy = IpuStrategy()
        for name, row in OPTIONS.items():
            if name not in ("custom_ops", "lr"):
                value = list(row.default) if row.kind == "vector" else row.default
                strategy.set_options({name: value})


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"engine_options": {"opt.enableInlining": "true"}}, ["engine_options['opt.enableInl"]),
        ({"convolution_options": {"planConstraints": "{}"}}, ["convolution_options['planC"]),
        ({"virtual_graph_mode": 2}, ["virtual_graph_mode=2"]),
        ({"virtual_graph_mode": 3}, ["virtual_graph_mode=3"]),
        ({"replicated_collectives_settings": {"merge_all_reduce_collectives": 1}}, ["replicated_"]),
        ({"accumulate_outer_fragment": {0: []}}, ["accumulate_outer_fragment"]),
        ({"log_dir": "x", "dot_checks": ["Final"], "compile_engine": False},
         ["log_dir='x'", "dot_checks=['Final']", "compile_engine=False"]),
        *(({group: {key: 1}}, [f"{group}['{key}']=1"]) for group in LOCATIONS
          for key in LOCATION_KEYS if key not in ("on_chip", "use_replicated_tensor_sharding")),
    ],
)  # fmt: skip
def test_parts_of_options_without_effect_share_one_warning(
    strategy: IpuStrategy,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, object],
    named: list[str],
) -> None:
    monkeypatch.setattr(WARNED, set())
    with pytest.warns(UserWarning, match="effect on a software IPU") as said:
        strategy.set_options(options)
    assert len(said) == 1
    assert [part for part in named if part not in str(said[0].message)] == []


def test_a_pattern_says_that_it_has_no_effect(
    strategy: IpuStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WARNED, set())
    with pytest.warns(UserWarning, match="pattern TiedGather=True has no effect"):
        strategy.enable_pattern("TiedGather")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        strategy.enable_pattern("InPlace")  # on by default
        strategy.disable_pattern("TiedGather")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accumulation_and_replication_reduction_type": 2}, "reduction_type=2.*one gradient"),
        ({"enable_distribution": True}, "enable_distribution=True"),
    ],
)
def test_what_no_program_can_have_is_kept_and_refused_when_one_is_compiled(
    strategy: IpuStrategy, options: dict[str, Any], message: str
) -> None:
    strategy.set_options(options)
    (name,) = options
    assert strategy.get_option(name) == options[name]
    with pytest.raises(PaddleUnsupported, match=f"(?s)SIPU-4008.*{message}"):
        plan.read(strategy._ipu_strategy)


def test_what_was_set_before_an_error_still_warns(
    strategy: IpuStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WARNED, set())
    with (
        pytest.warns(UserWarning, match="log_dir='x' has no effect"),
        pytest.raises(ValueError, match="no_such_option"),
    ):
        strategy.set_options({"log_dir": "x", "no_such_option": True})


def test_set_optimizer_is_for_dynamic_graphs(strategy: IpuStrategy) -> None:
    with pytest.raises(RuntimeError, match="dynamic mode"):
        strategy.set_optimizer(paddle.optimizer.SGD(0.1))


def test_the_documentation_lists_every_option() -> None:
    text = (DOCS / "options.md").read_text().partition("## `paddle.static.IpuStrategy`")[2]
    assert [name for name in (*OPTIONS, *LOCATIONS) if f"\n| `{name}` |" not in text] == []


def test_the_pages_count_options_as_the_table_does() -> None:
    count = Counter(row.support for row in OPTIONS.values())
    supported, told = (DOCS / "support.md").read_text(), (DOCS / "paddle.md").read_text()
    assert (
        f"{len(OPTIONS)} options: {count['used']} used, {count['modelled']} modelled (they change "
        f"estimates), {count['ignored']} ignored with one warning, {count['refused']} refused"
    ) in supported
    assert [kind for kind in count if f"- **{kind}** ({count[kind]}):" not in told] == []
