"""Networks written by hand as neutral graphs, with their backward pass and an optimiser."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from softipu.graph import Builder, Graph, Phase, Role, Schedule


class Net:
    """Layers one after the other; `train` walks them backwards."""

    def __init__(self, name: str, dtype: str = "float16") -> None:
        self.build = Builder(name)
        self.dtype = dtype
        self.stage = 0
        self.phase = Phase.FORWARD
        self.tape: list[tuple[int, str, Callable[[str], dict[str, str]]]] = []
        self.weights: dict[str, str] = {}  # weight → gradient
        self.checkpoints: list[str] = []
        self.path = ""

    # ---- plumbing ------------------------------------------------------------------------------
    def shape(self, name: str) -> tuple[int, ...]:
        return self.build.tensors[name].shape

    def input(self, name: str, shape: tuple[int, ...], dtype: str | None = None) -> str:
        return self.build.tensor(name, shape, dtype or self.dtype, Role.INPUT)

    def weight(self, name: str, shape: tuple[int, ...]) -> str:
        return self.build.tensor(name, shape, self.dtype, Role.WEIGHT)

    def op(self, kind: str, inputs: list[str], *shapes: tuple[int, ...], **more: object) -> str:
        outputs = [(shape, self.dtype) for shape in shapes]
        made = self.build.op(
            kind, inputs, outputs, phase=self.phase, stage=self.stage, path=self.path, **more
        )
        self.made = made
        return made[0]

    def record(self, out: str, backward: Callable[[str], dict[str, str]]) -> str:
        self.tape.append((self.stage, out, backward))
        return out

    def unary(self, function: str, x: str, *others: str) -> str:
        return self.op("elementwise", [x, *others], self.shape(x), function=function)

    # ---- layers --------------------------------------------------------------------------------
    def conv(self, x: str, out: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> str:
        batch, channels, height, width = self.shape(x)
        w = self.weight("w", (out, channels // groups, kernel, kernel))
        field = {
            "kernel": (kernel, kernel),
            "stride": (stride, stride),
            "dilation": (1, 1),
            "groups": groups,
        }
        size = (batch, out, -(-height // stride), -(-width // stride))
        y = self.op("convolution", [x, w], size, **field)

        def backward(dy: str) -> dict[str, str]:
            self.weights[w] = self.op(
                "convolution_weight_gradient", [x, dy], self.shape(w), **field
            )
            if self.build.tensors[x].role is Role.INPUT:
                return {}
            return {x: self.op("convolution_input_gradient", [dy, w], self.shape(x), **field)}

        return self.record(y, backward)

    def norm(self, x: str, function: str = "batch", groups: int = 0) -> str:
        shape = self.shape(x)
        axis = 1 if function in ("batch", "group") else len(shape) - 1
        channels = shape[axis]
        count = {"batch": channels, "layer": prod(shape[:-1])}.get(function, groups * shape[0])
        gamma, beta = self.weight("gamma", (channels,)), self.weight("beta", (channels,))
        y = self.op(
            "normalise", [x, gamma, beta], shape, (count,), (count,), function=function,
            groups=count, training=True,
        )  # fmt: skip
        mean, deviation = self.made[1:]

        def backward(dy: str) -> dict[str, str]:
            dx = self.op(
                "normalise_gradient", [x, dy, gamma, mean, deviation], shape, (channels,),
                (channels,), function=function, groups=count,
            )  # fmt: skip
            self.weights[gamma], self.weights[beta] = self.made[1:]
            return {x: dx}

        return self.record(y, backward)

    def activation(self, x: str, function: str = "relu") -> str:
        y = self.unary(function, x)
        # What the gradient reads: the result where that is enough, so the input may go.
        kept = y if function == "relu" else x
        return self.record(y, lambda dy: {x: self.unary(f"{function}_gradient", dy, kept)})

    def add(self, x: str, other: str) -> str:
        y = self.unary("add", x, other)
        return self.record(y, lambda dy: {x: dy, other: dy})

    def linear(self, x: str, out: int, bias: bool = True) -> str:
        _, rows, ins = self.shape(x)
        w = self.weight("w", (1, ins, out))
        operands = [x, w]
        if bias:
            operands.append(self.weight("b", (out,)))
        y = self.op("matmul", operands, (1, rows, out))

        def backward(dy: str) -> dict[str, str]:
            flipped = self.turned(x)
            self.weights[w] = self.op("matmul", [flipped, dy], (1, ins, out), transposed=True)
            if bias:
                self.weights[operands[2]] = self.op(
                    "reduce", [dy], (out,), function="sum", axes=(0, 1)
                )
            turned = self.turned(w)
            return {x: self.op("matmul", [dy, turned], (1, rows, ins), transposed=True)}

        return self.record(y, backward)

    def reshape(self, x: str, shape: tuple[int, ...]) -> str:
        old = self.shape(x)
        y = self.op("view", [x], shape)
        return self.record(y, lambda dy: {x: self.op("view", [dy], old)})

    def turned(self, x: str) -> str:
        """A look at the operand of a product, rows for columns."""
        groups, rows, columns = self.shape(x)
        return self.op("view", [x], (groups, columns, rows), order=(0, 2, 1))

    def permute(self, x: str, order: tuple[int, ...]) -> str:
        shape = self.shape(x)
        y = self.op("transpose", [x], tuple(shape[axis] for axis in order), order=order)
        back = tuple(order.index(axis) for axis in range(len(order)))
        return self.record(y, lambda dy: {x: self.op("transpose", [dy], shape, order=back)})

    def product(self, x: str, other: str) -> str:
        """A matrix product of two activations."""
        groups, rows, inner = self.shape(x)
        columns = self.shape(other)[2]
        y = self.op("matmul", [x, other], (groups, rows, columns))

        def backward(dy: str) -> dict[str, str]:
            turned = self.turned(other)
            flipped = self.turned(x)
            return {
                x: self.op("matmul", [dy, turned], (groups, rows, inner), transposed=True),
                other: self.op("matmul", [flipped, dy], (groups, inner, columns), transposed=True),
            }

        return self.record(y, backward)

    def softmax(self, x: str) -> str:
        axis = len(self.shape(x)) - 1
        y = self.op("softmax", [x], self.shape(x), axis=axis, function="softmax")

        def backward(dy: str) -> dict[str, str]:
            more = {"axis": axis, "function": "softmax"}
            return {x: self.op("softmax_gradient", [dy, y], self.shape(x), **more)}

        return self.record(y, backward)

    def pool(self, x: str, function: str, kernel: int, stride: int) -> str:
        batch, channels, height, width = self.shape(x)
        window = {"function": function, "kernel": (kernel, kernel), "stride": (stride, stride)}
        y = self.op("pool", [x], (batch, channels, height // stride, width // stride), **window)
        return self.record(
            y, lambda dy: {x: self.op("pool_gradient", [dy, x, y], self.shape(x), **window)}
        )

    def mean(self, x: str) -> str:
        shape = self.shape(x)
        y = self.op("reduce", [x], shape[:2], function="mean", axes=(2, 3))
        return self.record(y, lambda dy: {x: self.op("copy", [dy], shape)})

    def images(self, batch: int, size: int, bytes_only: bool = True) -> str:
        """Images as bytes, made numbers on the IPU, as published configurations do."""
        if not bytes_only:
            return self.input("images", (batch, 3, size, size))
        x = self.input("images", (batch, 3, size, size), "uint8")
        x = self.op("cast", [x], (batch, 3, size, size))
        return self.unary("mul", self.unary("add", x))

    def gate(self, x: str, ratio: int) -> str:
        """Squeeze and excitation."""
        batch, channels = self.shape(x)[:2]
        y = self.reshape(self.mean(x), (1, batch, channels))
        y = self.activation(self.linear(y, ratio), "silu")
        y = self.activation(self.linear(y, channels), "sigmoid")
        y = self.reshape(y, (batch, channels, 1, 1))
        out = self.unary("mul", x, y)

        def backward(dy: str) -> dict[str, str]:
            product = self.unary("mul", dy, x)
            small = (batch, channels, 1, 1)
            return {
                x: self.unary("mul", dy, y),
                y: self.op("reduce", [product], small, function="sum", axes=(2, 3)),
            }

        return self.record(out, backward)

    def loss(self, x: str) -> str:
        axes = tuple(range(len(self.shape(x))))
        y = self.op("reduce", [x], (1,), function="sum", axes=axes)
        return self.record(y, lambda dy: {x: self.op("expand_view", [dy], self.shape(x))})

    def embed(self, ids: str, table: str) -> str:
        rows, width = self.shape(ids)[-1], self.shape(table)[1]
        y = self.op("gather", [table, ids], (1, rows, width), axis=0)

        def backward(dy: str) -> dict[str, str]:
            self.weights[table] = self.op(
                "scatter", [table, ids, dy], self.shape(table), axis=0, function="add"
            )
            return {}

        return self.record(y, backward)

    # ---- the end -------------------------------------------------------------------------------
    def train(self, loss: str, optimiser: str = "sgdm") -> None:
        self.phase = Phase.BACKWARD
        gradients = {loss: self.op("fill", [], self.shape(loss))}
        for stage, out, backward in reversed(self.tape):
            self.stage = stage
            if out not in gradients:
                continue
            for name, gradient in backward(gradients[out]).items():
                if self.build.tensors[name].role is Role.INPUT:
                    continue
                known = gradients.get(name)
                gradients[name] = self.unary("add", known, gradient) if known else gradient
        self.phase = Phase.UPDATE
        stages = {}
        for op in self.build.ops:
            for name in op.inputs:
                stages.setdefault(name, op.stage)
        for weight, gradient in self.weights.items():
            self.stage = stages[weight]
            self._step(weight, gradient, optimiser)

    def _step(self, weight: str, gradient: str, optimiser: str) -> None:
        shape = self.shape(weight)
        if optimiser == "sgd":
            new = self.op("elementwise", [weight, gradient], shape, function="scaled_add")
            self.build.update(new, weight)
            return
        state = self.build.tensor("momentum", shape, self.dtype, Role.STATE)
        new = self.op("elementwise", [state, gradient], shape, function="scaled_add")
        self.build.update(new, state)
        if optimiser == "adam":
            second = self.build.tensor("variance", shape, "float32", Role.STATE)
            square = self.unary("square", gradient)
            newer = self.op("elementwise", [second, square], shape, function="scaled_add")
            root = self.unary("sqrt", newer)
            new = self.op("elementwise", [new, root], shape, function="div")
        self.build.update(
            self.op("elementwise", [weight, new], shape, function="scaled_add"), weight
        )

    def finish(self, outputs: list[str], **schedule: object) -> Graph:
        return self.build.finish(
            outputs, Schedule(checkpoints=frozenset(self.checkpoints), **schedule)
        )


def resnet50(
    batch: int, training: bool = False, dtype: str = "float16", norm: str = "batch",
    eight_bit: bool = False, keep_last: bool = False, **schedule: object,
) -> Graph:  # fmt: skip
    """`norm=""`: folded into the convolutions. `keep_last`: layer 4 is not recomputed."""
    net = Net("resnet50", dtype)
    x = net.images(batch, 224, eight_bit)

    def normal(y: str) -> str:
        return net.norm(y, norm) if norm else y

    x = net.activation(normal(net.conv(x, 64, 7, 2)))
    x = net.pool(x, "max", 3, 2)
    for blocks, width, first in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
        for block in range(blocks):
            net.path = f"layer{width // 64}.{block}"
            net.checkpoints.append(x)
            made = len(net.build.ops)
            stride = first if block == 0 else 1
            y = net.activation(normal(net.conv(x, width)))
            y = net.activation(normal(net.conv(y, width, 3, stride)))
            y = normal(net.conv(y, 4 * width))
            if block == 0:
                x = normal(net.conv(x, 4 * width, 1, stride))
            x = net.activation(net.add(y, x))
            if keep_last and width == 512:
                net.checkpoints += [n for op in net.build.ops[made:] for n in op.outputs]
    x = net.reshape(net.mean(x), (1, batch, 2048))
    x = net.linear(x, 1000)
    x = net.softmax(x)
    if training:
        x = net.loss(x)
        net.train(x)
    return net.finish([x], micro_batch=batch, **schedule)


def efficientnet(
    batch: int, version: str = "b0", group: int = 1, expand: int = 6, norm: str = "batch",
    training: bool = False, split: int = 0, size: int = 0, **schedule: object,
) -> Graph:  # fmt: skip
    """EfficientNet-B0 or B4; depthwise, or in groups of `group`. `split`: first block of stage 1."""
    width, depth, pixels = {"b0": (1.0, 1.0, 224), "b4": (1.4, 1.8, 380)}[version]
    net = Net(f"efficientnet-{version}")
    x = net.images(batch, size or pixels)

    def wide(channels: int) -> int:
        new = max(8, int(channels * width + 4) // 8 * 8)
        new = new + 8 if new < 0.9 * channels * width else new
        return -(-new // group) * group if group > 1 else new

    def normal(y: str) -> str:
        return net.norm(y, norm, 4)

    x = net.activation(normal(net.conv(x, wide(32), 3, 2)), "silu")
    block = 0
    for first, channels, repeats, stride, kernel in (
        (1, 16, 1, 1, 3), (expand, 24, 2, 2, 3), (expand, 40, 2, 2, 5), (expand, 80, 3, 2, 3),
        (expand, 112, 3, 1, 5), (expand, 192, 4, 2, 5), (expand, 320, 1, 1, 3),
    ):  # fmt: skip
        for repeat in range(-(-int(repeats * depth * 10) // 10)):
            net.stage = int(bool(split) and block >= split)
            net.path = f"blocks.{block}"
            net.checkpoints.append(x)
            ins = net.shape(x)[1]
            inner = -(-ins * first // group) * group
            y = x if first == 1 else net.activation(normal(net.conv(x, inner)), "silu")
            inner = net.shape(y)[1]
            y = net.conv(y, inner, kernel, stride if repeat == 0 else 1, inner // group)
            y = net.gate(net.activation(normal(y), "silu"), max(1, ins // 4))
            y = normal(net.conv(y, wide(channels)))
            x = net.add(y, x) if net.shape(x) == net.shape(y) else y
            block += 1
    x = net.activation(normal(net.conv(x, wide(1280))), "silu")
    x = net.reshape(net.mean(x), (1, batch, net.shape(x)[1]))
    x = net.softmax(net.linear(x, 1000))
    if training:
        x = net.loss(x)
        net.train(x)
    ipus = (0, 1) if split else (0,)
    return net.finish([x], micro_batch=batch, stage_ipus=ipus, **schedule)


def encoder_layer(net: Net, x: str, batch: int, length: int, width: int, heads: int) -> str:
    """One layer of BERT on [1, batch · length, width]."""
    size = width // heads
    qkv = net.linear(x, 3 * width)
    parts = net.permute(net.reshape(qkv, (batch, length, 3, heads, size)), (2, 0, 3, 1, 4))
    each = []
    for _ in range(3):
        each.append(net.op("slice_view", [parts], (batch * heads, length, size)))
    q, k, v = each
    whole = net.shape(parts)
    net.record(q, lambda dy: {parts: net.op("copy", [dy], whole)})
    turned = net.turned(k)
    scores = net.softmax(net.product(q, turned))
    mixed = net.product(scores, v)
    mixed = net.permute(net.reshape(mixed, (batch, heads, length, size)), (0, 2, 1, 3))
    mixed = net.linear(net.reshape(mixed, (1, batch * length, width)), width)
    x = net.norm(net.add(mixed, x), "layer")
    y = net.linear(net.activation(net.linear(x, 4 * width), "gelu"), width)
    return net.norm(net.add(y, x), "layer")


def bert(
    batch: int, length: int = 128, layers: tuple[int, ...] = (12,), width: int = 768,
    heads: int = 12, training: bool = False, vocabulary: int = 30528, dtype: str = "float16",
    recompute: bool = True, optimiser: str = "adam", **schedule: object,
) -> Graph:  # fmt: skip
    """BERT with `layers` encoder layers on each IPU; a masked-token head of 20 tokens a sample."""
    net = Net(f"bert-{width}", dtype)
    ids = net.input("ids", (batch * length,), "int32")
    table = net.weight("table", (vocabulary, width))
    x = net.norm(net.embed(ids, table), "layer")
    for stage, count in enumerate(layers):
        net.stage = stage
        for layer in range(count):
            net.path = f"encoder.{layer}"
            net.checkpoints.append(x)
            x = encoder_layer(net, x, batch, length, width, heads)
    if training:
        net.stage = 0
        hidden = net.reshape(x, (batch, length, width))
        picked = net.op("slice_view", [hidden], (batch, 20, width))
        net.record(picked, lambda dy: {hidden: net.op("copy", [dy], net.shape(hidden))})
        picked = net.reshape(picked, (1, batch * 20, width))
        x = net.loss(net.softmax(net.linear(picked, vocabulary)))
        net.train(x, optimiser)
    stages = range(len(layers)) if recompute else ()
    return net.finish(
        [x], micro_batch=batch, stage_ipus=tuple(range(len(layers))),
        recomputed_stages=frozenset(stages), **schedule,
    )  # fmt: skip
