"""Layers run through `paddle.jit.to_static` as IPU programs."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from paddle.static import IpuStrategy

from softipu.errors import InvalidIpuOption, PaddleTrainingInvalid
from softipu.frontends.paddle.backend import IpuBackend
from softipu.frontends.paddle.program import program_of

STEPS = 8


class Classifier(paddle.nn.Layer):
    def __init__(self, marks_loss: bool) -> None:
        super().__init__()
        self.conv = paddle.nn.Conv2D(3, 2, 2)
        self.marks_loss = marks_loss

    @paddle.jit.to_static(full_graph=True)
    def forward(self, x: Any, target: Any = None) -> Any:
        x = paddle.nn.functional.softmax(paddle.flatten(self.conv(x), 1, -1))
        if target is None:
            return x
        loss = paddle.nn.functional.cross_entropy(x, target, reduction="none", use_softmax=False)
        if self.marks_loss:
            return x, paddle.incubate.identity_loss(loss, 1)
        return x, paddle.mean(loss)


def batch() -> tuple[Any, Any]:
    random = np.random.RandomState(0)
    x = paddle.to_tensor(random.rand(8, 3, 6, 6).astype("float32"))
    return x, paddle.to_tensor(random.randint(0, 10, [8]))


def train(on_ipu: bool, marks_loss: bool = True, rate: Any = 0.05) -> tuple[list[float], Any]:
    paddle.seed(1)
    with paddle.utils.unique_name.guard():
        model = Classifier(marks_loss)
    optimizer = paddle.optimizer.Adam(rate, parameters=model.parameters())
    strategy = None
    if on_ipu:
        strategy = IpuStrategy()
        strategy.set_graph_config(is_training=True)
        strategy.set_optimizer(optimizer)
    losses = []
    try:
        for _ in range(STEPS):
            _, loss = model(*batch())
            losses.append(float(loss))
            if not on_ipu:
                loss.backward()
                optimizer.step()
                optimizer.clear_grad()
            if not isinstance(rate, float):
                rate.step()
    finally:
        if strategy is not None:
            strategy.release_patch()
    return losses, model


@pytest.mark.parametrize("marks_loss", [True, False])
def test_a_traced_layer_trains_as_in_a_dynamic_graph(marks_loss: bool) -> None:
    on_ipu, model = train(True, marks_loss)
    on_cpu, reference = train(False, marks_loss)
    np.testing.assert_allclose(on_ipu, on_cpu, rtol=1e-5)
    assert on_ipu[-1] < on_ipu[0]
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-6)


def test_a_schedule_sets_the_rate() -> None:
    def schedule() -> Any:
        return paddle.optimizer.lr.StepDecay(0.05, step_size=2, gamma=0.1)

    on_ipu, _ = train(True, rate=schedule())
    on_cpu, _ = train(False, rate=schedule())
    np.testing.assert_allclose(on_ipu, on_cpu, rtol=1e-5)


def _again(strategy: Any, model: Any, optimizer: Any, how: str) -> tuple[Any, Any, Any]:
    """Has the model compiled anew in one of the ways in which programs do."""
    if how == "by an option":
        strategy.set_graph_config(is_training=True)
    elif how == "after inference":
        strategy.set_graph_config(is_training=False)
        model(batch()[0])
        strategy.set_graph_config(is_training=True)
    else:
        strategy.release_patch()
        strategy = IpuStrategy()
        strategy.set_graph_config(is_training=True)
        if how == "from saved states":
            states = model.state_dict(), optimizer.state_dict()
            states = tuple({name: np.array(v) for name, v in part.items()} for part in states)
            model, optimizer = _model_and(type(optimizer))
            model.set_state_dict(states[0])
            optimizer.set_state_dict(states[1])
        strategy.set_optimizer(optimizer)
    return strategy, model, optimizer


def _model_and(optimizer: Any) -> tuple[Any, Any]:
    paddle.seed(1)
    with paddle.utils.unique_name.guard():
        model = Classifier(False)
    return model, optimizer(0.05, parameters=model.parameters())


@pytest.mark.parametrize("optimizer", [paddle.optimizer.Adam, paddle.optimizer.Momentum])
@pytest.mark.parametrize(
    "how", ["by an option", "after inference", "by a new strategy", "from saved states"]
)
def test_states_of_the_optimizer_outlive_compilations(how: str, optimizer: Any) -> None:
    losses = []
    for recompiles in (False, True):
        model, used = _model_and(optimizer)
        strategy = IpuStrategy()
        strategy.set_graph_config(is_training=True)
        strategy.set_optimizer(used)
        found = []
        try:
            for step in range(STEPS):
                if recompiles and step in (2, 4):
                    strategy, model, used = _again(strategy, model, used, how)
                found.append(float(model(*batch())[1]))
        finally:
            strategy.release_patch()
        losses.append(found)
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


def test_a_layer_infers(tmp_path: Path) -> None:
    paddle.seed(1)
    model = Classifier(False)
    x, _ = batch()
    expected = model(x).numpy()
    strategy = IpuStrategy()
    try:
        strategy.set_graph_config(is_training=False)
        found = model(x)
        assert isinstance(found, paddle.Tensor)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    finally:
        strategy.release_patch()


@pytest.mark.parametrize("full_graph", [None, False, True])
@pytest.mark.parametrize("decorated", [True, False])
def test_layers_run_on_ipus_whatever_graph_was_asked_for(
    full_graph: bool | None, decorated: bool
) -> None:
    asked = {} if full_graph is None else {"full_graph": full_graph}
    to_static = functools.partial(paddle.jit.to_static, **asked)

    class Layer(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.linear = paddle.nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            return paddle.tanh(self.linear(x))

    if decorated:
        Layer.forward = to_static(Layer.forward)
    layer = Layer()
    x = paddle.ones([3, 4])
    expected = paddle.tanh(layer.linear(x)).numpy()
    IpuBackend.get_instance().reset()
    strategy = IpuStrategy()
    try:
        strategy.set_graph_config(is_training=False)
        traced = layer if decorated else to_static(layer)
        np.testing.assert_allclose(traced(x).numpy(), expected, rtol=1e-6)
        assert IpuBackend.get_instance().ipu_ids
    finally:
        strategy.release_patch()


class Mixed(paddle.nn.Layer):
    """Takes and returns what `form` says."""

    def __init__(self, form: str) -> None:
        super().__init__()
        paddle.seed(1)
        self.linear = paddle.nn.Linear(4, 2)
        self.form = form

    def forward(self, x: Any, squash: bool = True, scale: float = 2.0) -> Any:
        y = self.linear(x) * scale
        if squash:
            y = paddle.tanh(y)
        if self.form == "tensor":
            return y
        if self.form == "pair":
            return y, paddle.mean(y)
        if self.form == "list of one":
            return [y]
        if self.form == "dictionary":
            return {"loss": paddle.mean(y), "others": [y, 3, None]}
        if self.form == "marked dictionary":
            return {"loss": paddle.incubate.identity_loss(y, 1), "others": y}
        if self.form == "dictionary before the loss":
            return {"a": y, "b": y + 1}, paddle.mean(y)
        return {"loss": paddle.mean(y)}


def on_ipus(model: Any, training: bool = False) -> Any:
    strategy = IpuStrategy()
    strategy.set_graph_config(is_training=training)
    if training:
        optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters())
        strategy.set_optimizer(optimizer)
    return strategy


def plain(values: Any) -> Any:
    """With arrays for tensors, for pytest to compare."""
    return paddle.utils.map_structure(
        lambda value: value.numpy().round(5).tolist() if paddle.is_tensor(value) else value, values
    )


@pytest.mark.parametrize("training", [False, True])
def test_arguments_that_are_no_tensors_choose_the_program(training: bool) -> None:
    x = paddle.ones([3, 4])
    model = Mixed("tensor")
    calls: list[dict[str, Any]] = [{}, {"squash": False}, {"scale": -1.0}, {}]
    strategy = on_ipus(model, training)
    traced = paddle.jit.to_static(model)
    try:
        for arguments in calls:
            expected = plain(Mixed.forward(model, x, **arguments))
            assert plain(traced(x, **arguments)) == expected
    finally:
        strategy.release_patch()


@pytest.mark.parametrize("form", ["tensor", "list of one", "dictionary", "dictionary of one"])
def test_a_layer_returns_what_it_returns_elsewhere(form: str) -> None:
    x = paddle.ones([3, 4])
    model = Mixed(form)
    expected = plain(model(x))
    strategy = on_ipus(model)
    try:
        assert plain(paddle.jit.to_static(model)(x)) == expected
    finally:
        strategy.release_patch()


@pytest.mark.parametrize(
    "form", ["marked dictionary", "dictionary before the loss", "dictionary of one"]
)
def test_a_dictionary_trains_where_it_is_clear_what_the_loss_is(form: str) -> None:
    x = paddle.ones([3, 4])
    weights = []
    for used in (form, "pair"):
        model = Mixed(used)
        strategy = on_ipus(model, training=True)
        try:
            paddle.jit.to_static(model)(x)
        finally:
            strategy.release_patch()
        weights.append(model.linear.weight.numpy())
    np.testing.assert_allclose(weights[0], weights[1], rtol=1e-5)


def test_a_dictionary_that_does_not_say_what_the_loss_is() -> None:
    model = Mixed("dictionary")
    strategy = on_ipus(model, training=True)
    try:
        with pytest.raises(PaddleTrainingInvalid, match=r"SIPU-4010: .* dictionary .loss, others"):
            paddle.jit.to_static(model)(paddle.ones([3, 4]))
    finally:
        strategy.release_patch()


def test_a_layer_to_be_trained_needs_an_optimizer() -> None:
    strategy = IpuStrategy()
    try:
        with pytest.raises(PaddleTrainingInvalid, match=r"SIPU-4010(.|\n)*set_optimizer"):
            paddle.jit.to_static(Mixed("tensor"))(paddle.ones([3, 4]))
    finally:
        strategy.release_patch()


@pytest.mark.parametrize("optimizer", [None, "adam", paddle.optimizer.Adam])
def test_what_is_no_optimizer_is_refused(optimizer: Any) -> None:
    strategy = IpuStrategy()
    try:
        with pytest.raises(InvalidIpuOption, match=r"SIPU-4002: set_optimizer takes"):
            strategy.set_optimizer(optimizer)
        assert not hasattr(strategy, "_optimizer")
    finally:
        strategy.release_patch()


@pytest.mark.parametrize("rows", [None, 3, -1])
@pytest.mark.parametrize("released", [False, True])
def test_a_layer_is_saved_as_it_is(rows: int | None, released: bool, tmp_path: Path) -> None:
    """For any device, with the weights trained so far, and trains on."""
    x = paddle.ones([3, 4])
    model = Mixed("pair")
    strategy = on_ipus(model, training=True)
    traced = paddle.jit.to_static(model)
    spec = None if rows is None else [paddle.static.InputSpec([rows, 4], "float32", "x")]
    try:
        before = plain(traced(x))
        if released:
            strategy.release_patch()
        paddle.jit.save(traced, str(tmp_path / "saved"), input_spec=spec)
        weights = model.linear.weight.numpy()
        after = plain(traced(x))
        assert before != after
        assert (model.linear.weight.numpy() != weights).any()  # it trains still
    finally:
        strategy.release_patch()
    assert plain(paddle.jit.load(str(tmp_path / "saved"))(x)) == [*after]


def test_a_layer_knows_its_compiled_program() -> None:
    model = Mixed("tensor")
    strategy = on_ipus(model)
    try:
        traced = paddle.jit.to_static(model)
        traced(paddle.ones([3, 4]))
        program = traced.forward.concrete_program.main_program
        assert [feed["shape"] for feed in program_of(program)["feeds"]] == [[3, 4]]
    finally:
        strategy.release_patch()


def test_the_patches_come_off() -> None:
    from paddle.jit.dy2static.program_translator import ProgramCache
    from paddle.optimizer.lr import LRScheduler

    before = ProgramCache.__getitem__, LRScheduler.step
    strategy = IpuStrategy()
    assert ProgramCache.__getitem__ is not before[0]
    strategy.release_patch()
    assert (ProgramCache.__getitem__, LRScheduler.step) == before
