"""Blocks and name scopes: what they tell a capture, what they leave on modules, how that prints."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from poptorch import _printing
from poptorch._blocks import (
    BeginBlock,
    Block,
    BlockFunction,
    LegacyBeginBlockFn,
    NameScope,
    removeBlocks,
)
from poptorch._context import Capture, Place, capturing
from poptorch._errors import Error
from poptorch._printing import module_repr
from poptorch._strategies import (
    OUTSIDE,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    forward_stages,
)
from poptorch.enums import AutoStage
from poptorch.testing import allclose


class Probe(torch.nn.Module):
    """A layer that writes down where it runs."""

    def __init__(self, seen: list[Place], capture: Callable[[], Capture]) -> None:
        super().__init__()
        self.seen = seen
        self.capture = capture

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(self.capture().place)
        return x


@pytest.fixture
def capture() -> Capture:
    return new_capture()


def new_capture(strategy: Any = None) -> Capture:
    options = SimpleNamespace(_execution_strategy=strategy or PipelinedExecution())
    return Capture(training=False, options=options)


# --- Blocks ---


def test_outside_a_capture_blocks_and_scopes_do_nothing() -> None:
    layer = BeginBlock(torch.nn.Identity(), "a")
    Block.useAutoId()
    Block.start("b")
    with Block("c"), NameScope("d"):
        assert torch.equal(layer(torch.ones(2)), torch.ones(2))
    assert BlockFunction("e")(lambda x: x + 1)(1) == 2
    assert BeginBlock(lambda x: x + 1, "f")(1) == 2


def test_a_scoped_block_ends_and_leaves_no_block(capture: Capture) -> None:
    with capturing(capture):
        assert capture.place == Place()
        with Block("A", ipu_id=1):
            assert capture.place == Place("A", stage=1, ipu=1)
        assert capture.place == OUTSIDE


def test_scoped_blocks_do_not_nest(capture: Capture) -> None:
    with capturing(capture), Block("A", ipu_id=0):
        with Block("B", ipu_id=1):
            assert capture.place.block == "B"
        assert capture.place == OUTSIDE


def test_a_started_block_lasts_until_the_next(capture: Capture) -> None:
    with capturing(capture):
        Block.start(ipu_id=0)
        assert capture.place == Place("0", stage=0, ipu=0)
        Block.start(ipu_id=3)
        assert capture.place == Place("1", stage=3, ipu=3)
    assert forward_stages(capture.places) == 2


def test_automatic_ids_start_again_on_request(capture: Capture) -> None:
    with capturing(capture):
        for _ in range(2):
            Block.useAutoId()
            found = []
            for user_id in (None, "special", None):
                Block.start(user_id, ipu_id=0)
                found.append(capture.place.block)
            assert found == ["0", "special", "1"]


def test_an_annotated_module_begins_a_block_that_lasts_until_the_next(capture: Capture) -> None:
    seen: list[Place] = []
    layers = torch.nn.Sequential(*(Probe(seen, lambda: capture) for _ in range(4)))
    BeginBlock(layers[1], ipu_id=1)
    BeginBlock(layers[3], "end", ipu_id=2)
    with capturing(capture):
        layers(torch.ones(1))
    assert seen == [Place(), *[Place("0", stage=1, ipu=1)] * 2, Place("end", stage=2, ipu=2)]


def test_an_annotated_module_begins_its_block_before_its_parts(capture: Capture) -> None:
    seen: list[Place] = []
    inner = torch.nn.Sequential(*(Probe(seen, lambda: capture) for _ in range(2)))
    BeginBlock(inner, "outer", ipu_id=0)
    BeginBlock(inner[1], "inner", ipu_id=1)
    with capturing(capture):
        torch.nn.Sequential(inner, Probe(seen, lambda: capture))(torch.ones(1))
    assert [place.block for place in seen] == ["outer", "inner", "inner"]


def test_a_layer_that_is_called_twice_is_one_block() -> None:
    seen: list[Place] = []
    capture = new_capture(PipelinedExecution(AutoStage.AutoIncrement))
    shared = BeginBlock(Probe(seen, lambda: capture), ipu_id=0)
    other = BeginBlock(Probe(seen, lambda: capture), ipu_id=1)
    function = BeginBlock(shared.forward, ipu_id=2)
    with capturing(capture):
        for layer in (shared, other, function, shared, function):
            layer(torch.ones(1))
    assert [(p.block, p.stage) for p in seen] == [("0", 1), ("1", 2), ("2", 3), ("0", 1), ("2", 3)]


def test_a_model_captured_again_is_numbered_alike() -> None:
    seen: list[Place] = []
    strategy = PipelinedExecution(AutoStage.AutoIncrement)
    capture = new_capture(strategy)
    layer = BeginBlock(Probe(seen, lambda: capture), ipu_id=0)
    for _ in range(2):
        capture = new_capture(strategy)
        strategy.onStartTracing()
        with capturing(capture):
            with Block(ipu_id=1):
                seen.append(capture.place)
            layer(torch.ones(1))
        strategy.onEndTracing()
    assert seen[:2] == seen[2:]
    assert [place.stage for place in seen[:2]] == [1, 2]
    assert "user_id=None" in module_repr(layer)


def test_a_capture_whose_end_nobody_told_leaves_no_numbers_behind() -> None:
    strategy = PipelinedExecution(AutoStage.AutoIncrement)
    for _ in range(2):
        capture = new_capture(strategy)
        strategy.onStartTracing()
        with capturing(capture):
            Block.start(ipu_id=1)
        assert capture.place == Place("0", stage=1, ipu=1)


def test_a_decorated_function_is_a_block_at_each_call(capture: Capture) -> None:
    @BlockFunction("f", ipu_id=1)
    def double(x: int) -> int:
        """Doubles."""
        assert capture.place == Place("f", stage=1, ipu=1)
        return 2 * x

    with capturing(capture):
        assert double(4) == 8
        assert capture.place == OUTSIDE
    assert (double.__name__, double.__doc__) == ("double", "Doubles.")


def test_unknown_blocks_stop_the_capture() -> None:
    capture = new_capture(ShardedExecution("A"))
    with capturing(capture), pytest.raises(AssertionError, match="Unknown Block 'B'"), Block("B"):
        pass


def test_blocks_of_phases_know_their_phase() -> None:
    capture = new_capture(SerialPhasedExecution("A", "B"))
    with capturing(capture), Block("B", ipu_id=0):
        assert capture.place == Place("B", phase=1, ipu=0)


events = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.one_of(st.none(), st.sampled_from("AB")), st.integers(0, 3)),
        st.tuples(st.just("with"), st.one_of(st.none(), st.sampled_from("AB")), st.integers(0, 3)),
        st.tuples(st.just("reset"), st.none(), st.just(0)),
    ),
    max_size=15,
)


@given(events, st.sampled_from(AutoStage))
def test_any_sequence_of_blocks_is_placed_as_a_plain_model_says(
    steps: Any, auto: AutoStage
) -> None:
    capture = new_capture(PipelinedExecution(auto))
    known: dict[str, int] = {}
    unnamed = 0
    with capturing(capture):
        for what, block, ipu in steps:
            if what == "reset":
                Block.useAutoId()
                unnamed = 0
                continue
            name = block or str(unnamed)
            unnamed += block is None
            stage = known.setdefault(name, ipu if auto == AutoStage.SameAsIpu else len(known) + 1)
            expected = Place(name, stage=stage, ipu=ipu)
            if what == "start":
                Block.start(block, ipu)
                assert capture.place == expected
            else:
                with Block(block, ipu):
                    assert capture.place == expected
                assert capture.place == OUTSIDE


# --- What BeginBlock leaves on modules ---


def test_annotating_returns_the_same_module_with_the_same_state() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 3))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert BeginBlock(model[0], ipu_id=1) is model[0]
    assert type(model[0]) is torch.nn.Linear
    model.load_state_dict(before, strict=True)
    assert allclose(dict(model.state_dict()), before)


def test_a_module_is_annotated_once_until_its_blocks_are_removed() -> None:
    model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Sequential(torch.nn.ReLU()))
    calls: list[str] = []
    model[0].register_forward_pre_hook(lambda *_: calls.append("mine"))
    BeginBlock(model[0], ipu_id=0)
    BeginBlock(model[1][0], ipu_id=1)
    with pytest.raises(Error, match="module has already been assigned to a block"):
        BeginBlock(model[0], ipu_id=1)
    removeBlocks(model)
    assert "BeginBlock" not in module_repr(model)
    model(torch.ones(1))
    assert calls == ["mine"]
    BeginBlock(model[0], ipu_id=0)


@pytest.mark.parametrize("ipu", [-1, "1", 0.0])
def test_a_block_is_on_an_ipu_that_can_be(capture: Capture, ipu: Any) -> None:
    layer = BeginBlock(torch.nn.Identity(), "a", ipu_id=ipu)
    with capturing(capture), pytest.raises(Error, match="ipu_id must be a whole number from 0"):
        layer(torch.ones(1))
    with pytest.raises(Error, match=f"not {ipu!r}"), Block("a", ipu_id=ipu):
        pass


def test_what_is_no_module_and_no_function_cannot_begin_a_block() -> None:
    with pytest.raises(Error, match=r"module is not an instance of torch.nn.Module or function\."):
        BeginBlock(3)
    with pytest.raises(AssertionError):
        removeBlocks("model")  # type: ignore[arg-type]


def test_annotations_survive_copies_and_pickles() -> None:
    model = torch.nn.Sequential(BeginBlock(torch.nn.ReLU(), "r", ipu_id=2))
    for twin in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert "(0): BeginBlock(user_id=r, ipu_id=2) ReLU()" in module_repr(twin)
    removeBlocks(copy.deepcopy(model))
    assert "BeginBlock" in module_repr(model)


def add_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def test_a_function_becomes_a_module_that_can_be_saved(capture: Capture) -> None:
    block = BeginBlock(add_one, 1, 2)
    assert isinstance(block, LegacyBeginBlockFn)
    assert (block._user_id, block._ipu_id) == (1, 2)
    buffer = io.BytesIO()
    torch.save(block, buffer)
    buffer.seek(0)
    again = torch.load(buffer, weights_only=False)
    with capturing(capture):
        assert again(torch.zeros(1)).item() == 1
        assert capture.place == Place("1", stage=2, ipu=2)


# --- Name scopes ---


def test_name_scopes_are_a_stack(capture: Capture) -> None:
    with capturing(capture):
        with NameScope("a"):
            with NameScope("b"):
                assert capture.scopes == ["a", "b"]
            assert capture.scopes == ["a"]
        assert capture.scopes == []


def test_a_name_scope_has_a_name() -> None:
    with pytest.raises(AssertionError, match="Parameter to NameScope must be a string"):
        NameScope(3)  # type: ignore[arg-type]


# --- Printing ---


def model() -> torch.nn.Module:
    inner = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    return torch.nn.Sequential(inner, torch.nn.ModuleList([torch.nn.Tanh(), torch.nn.Tanh()]))


def test_a_model_without_blocks_prints_as_pytorch_prints_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert module_repr(model()) == repr(model())
    _printing.print(model())
    _printing.print("anything")
    assert capsys.readouterr().out == f"{model()}\nanything\n"


def test_blocks_print_in_front_of_the_module_that_begins_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    annotated = model()
    BeginBlock(annotated[0], "A", ipu_id=0)  # type: ignore[index]
    BeginBlock(annotated[1][1], ipu_id=1)  # type: ignore[index]
    _printing.print(annotated)
    assert capsys.readouterr().out == (
        "Sequential(\n"
        "  (0): BeginBlock(user_id=A, ipu_id=0) Sequential(\n"
        "    (0): Linear(in_features=2, out_features=3, bias=True)\n"
        "    (1): ReLU()\n"
        "  )\n"
        "  (1): ModuleList(\n"
        "    (0): Tanh()\n"
        "    (1): BeginBlock(user_id=None, ipu_id=1) Tanh()\n"
        "  )\n"
        ")\n"
    )


def test_a_part_that_is_missing_prints_as_none() -> None:
    holder = torch.nn.Module()
    holder.register_module("gone", None)
    assert module_repr(BeginBlock(holder, "A")).endswith("Module(\n  (gone): None\n)")


# --- testing.allclose ---


def test_allclose_compares_structure_and_values() -> None:
    one, two = torch.ones(2), torch.full((2,), 2.0)
    assert allclose((one, [two, {"a": one}]), (one + 1e-9, [two, {"a": one}]))
    assert not allclose(one, two)
    assert not allclose((one, two), [one, two])
    assert not allclose([one], [one, two])
    assert not allclose([one, two], [one, one])
    assert not allclose({"a": one}, {"b": one})
    assert not allclose(one, "text")
    with pytest.raises(TypeError, match="not supported"):
        allclose("text", "text")
