"""Where blocks run: strategies, automatic stages, and what follows for IPUs, pipelines and the log."""

from __future__ import annotations

import copy
import json
import pickle
import re
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from poptorch._context import Place
from poptorch._errors import Error
from poptorch._lowering_log import Lowered, log_lines, native_name, setting_lines
from poptorch._strategies import (
    OUTSIDE,
    Assignment,
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
    _IExecutionStrategy,
    check_pipeline,
    describe,
    forward_stages,
    from_description,
    ipus_needed,
    require_block,
)
from poptorch.enums import AutoStage, Liveness

Begun = list[tuple[str | None, int | None]]


def places(strategy: _IExecutionStrategy, begun: Begun) -> list[Place]:
    """The places of blocks that begin one after the other in one capture."""
    assignment = Assignment(strategy)
    return [assignment.begin(block, ipu) for block, ipu in begun]


# --- Stages and phases as users write them ---


def test_a_stage_keeps_its_blocks_in_order_and_takes_an_ipu() -> None:
    stage = Stage("A", "B").ipu(3)
    assert tuple(stage.blocks) == ("A", "B")
    assert repr(stage) == "Stage('A', 'B').ipu(3)"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Stage(1),  # type: ignore[arg-type]
        lambda: Stage("A").ipu("1"),  # type: ignore[arg-type]
        lambda: Stage("A").ipu(-1),
    ],
)
def test_stages_refuse_ids_and_ipus_of_other_types(wrong: Any) -> None:
    with pytest.raises(AssertionError):
        wrong()


def test_a_phase_of_block_ids_is_one_stage_and_a_phase_of_stages_is_many() -> None:
    assert [stage.blocks for stage in Phase("A", "B").stages] == [("A", "B")]
    two = Phase(Stage("A"), Stage("B"))
    two.ipus(0, 2)
    assert [repr(two.stage(index)) for index in range(2)] == [
        "Stage('A').ipu(0)",
        "Stage('B').ipu(2)",
    ]


def test_a_phase_refuses_a_mixture_and_a_wrong_number_of_ipus() -> None:
    with pytest.raises(AssertionError, match="must either be block IDs"):
        Phase("A", Stage("B"))
    with pytest.raises(AssertionError, match="contains 1 stages but you provided 2 ipus"):
        Phase("A").ipus(0, 1)


@pytest.mark.parametrize(
    "phases",
    [
        (Phase("a"), Phase("b")),
        (Stage("a"), Stage("b")),
        ("a", "b"),
        (["a"], ["b"]),
        ([Stage("a")], [Stage("b")]),
        ([Phase("a"), Phase("b")],),
    ],
)
def test_phases_are_given_as_phases_stages_ids_or_lists_of_them(phases: Any) -> None:
    strategy = SerialPhasedExecution(*phases)
    assert [strategy.phase(n).stages[0].blocks for n in range(2)] == [("a",), ("b",)]


def test_phases_must_be_named_and_are_counted_from_zero() -> None:
    with pytest.raises(AssertionError, match="no AutoStage for PhasedExecution"):
        SerialPhasedExecution()
    with pytest.raises(AssertionError, match="positive integers"):
        SerialPhasedExecution("a").phase(-1)


@pytest.mark.parametrize("kind", [PipelinedExecution, ShardedExecution, SerialPhasedExecution])
def test_a_block_belongs_to_one_stage_only(kind: Any) -> None:
    with pytest.raises(AssertionError, match="A associated with more than one stage"):
        kind(Stage("A"), Stage("B", "A"))


def test_the_stage_of_a_block_can_be_looked_up_and_moved() -> None:
    strategy = PipelinedExecution("A", ["B", "C"])
    assert strategy.stage("C") is strategy.stage("B")
    strategy.stage("B").ipu(5)
    assert [place.ipu for place in places(strategy, [("A", None), ("C", 1)])] == [0, 5]
    with pytest.raises(AssertionError, match="Unknown block D"):
        strategy.stage("D")


def test_strategies_refuse_arguments_that_are_neither_stages_nor_ids() -> None:
    with pytest.raises(AssertionError, match="block ID"):
        PipelinedExecution(3)  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="strings"):
        PipelinedExecution([1, 2])  # type: ignore[list-item]


