"""Group norms with `group_norm_strided_channel_grouping`, against the arithmetic written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
from static_programs import Build, Program, built

from softipu.errors import InvalidIpuOption
from softipu.frontends.paddle.neutral_programs import of_compiled
from softipu.graph import KINDS

paddle.enable_static()

BATCH, CHANNELS, GROUPS, SIZE = 2, 12, 3, 4
STRIDED = {"group_norm_strided_channel_grouping": True}
#: Group of a channel, with the option and without.
GROUP_OF: dict[bool, Callable[[int], int]] = {
    True: lambda channel: channel % GROUPS,
    False: lambda channel: channel // (CHANNELS // GROUPS),
}


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).normal(size=shape).astype("float32")


SCALE, BIAS = numbers(CHANNELS, seed=1), numbers(CHANNELS, seed=2)


def layer(x: Any, layout: str, affine: bool) -> Any:
    values = (
        paddle.ParamAttr(name=name, initializer=paddle.nn.initializer.Assign(value))
        for name, value in (("scale", SCALE), ("bias", BIAS))
    )
    scale, bias = values if affine else (False, False)
    return paddle.static.nn.group_norm(
        x, GROUPS, param_attr=scale, bias_attr=bias, data_layout=layout
    )


def shape_in(layout: str, batch: int = BATCH) -> list[int]:
    return [batch, CHANNELS, SIZE, SIZE] if layout == "NCHW" else [batch, SIZE, SIZE, CHANNELS]


def network(
    layout: str = "NCHW", affine: bool = True, learns: bool = False, batch: int = BATCH
) -> Build:
    def build() -> tuple[list[str], list[Any]]:
        x = paddle.static.data("x", shape_in(layout, batch), "float32")
        out = layer(x, layout, affine)
        if not learns:
            return ["x"], [out]
        loss = paddle.mean(paddle.square(out - 1.0))
        paddle.optimizer.SGD(0.5).minimize(loss)
        return ["x"], [loss]

    return build


def expected(x: np.ndarray, group_of: Callable[[int], int], layout: str, affine: bool) -> Any:
    """Channel by channel, each with the mean and variance of all channels of its group."""
    x = (x if layout == "NCHW" else np.moveaxis(x, -1, 1)).astype("float64")
    out = np.empty_like(x)
    for sample in range(len(x)):
        for channel in range(CHANNELS):
            mates = [c for c in range(CHANNELS) if group_of(c) == group_of(channel)]
            group = x[sample, mates]
            out[sample, channel] = (x[sample, channel] - group.mean()) / np.sqrt(group.var() + 1e-5)
            if affine:
                out[sample, channel] = out[sample, channel] * SCALE[channel] + BIAS[channel]
    return out if layout == "NCHW" else np.moveaxis(out, 1, -1)


def forward(program: Program, x: np.ndarray, **options: Any) -> np.ndarray:
    return program.run(program.compile(is_training=False, **options), {"x": x})[0]


@pytest.mark.parametrize("strided", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_the_option_decides_which_channels_are_a_group(
    layout: str, affine: bool, strided: bool
) -> None:
    x = np.square(numbers(*shape_in(layout)))
    options = STRIDED if strided else {}
    found = forward(built(network(layout, affine)), x, **options)
    wanted = expected(x, GROUP_OF[strided], layout, affine)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert abs(found - expected(x, GROUP_OF[not strided], layout, affine)).max() > 0.1


def test_open_batches_have_strided_groups_too() -> None:
    x = numbers(*shape_in("NCHW", 3))
    program = built(network(batch=-1))
    found = forward(program, x, micro_batch_size=3, **STRIDED)
    np.testing.assert_allclose(
        found, expected(x, GROUP_OF[True], "NCHW", True), rtol=1e-4, atol=1e-5
    )


def trained(program: Program, x: np.ndarray, **options: Any) -> np.ndarray:
    compiled = program.compile(is_training=True, **options)
    return np.ravel([program.run(compiled, {"x": x})[0] for _ in range(4)])


def loss_of(x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> float:
    normal = expected(x, GROUP_OF[True], "NCHW", False)
    out = normal * scale[:, None, None] + bias[:, None, None]
    return float(np.square(out - 1.0).mean())


@pytest.mark.parametrize("accumulation", [1, 2])
def test_training_follows_gradients_of_strided_groups(accumulation: int) -> None:
    """Differences of the loss that is written out above are the reference."""
    x = numbers(*shape_in("NCHW"))
    program = built(network(learns=True))
    options = {"enable_gradient_accumulation": True, "accumulation_factor": accumulation}
    feed = np.concatenate([x] * accumulation)
    losses = trained(program, feed, **STRIDED, **(options if accumulation > 1 else {}))
    scale, bias = SCALE.astype("float64"), BIAS.astype("float64")
    wanted = []
    for _ in range(4):
        wanted += [loss_of(x, scale, bias)] * accumulation
        slopes = []
        for values in (scale, bias):
            slope = np.empty(CHANNELS)
            for channel in range(CHANNELS):
                around = []
                for step in (1e-4, -1e-4):
                    values[channel] += step
                    around.append(loss_of(x, scale, bias))
                    values[channel] -= step
                slope[channel] = (around[0] - around[1]) / 2e-4
            slopes.append(slope)
        scale, bias = scale - 0.5 * slopes[0], bias - 0.5 * slopes[1]
    np.testing.assert_allclose(losses, wanted, rtol=1e-4)
    np.testing.assert_allclose(program.value("scale"), scale, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(program.value("bias"), bias, rtol=1e-3, atol=1e-4)


def test_gradients_pass_through_strided_groups_to_layers_before() -> None:
    """A network whose channels were put in order by hand, with the usual groups, learns the same."""
    order = [c for group in range(GROUPS) for c in range(group, CHANNELS, GROUPS)]
    filters = numbers(CHANNELS, CHANNELS, 1, 1, seed=3)

    def build(values: np.ndarray) -> Build:
        def made() -> tuple[list[str], list[Any]]:
            x = paddle.static.data("x", shape_in("NCHW"), "float32")
            initial = paddle.nn.initializer.Assign(values)
            filters = paddle.ParamAttr(name="filters", initializer=initial)
            mixed = paddle.static.nn.conv2d(x, CHANNELS, 1, param_attr=filters, bias_attr=False)
            out = layer(mixed, "NCHW", False)
            loss = paddle.mean(paddle.tanh(out) * paddle.exp(out * 0.3))
            paddle.optimizer.Momentum(0.2).minimize(loss)
            return ["x"], [loss]

        return made

    x = numbers(*shape_in("NCHW"))
    strided, usual = built(build(filters)), built(build(filters[order]))
    np.testing.assert_allclose(trained(strided, x, **STRIDED), trained(usual, x), rtol=1e-5)
    np.testing.assert_allclose(
        strided.value("filters")[order], usual.value("filters"), rtol=1e-4, atol=1e-6
    )


def test_in_half_precision_strided_groups_are_the_same_groups() -> None:
    def build() -> tuple[list[str], list[Any]]:
        x = paddle.static.data("x", shape_in("NCHW"), "float32")
        out = layer(paddle.cast(x, "float16"), "NCHW", False)
        return ["x"], [paddle.cast(out, "float32")]

    x = numbers(*shape_in("NCHW"))
    found = forward(built(build), x, **STRIDED)
    np.testing.assert_allclose(found, expected(x, GROUP_OF[True], "NCHW", False), atol=5e-3)


def test_an_open_number_of_channels_is_refused() -> None:
    def build() -> tuple[list[str], list[Any]]:
        x = paddle.static.data("x", [BATCH, -1, SIZE, SIZE], "float32")
        return ["x"], [layer(x, "NCHW", False)]

    with pytest.raises(InvalidIpuOption, match="number of channels of x is open"):
        built(build).compile(is_training=False, **STRIDED)


@pytest.mark.parametrize("learns", [False, True])
def test_estimates_have_no_moves_of_channels(learns: bool) -> None:
    def work(**options: Any) -> list[str]:
        compiled = built(network(learns=learns)).compile(is_training=learns, **options)
        return sorted(op.kind for op in of_compiled(compiled)[0].ops if not KINDS[op.kind].free)

    assert work(**STRIDED) == work()
