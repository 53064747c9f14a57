"""`for_loop` and `cond`: Python runs once, the graph does the rest, and results equal plain Python."""

from __future__ import annotations

import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ops_capture import captured

from poptorch import Error, _ops_control, cond, for_loop, ipu_print_tensor, nop
from poptorch._context import Capture, capturing

TRUE, FALSE = torch.tensor([True]), torch.tensor([False])


@pytest.fixture
def long_loops_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every loop as too long to write out."""
    monkeypatch.setattr(_ops_control, "WRITTEN_OUT_CALLS", 0)
    monkeypatch.setattr(_ops_control, "WRITTEN_OUT_ITERATIONS", 0)


@pytest.fixture(params=["written out", "as one operator"])
def either_way(request: pytest.FixtureRequest) -> str:
    if request.param == "as one operator":
        request.getfixturevalue("long_loops_only")
    return str(request.param)


# --- for_loop ---------------------------------------------------------------------------------


def test_a_loop_outside_a_capture_is_a_plain_loop() -> None:
    x = torch.tensor([1.0])
    assert for_loop(10, lambda t: t * 2, [x])[0] == 2**10
    assert x == 1


def test_a_captured_loop_calls_its_body_once_and_computes_all_iterations(either_way: str) -> None:
    calls = []

    def model(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        def body(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            calls.append(1)
            return torch.tanh(a * y), b + a

        return for_loop(7, body, [x, y])

    x, y = torch.randn(3), torch.randn(3)
    graph = captured(model, x, y)
    assert len(calls) == 1
    assert torch.equal(torch.stack(graph(x, y)), torch.stack(model(x, y)))
    assert len(calls) == 8
    assert ("poptorch.repeat.default" in graph.targets) == (either_way == "as one operator")


def test_a_loop_uses_parameters_and_values_of_the_code_around_it(either_way: str) -> None:
    layer = torch.nn.Linear(4, 4)

    def model(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        shift = scale + 1
        return for_loop(3, lambda t: layer(t) * scale + shift, [x])[0]

    x, scale = torch.randn(2, 4), torch.randn(())
    with torch.no_grad():
        assert torch.equal(captured(model, x, scale)(x, scale), model(x, scale))


def test_the_body_gets_copies_that_it_may_change_in_place(either_way: str) -> None:
    def body(y: torch.Tensor) -> torch.Tensor:
        y += 1
        y *= 2
        return y

    def model(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return for_loop(3, body, [x])[0], x + 0

    x = torch.ones(2)
    after, before = captured(model, x)(x)
    assert torch.equal(after, torch.full((2,), 22.0))
    assert torch.equal(before, torch.ones(2))
    assert torch.equal(x, torch.ones(2))


def test_one_output_given_twice_does_not_tie_the_copies_together(either_way: str) -> None:
    def body(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a += b
        return a, a

    def model(x: torch.Tensor) -> list[torch.Tensor]:
        return for_loop(4, body, [x, x])

    x = torch.tensor([1.0])
    assert [t.item() for t in captured(model, x)(x)] == [16.0, 16.0]


def test_the_outputs_of_a_loop_are_tensors_of_their_own(either_way: str) -> None:
    def model(x: torch.Tensor) -> list[torch.Tensor]:
        y = x + 1
        first, second, third = for_loop(3, lambda a, b, c: (y, a, a), [x, x, x])
        second += 10
        return [first, second, third, y]

    x = torch.tensor([1.0])
    assert [t.item() for t in captured(model, x)(x)] == [2, 12, 2, 2]


def test_a_short_loop_may_change_tensors_from_outside(long_loops_only: None) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(x)

        def body(t: torch.Tensor) -> torch.Tensor:
            total.add_(t)
            return t + 1

        for_loop(3, body, [x])
        return total

    x = torch.tensor([1.0])
    with pytest.raises(Error, match="changes a tensor from outside in place"):
        captured(model, x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_ops_control, "WRITTEN_OUT_CALLS", 100)
        assert captured(model, x)(x) == 1 + 2 + 3


def test_a_thousand_iterations_stay_a_small_graph_that_can_be_saved() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        def body(t: torch.Tensor) -> torch.Tensor:
            for _ in range(5):
                t = torch.sin(t) + 0.5
            return t * torch.ones(3, dtype=torch.float32)

        return for_loop(1000, body, [x])[0]

    x = torch.randn(3)
    graph = captured(model, x)
    assert len(graph.targets) < 30
    reloaded = pickle.loads(pickle.dumps(graph.graph))
    assert torch.equal(reloaded(x), model(x))


def test_a_long_loop_with_random_numbers_is_known_to_be_random(long_loops_only: None) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return for_loop(3, lambda t: t + torch.rand_like(t), [x])[0]

    x = torch.zeros(2)
    graph = captured(model, x)
    operators = [node.target for node in graph.graph.graph.nodes if "repeat" in str(node.target)]
    assert torch.Tag.nondeterministic_seeded in operators[0].tags
    torch.manual_seed(3)
    first = graph(x)
    torch.manual_seed(3)
    assert torch.equal(model(x), first)


def test_micro_batches_loop_on_their_own(either_way: str) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return for_loop(4, lambda t: t / (1 + t.square().sum()), [x])[0]

    rows = torch.randn(5, 3)
    expected = torch.stack([model(row) for row in rows])
    torch.testing.assert_close(captured(model, rows[0]).mapped(rows), expected)


def test_no_iterations_return_the_inputs() -> None:
    x = torch.randn(2)
    assert torch.equal(captured(lambda t: for_loop(0, lambda a: a * 2, [t])[0], x)(x), x)
    assert torch.equal(for_loop(0, lambda a: a * 2, [x])[0], x)


def test_loops_nest(either_way: str) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        def outer(t: torch.Tensor) -> torch.Tensor:
            return for_loop(3, lambda u: u * x, [t])[0] + 1

        return for_loop(2, outer, [x])[0]

    x = torch.tensor([2.0])
    assert captured(model, x)(x) == model(x)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (torch.ones(1), "Object is not list"),
        ([torch.ones(1), 5], "Object contained in list at index 1 is not torch.tensor"),
    ],
)
def test_inputs_must_be_a_list_of_tensors(inputs: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        for_loop(10, lambda *t: t, inputs)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [-1, 2.0, True, torch.tensor(3)])
def test_the_count_must_be_a_number(count: object) -> None:
    with pytest.raises(ValueError, match="count"):
        for_loop(count, lambda t: t, [torch.ones(1)])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda t: (t, t), "returned 2 tensors but takes 1"),
        (lambda t: t[:1], r"output 0 .* shape \(1,\) but input 0 .* shape \(2,\)"),
        (lambda t: t.int(), "torch.int32"),
        (lambda t: 3, "must return tensors"),
    ],
)
def test_what_the_body_returns_must_fit_its_inputs(body: object, message: str) -> None:
    with pytest.raises(Error, match=message):
        for_loop(2, body, [torch.ones(2)])  # type: ignore[arg-type]


def test_training_has_no_loops_and_no_branches() -> None:
    x = torch.ones(1)
    with capturing(Capture(training=True, options=None)):
        with pytest.raises(Error, match=r"poptorch.for_loop\(\) is only supported in inference"):
            for_loop(2, lambda t: t, [x])
        with pytest.raises(Error, match=r"poptorch.cond\(\) is only supported in inference"):
            cond(TRUE, lambda t: t, [x], lambda t: t, [x])


@settings(max_examples=15, deadline=None)
@given(count=st.integers(0, 12), rows=st.integers(1, 3), scale=st.floats(-1.5, 1.5))
def test_any_loop_equals_the_same_loop_in_python(count: int, rows: int, scale: float) -> None:
    def body(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return b - a * scale, nop(a.t().t()) + b.mean()

    a, b = torch.randn(rows, 2), torch.randn(rows, 2)
    expected = [a, b]
    for _ in range(count):
        expected = list(body(*expected))
    actual = captured(lambda p, q: for_loop(count, body, [p, q]), a, b)(a, b)
    torch.testing.assert_close(actual, expected)


# --- cond -------------------------------------------------------------------------------------


@pytest.mark.parametrize("condition", [TRUE, FALSE, torch.tensor(True), torch.tensor([[0.0]])])
def test_a_branch_is_chosen_at_run_time(condition: torch.Tensor) -> None:
    def model(c: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return cond(c, lambda a: (a + y, y), [x], lambda: (x * y, x - y), [])

    x, y = torch.randn(2), torch.randn(2)
    other = condition.logical_not().to(condition.dtype)
    graph = captured(model, other, x, y)
    for value in (condition, other):
        assert torch.equal(torch.stack(graph(value, x, y)), torch.stack(model(value, x, y)))


def test_the_branch_not_taken_does_not_spoil_the_result() -> None:
    def model(c: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return cond(c, lambda: 1 / x, [], lambda: x, [])[0]

    x = torch.zeros(2)
    assert torch.equal(captured(model, FALSE, x)(FALSE, x), x)


def test_conditions_nest() -> None:
    def model(c: torch.Tensor, d: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        def inner() -> torch.Tensor:
            return cond(d, lambda: x + 1, [], lambda: x + 2, [])[0]

        return cond(c, inner, [], lambda t: t + 3, [x])[0]

    x = torch.zeros(1)
    graph = captured(model, TRUE, TRUE, x)
    results = {(c, d): graph(c, d, x).item() for c in (TRUE, FALSE) for d in (TRUE, FALSE)}
    assert list(results.values()) == [1, 2, 3, 3]


def test_only_the_branch_taken_prints(capfd: pytest.CaptureFixture[str]) -> None:
    def model(c: torch.Tensor, d: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        def inner() -> torch.Tensor:
            return cond(
                d, lambda: ipu_print_tensor(x, "deep"), [], lambda: ipu_print_tensor(x, "flat"), []
            )[0]

        return cond(c, inner, [], lambda: ipu_print_tensor(x, "else"), [])[0]

    x = torch.ones(1)
    graph = captured(model, TRUE, TRUE, x)
    for values in ((TRUE, TRUE), (TRUE, FALSE), (FALSE, TRUE)):
        graph(*values, x)
    words = [line.split(":")[0] for line in capfd.readouterr().err.splitlines()]
    assert words == ["deep", "flat", "else"]


def test_branches_get_copies_of_their_inputs() -> None:
    def model(c: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return cond(c, lambda t: t.add_(t), [x], lambda t: t, [x])[0], x + 0

    x = torch.tensor([3.0])
    result, after = captured(model, TRUE, x)(TRUE, x)
    assert (result.item(), after.item(), x.item()) == (6, 3, 3)


@pytest.mark.parametrize("through_view", [False, True])
def test_a_branch_that_changes_an_outer_tensor_is_an_error(through_view: bool) -> None:
    def model(c: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return cond(c, lambda: (x[:1] if through_view else x).add_(1), [], lambda: x[:1], [])[0]

    with pytest.raises(Error, match="then_body changes a tensor from outside"):
        captured(model, TRUE, torch.ones(1))


def test_batch_statistics_in_a_branch_are_an_error() -> None:
    mean, variance = torch.zeros(3), torch.ones(3)

    def model(c: torch.Tensor, x: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        normed = lambda: torch.nn.functional.batch_norm(x, m, v, training=True)  # noqa: E731
        return cond(c, lambda: x, [], normed, [])[0]

    with pytest.raises(Error, match="else_body changes a tensor from outside"):
        captured(model, TRUE, torch.randn(4, 3), mean, variance)


def test_the_first_branch_takes_the_shape_of_the_second() -> None:
    def model(c: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return cond(c, lambda: x.reshape(4), [], lambda: x, [])[0]

    x = torch.randn(2, 2)
    assert captured(model, TRUE, x)(TRUE, x).shape == (2, 2)


@pytest.mark.parametrize(
    ("otherwise", "message"),
    [
        (lambda x: [x, x], "then_body returned 1 tensors but else_body 2"),
        (lambda x: x[:1], r"shape \(2,\) .*shape \(1,\)"),
        (lambda x: None, "else_body must return tensors"),
    ],
)
def test_branches_must_return_the_same_kinds_of_output(otherwise: object, message: str) -> None:
    with pytest.raises(Error, match=message):
        captured(lambda c, x: cond(c, lambda t: t, [x], otherwise, [x]), TRUE, torch.ones(2))  # type: ignore[arg-type]


def test_a_condition_of_several_values_is_an_error() -> None:
    with pytest.raises(Error, match="must hold one value"):
        captured(lambda x: cond(x > 0, lambda: x, [], lambda: x, []), torch.ones(2))


def test_branch_inputs_must_be_lists() -> None:
    with pytest.raises(ValueError, match="Object is not list"):
        cond(TRUE, lambda t: t, torch.ones(1), lambda: 0, [])  # type: ignore[arg-type]


def test_micro_batches_choose_on_their_own() -> None:
    def model(c: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return cond(c, lambda: x + 1, [], lambda: x - 1, [])[0]

    conditions, rows = torch.tensor([[True], [False], [True]]), torch.zeros(3, 2)
    result = captured(model, conditions[0], rows[0]).mapped(conditions, rows)
    assert result[:, 0].tolist() == [1, -1, 1]