def test_a_stage_used_by_two_strategies_has_its_own_number_in_each() -> None:
    shared = Stage("B")
    first, second = PipelinedExecution("A", shared), ShardedExecution(shared)
    assert places(first, [("B", None)])[0].stage == 1
    assert places(second, [("B", None)])[0].stage == 0


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        (PipelinedExecution(), {"execution_mode": 0}),
        (ShardedExecution("A"), {"execution_mode": 1}),
        (
            SerialPhasedExecution("A").setTensorsLiveness(Liveness.OffChipAfterEachPhase),
            {
                "execution_mode": 2,
                "separate_backward_phase": False,
                "tensors_liveness": 3,
                "serial_phases_execution": True,
            },
        ),
        (
            ParallelPhasedExecution("A").sendTensorsOffChipAfterFwd().useSeparateBackwardPhase(),
            {
                "execution_mode": 2,
                "separate_backward_phase": True,
                "tensors_liveness": 1,
                "serial_phases_execution": False,
            },
        ),
    ],
)
def test_strategies_name_their_native_options(
    strategy: _IExecutionStrategy, options: dict[str, Any]
) -> None:
    assert strategy.backendOptions() == options


# --- Which place a block gets ---


def test_stages_are_the_ipus_by_default() -> None:
    begun: Begun = [(None, 0), (None, 1), (None, 0)]
    assert [(p.block, p.stage, p.ipu) for p in places(PipelinedExecution(), begun)] == [
        ("0", 0, 0),
        ("1", 1, 1),
        ("2", 0, 0),
    ]


def test_stages_that_increment_begin_after_what_runs_before_the_first_block() -> None:
    strategy = PipelinedExecution(AutoStage.AutoIncrement)
    begun: Begun = [(None, 0), (None, 1), (None, 2), (None, 1), ("0", 0), ("x", None)]
    assert [(p.stage, p.ipu) for p in places(strategy, begun)] == [
        (1, 0),
        (2, 1),
        (3, 2),
        (4, 1),
        (1, 0),
        (5, 5),
    ]


def test_a_stage_like_its_ipu_needs_an_ipu() -> None:
    with pytest.raises(AssertionError, match="SameAsIpu was selected but no IPU .* for block A"):
        places(PipelinedExecution(), [("A", None)])


@pytest.mark.parametrize("kind", [PipelinedExecution, ShardedExecution, SerialPhasedExecution])
def test_a_block_that_the_strategy_does_not_name_is_refused_with_the_names_it_has(
    kind: Any,
) -> None:
    with pytest.raises(
        AssertionError, match=r"Unknown Block 'C' list of expected Blocks: \['A', 'B'\]"
    ):
        places(kind("A", "B"), [("C", 0)])


def test_the_strategys_ipu_wins_over_the_blocks_ipu_and_that_over_the_stage() -> None:
    strategy = PipelinedExecution(Stage("A").ipu(2), "B", "C")
    found = places(strategy, [("A", 7), ("B", 7), ("C", None)])
    assert [(p.stage, p.ipu) for p in found] == [(0, 2), (1, 7), (2, 2)]


def test_blocks_of_phases_need_an_ipu() -> None:
    with pytest.raises(Error, match="No active Block.*'A' of phase 0 has no IPU"):
        places(SerialPhasedExecution("A"), [("A", None)])
    assert places(SerialPhasedExecution("A", "B"), [("B", 0)]) == [Place("B", phase=1, ipu=0)]


def test_parallel_phases_alternate_between_even_and_odd_ipus() -> None:
    strategy = ParallelPhasedExecution([Stage("0"), Stage("1")], [Stage("2", "4"), Stage("3", "5")])
    strategy.phase(0).ipus(0, 2)
    strategy.phase(1).ipus(1, 3)
    found = places(strategy, [(None, None)] * 6)
    assert [(p.phase, p.ipu) for p in found] == [(0, 0), (0, 2), (1, 1), (1, 3), (1, 1), (1, 3)]
    with pytest.raises(Error, match="even phases must run on even IPUs"):
        places(ParallelPhasedExecution("A", "B"), [("A", 0), ("B", 2)])


# --- For any model and any strategy ---

blocks = st.one_of(st.none(), st.sampled_from("ABCD"))
sequences = st.lists(st.tuples(blocks, st.integers(0, 5)), max_size=12)


@given(sequences)
def test_automatic_stages_are_numbered_without_gaps_in_order_of_appearance(begun: Begun) -> None:
    found = places(PipelinedExecution(AutoStage.AutoIncrement), begun)
    first_seen = list(dict.fromkeys(place.stage for place in found))
    assert first_seen == list(range(1, len(first_seen) + 1))
    assert len({place.block for place in found}) == len(first_seen)
    assert [place.ipu for place in found] == [ipu for _, ipu in begun]


@given(sequences)
def test_a_block_stays_in_its_stage_and_follows_its_ipu(begun: Begun) -> None:
    stages: dict[str | None, int | None] = {}
    for place, (_, ipu) in zip(places(ShardedExecution(), begun), begun, strict=True):
        assert stages.setdefault(place.block, ipu) == place.stage
        assert place.ipu == ipu


@st.composite
def listed(draw: st.DrawFn) -> tuple[list[Stage], Begun]:
    """Stages that share out some blocks, and a model that uses these blocks."""
    names = draw(st.lists(st.sampled_from("ABCDEFG"), min_size=1, max_size=7, unique=True))
    cuts = draw(st.lists(st.booleans(), min_size=len(names), max_size=len(names)))
    groups: list[list[str]] = []
    for name, cut in zip(names, cuts, strict=True):
        if cut or not groups:
            groups.append([])
        groups[-1].append(name)
    stages = []
    for group in groups:
        ipu = draw(st.one_of(st.none(), st.integers(0, 7)))
        stages.append(Stage(*group) if ipu is None else Stage(*group).ipu(ipu))
    used = draw(st.lists(st.tuples(st.sampled_from(names), st.integers(0, 7)), max_size=10))
    return stages, list(used)


@given(listed())
def test_listed_stages_are_numbered_from_zero_in_the_order_given(case: Any) -> None:
    stages, begun = case
    number = {block: index for index, stage in enumerate(stages) for block in stage.blocks}
    strategy = PipelinedExecution(*stages)
    for place, (block, ipu) in zip(places(strategy, begun), begun, strict=True):
        own = strategy.stage(block)._ipu
        assert place == Place(block, stage=number[block], ipu=ipu if own is None else own)


@given(listed(), st.sampled_from(["pipelined", "sharded", "serial", "auto"]), st.booleans())
def test_a_described_strategy_comes_back_from_json_and_places_blocks_alike(
    case: Any, kind: str, separate: bool
) -> None:
    stages, begun = case
    strategy: _IExecutionStrategy
    if kind == "serial":
        strategy = SerialPhasedExecution(*stages).setTensorsLiveness(Liveness.OffChipAfterFwd)
        strategy.useSeparateBackwardPhase(separate)
    elif kind == "auto":
        strategy = PipelinedExecution(AutoStage.AutoIncrement)
    else:
        strategy = {"pipelined": PipelinedExecution, "sharded": ShardedExecution}[kind](*stages)
    again = from_description(json.loads(json.dumps(describe(strategy))))
    assert type(again) is type(strategy)
    assert describe(again) == describe(strategy)
    assert again.backendOptions() == strategy.backendOptions()
    for copied in (again, copy.deepcopy(strategy), pickle.loads(pickle.dumps(strategy))):
        assert places(copied, begun) == places(strategy, begun)


def test_a_description_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(Error, match="Unknown execution strategy 'Other'"):
        from_description({"kind": "Other"})


# --- What follows for the whole model ---


@given(st.lists(st.integers(-1, 6), max_size=12))
def test_ipus_are_counted_up_to_the_highest_and_stages_by_changes_of_ipu(ipus: list[int]) -> None:
    found = [OUTSIDE if ipu < 0 else Place(ipu=ipu) for ipu in ipus]
    inside = [ipu for ipu in ipus if ipu >= 0]
    assert ipus_needed([Place(), *found], PipelinedExecution()) == max(inside, default=0) + 1
    changes = sum(a != b for a, b in zip([0, *inside], inside, strict=False))
    assert forward_stages([Place(), *found]) == 1 + changes


def test_an_op_outside_all_blocks_is_refused_but_not_before_the_first() -> None:
    require_block(Place())
    require_block(Place("A", stage=0, ipu=0))
    with pytest.raises(Error, match="No active Block, all the ops must belong to a Block"):
        require_block(OUTSIDE)


def test_pipelined_training_needs_micro_batches_for_both_directions() -> None:
    check_pipeline(PipelinedExecution(), 4, True, 1, 7)
    with pytest.raises(
        Error,
        match=r"gradientAccumulation must be greater than or equal to the number of pipeline stages "
        r"\(7\) .* a model with 4 pipeline stages .* an additional 3 stages when training\.",
    ):
        check_pipeline(PipelinedExecution(), 4, True, 100, 6)


def test_pipelined_inference_needs_an_iteration_per_stage() -> None:
    check_pipeline(PipelinedExecution(), 4, False, 4, 1)
    with pytest.raises(
        Error, match=r"poptorch\.Options\(\)\.deviceIterations must be greater .* stages \(4\)"
    ):
        check_pipeline(PipelinedExecution(), 4, False, 3, 1)


@pytest.mark.parametrize("strategy", [ShardedExecution(), SerialPhasedExecution("A")])
@pytest.mark.parametrize("training", [True, False])
def test_strategies_without_a_pipeline_need_nothing(strategy: Any, training: bool) -> None:
    check_pipeline(strategy, 4, training, 1, 1)


# --- The log ---


def line(log: list[str], *parts: str) -> bool:
    return any(all(part in text for part in parts) for text in log)


def test_the_log_names_ops_as_popart_does_and_says_where_they_run() -> None:
    tensor = torch.zeros(10, 1)
    nodes = [
        Lowered("Mul", Place(), (tensor,)),
        Lowered("Mul", Place("1", stage=1, ipu=1), (tensor,)),
        Lowered("l1/Mul", Place("1", stage=1, ipu=1), (tensor,)),
        ("Relu", Place("1", stage=1, ipu=1)),
    ]
    log = log_lines(nodes, PipelinedExecution())
    assert line(log, " Mul:0 ", "[float32(10, 1), mode(Pipelined), ipu(0), stage(0)]")
    assert line(log, " Mul:0/1 ", " mode(Pipelined), ipu(1), stage(1)")
    assert line(log, " l1/Mul:0 ", " mode(Pipelined), ipu(1), stage(1)")
    assert line(log, " Relu:0 ", " mode(Pipelined), ipu(1), stage(1)")
    assert line(log_lines(nodes, ShardedExecution()), " Mul:0/1 ", " mode(Sharded), ipu(1)")


def test_ops_with_several_outputs_are_one_line_but_slices_are_one_each() -> None:
    pair = (torch.zeros(2, dtype=torch.float16), torch.zeros(3, dtype=torch.int32))
    log = log_lines([Lowered("Topk", Place(), pair)], PipelinedExecution())
    assert line(log, " Topk:0, Topk:1 [float16(2), int32(3), mode(Pipelined)")
    log = log_lines([Lowered("Slice", Place(), pair)], PipelinedExecution())
    assert line(log, " Slice:0 [float16(2), mode(")
    assert line(log, " Slice:0/1 [int32(3), mode(")


def test_an_l1_loss_is_logged_as_the_ops_that_popart_has_for_it() -> None:
    place, many, one = Place("A", phase=1, ipu=3), torch.zeros(10, 1), torch.zeros(())
    nodes = [
        Lowered("Sub", place, (many,)),
        Lowered("Abs", place, (many,)),
        Lowered("ReduceMean", place, (one,), loss=True),
    ]
    log = log_lines(nodes, ParallelPhasedExecution("B", "A"))
    assert line(log, "Sub:0 [float32(10, 1), mode(Phased), ipu(3), phase(1)]")
    assert line(log, "L1:0 [float32(), mode(Phased), ipu(3), phase(1)]")
    assert line(log, "IdentityLoss:0 [float32(), mode(Phased), ipu(3), phase(1)]")


@pytest.mark.parametrize(
    ("liveness", "phases", "stride"),
    [
        (Liveness.AlwaysLive, 3, 1),
        (Liveness.OffChipAfterFwd, 6, 1),
        (Liveness.OffChipAfterFwdNoOverlap, 8, 2),
        (Liveness.OffChipAfterEachPhase, 12, 4),
    ],
)
def test_phases_on_the_device_are_spaced_by_how_long_tensors_stay(
    liveness: Liveness, phases: int, stride: int
) -> None:
    strategy = SerialPhasedExecution("A", "B", "C").setTensorsLiveness(liveness)
    found = places(strategy, [("A", 0), ("B", 0), ("C", 0)])
    settings = setting_lines(found, strategy)
    assert f"executionPhaseSettings.phases set to value {phases}" in settings
    assert "executionPhaseSettings.stages set to value 1" in settings
    assert "location_activation set to value useOnChipStorage(False)" in settings
    log = log_lines([("Relu", place) for place in found], strategy)
    assert [int(n) for n in re.findall(r"phase\((\d+)\)", "".join(log))] == [0, stride, 2 * stride]


def test_a_separate_backward_phase_adds_one() -> None:
    strategy = ParallelPhasedExecution("A", "B").useSeparateBackwardPhase()
    settings = setting_lines(places(strategy, [("A", 0), ("B", 1)]), strategy)
    assert "executionPhaseSettings.phases set to value 3" in settings
    assert "executionPhaseSettings.stages set to value 2" in settings
    assert "enablePipelining set to value 0" in settings


@pytest.mark.parametrize(
    ("strategy", "ipus", "value"),
    [
        (PipelinedExecution(), [0, 0], 0),
        (PipelinedExecution(), [0, 1], 1),
        (PipelinedExecution(), [1, 1], 0),
        (ShardedExecution(), [0, 1], 0),
    ],
)
def test_pipelining_is_on_when_a_pipelined_model_uses_several_ipus(
    strategy: _IExecutionStrategy, ipus: list[int], value: int
) -> None:
    found = places(strategy, [(None, ipu) for ipu in ipus])
    assert f"enablePipelining set to value {value}" in setting_lines(found, strategy)


def test_native_names_come_from_the_table_or_from_the_spelling() -> None:
    aten = ["mm", "mul", "relu", "t", "split", "_log_softmax", "native_dropout", "sum"]
    native = [
        "MatMul",
        "Mul",
        "Relu",
        "Transpose",
        "Slice",
        "LogSoftmax",
        "NativeDropout",
        "ReduceSum",
    ]
    assert [native_name(name) for name in aten] == native
