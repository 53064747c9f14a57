"""Operations of Paddle programs, as plain data, become the ops that an IPU runs."""

from __future__ import annotations

import pytest

from softipu.errors import EstimateNeedsBatch
from softipu.frontends.paddle.neutral import graph_of, settings_of
from softipu.frontends.paddle.neutral_table import TABLE, row_of
from softipu.graph import KINDS, Phase, Role
from softipu.machine import estimate


def tensor(name, *shape, dtype="float32"):
    return {"name": name, "shape": list(shape), "dtype": dtype}


def operation(kind, inputs, outputs, phase="forward", stage=0, ipu=0, **attributes):
    def slots(given):
        return {
            slot: items if isinstance(items, list) else [items] for slot, items in given.items()
        }

    return {
        "type": kind, "phase": phase, "ipu": ipu, "stage": stage, "inputs": slots(inputs),
        "outputs": slots(outputs), "attributes": attributes,
    }  # fmt: skip


def program(*operations, feeds=("x",), weights=("w", "b"), fetches=(), **changes):
    last = operations[-1]["outputs"]
    outs = list(fetches) or [items[0]["name"] for items in last.values() if items][:1]
    data = {
        "training": False, "ipus": 1, "replicas": 1, "micro_batch_size": 4,
        "gradient_accumulation": 1, "batches_per_step": 1, "pipelined": False,
        "feeds": [{"name": name} for name in feeds],
        "weights": [{"name": name} for name in weights], "fetches": outs,
        "operations": list(operations), "options": {},
    }  # fmt: skip
    return {**data, **changes}


def work(graph):
    ops = [op for op in graph.ops if not KINDS[op.kind].free]
    return [(op.kind, op.attributes.get("function", "")) for op in ops]


def only(graph):
    (op,) = [op for op in graph.ops if not KINDS[op.kind].free]
    return op


X, OUT = tensor("x", 4, 8), tensor("out", 4, 8)


@pytest.mark.parametrize(
    ("kind", "function"),
    [("relu", "relu"), ("gelu", "gelu"), ("tanh", "tanh"), ("hard_swish", "hardswish"),
     ("swish", "silu"), ("sqrt", "sqrt"), ("clip", "clamp"), ("logical_not", "logical_not")],
)  # fmt: skip
def test_a_function_of_one_tensor(kind, function):
    graph = graph_of(program(operation(kind, {"X": X}, {"Out": OUT})))
    assert work(graph) == [("elementwise", function)]


@pytest.mark.parametrize("kind", ["relu", "gelu", "tanh", "sigmoid", "silu", "hard_swish"])
def test_the_gradient_of_a_function_reads_the_gradient_and_what_was_kept(kind):
    graph = graph_of(
        program(
            operation(kind, {"X": X}, {"Out": OUT}),
            operation(f"{kind}_grad", {"X": X, "Out@GRAD": OUT}, {"X@GRAD": tensor("g", 4, 8)},
                      "backward"),
        )
    )  # fmt: skip
    (kind_of_op, function) = work(graph)[1]
    assert kind_of_op == "elementwise"
    assert function.endswith("_gradient")
    assert graph.ops[-1].phase is Phase.BACKWARD
    assert len(graph.ops[-1].inputs) == 2
    assert not estimate(
        graph, settings_of(program(operation(kind, {"X": X}, {"Out": OUT})))
    ).unknown


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [({"scale": 1.0, "bias": 0.0}, []), ({"scale": 2.0, "bias": 0.0}, ["mul"]),
     ({"scale": 1.0, "bias": 1.0}, ["add"]), ({"scale": 2.0, "bias": 1.0}, ["mul", "add"])],
)  # fmt: skip
def test_scale_does_only_what_its_numbers_ask_for(attributes, expected):
    graph = graph_of(program(operation("scale", {"X": X}, {"Out": OUT}, **attributes)))
    assert [function for _, function in work(graph)] == expected


# --- products ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "turned", "expected"),
    [
        ((4, 8), (8, 3), (False, False), (1, 4, 8, 3)),
        ((8, 4), (8, 3), (True, False), (1, 4, 8, 3)),
        ((4, 8), (3, 8), (False, True), (1, 4, 8, 3)),
        ((5, 4, 8), (8, 3), (False, False), (1, 20, 8, 3)),
        ((5, 4, 8), (5, 8, 3), (False, False), (5, 4, 8, 3)),
        ((2, 5, 4, 8), (2, 5, 3, 8), (False, True), (10, 4, 8, 3)),
        ((8,), (8,), (False, False), (1, 1, 8, 1)),
    ],
)
def test_a_product_is_three_dimensional_whatever_its_operands_were(left, right, turned, expected):
    rows = left[-1] if turned[0] else (left[-2] if len(left) > 1 else 1)
    columns = right[-2] if turned[1] else (right[-1] if len(right) > 1 else 1)
    shape = () if len(left) == 1 else (*left[:-2], rows, columns)
    graph = graph_of(
        program(
            operation("matmul_v2", {"X": tensor("x", *left), "Y": tensor("y", *right)},
                      {"Out": tensor("out", *shape)}, trans_x=turned[0], trans_y=turned[1]),
            feeds=("x", "y"),
        )
    )  # fmt: skip
    op = only(graph)
    (groups, m, k), n = graph.tensors[op.inputs[0]].shape, graph.tensors[op.inputs[1]].shape[2]
    assert (groups, m, k, n) == expected
    assert bool(op.attributes.get("transposed")) is any(turned)


def linear(*, used_again=False):
    product = tensor("p", 4, 16, 3)
    operations = [
        operation("matmul_v2", {"X": tensor("x", 4, 16, 8), "Y": tensor("w", 8, 3)},
                  {"Out": product}, trans_x=False, trans_y=False),
        operation("elementwise_add", {"X": product, "Y": tensor("b", 3)},
                  {"Out": tensor("out", 4, 16, 3)}, axis=-1),
    ]  # fmt: skip
    if used_again:
        operations.append(operation("relu", {"X": product}, {"Out": tensor("r", 4, 16, 3)}))
    return operations


def test_a_bias_is_part_of_the_product():
    op = only(graph_of(program(*linear())))
    assert len(op.inputs) == 3


def test_a_bias_is_an_op_of_its_own_where_the_product_is_needed_without_it():
    graph = graph_of(program(*linear(used_again=True)))
    assert work(graph)[:2] == [("matmul", ""), ("elementwise", "add")]


def test_the_bias_of_a_convolution_comes_through_its_reshape():
    made, bias = tensor("c", 4, 16, 8, 8), tensor("r", 1, 16, 1, 1)
    graph = graph_of(
        program(
            operation("conv2d", {"Input": tensor("x", 4, 3, 16, 16), "Filter": tensor("w", 16, 3, 3, 3)},
                      {"Output": made}, strides=[2, 2], dilations=[1, 1], groups=1),
            operation("reshape2", {"X": tensor("b", 16)}, {"Out": bias, "XShape": tensor("s", 0, 16)}),
            operation("elementwise_add", {"X": made, "Y": bias}, {"Out": tensor("out", 4, 16, 8, 8)}),
        )
    )  # fmt: skip
    op = only(graph)
    assert op.inputs == ("x", "w", "b")
    assert op.attributes["kernel"] == (3, 3)
    assert op.attributes["stride"] == (2, 2)


def test_gradients_of_a_linear_layer_are_two_products_and_a_sum():
    product, gradient = tensor("p", 4, 16, 3), tensor("g", 4, 16, 3)
    graph = graph_of(
        program(
            *linear(),
            operation("fill_constant", {}, {"Out": gradient}, "backward"),
            operation("elementwise_add_grad", {"Out@GRAD": gradient, "X": product, "Y": tensor("b", 3)},
                      {"X@GRAD": tensor("gp", 4, 16, 3), "Y@GRAD": tensor("gb", 3)}, "backward"),
            operation("matmul_v2_grad", {"Out@GRAD": tensor("gp", 4, 16, 3), "X": tensor("x", 4, 16, 8),
                                         "Y": tensor("w", 8, 3)},
                      {"X@GRAD": tensor("gx", 4, 16, 8), "Y@GRAD": tensor("gw", 8, 3)}, "backward"),
            fetches=("gx", "gw", "gb"),
        )
    )  # fmt: skip
    kinds = [kind for kind, _ in work(graph)]
    assert kinds == ["matmul", "fill", "reduce", "matmul", "matmul"]
    shapes = [graph.tensors[op.outputs[0]].shape for op in graph.ops if op.kind == "matmul"]
    assert shapes == [(1, 64, 3), (1, 64, 8), (1, 8, 3)]
    for op in [op for op in graph.ops if op.kind == "matmul"][1:]:
        assert op.attributes["transposed"] is True


@pytest.mark.parametrize("groups", [1, 4])
def test_gradients_of_a_convolution(groups):
    x, w = tensor("x", 4, 8, 16, 16), tensor("w", 16, 8 // groups, 3, 3)
    field = {"strides": [2, 2], "dilations": [1, 1], "groups": groups}
    graph = graph_of(
        program(
            operation("conv2d", {"Input": x, "Filter": w}, {"Output": tensor("y", 4, 16, 8, 8)}, **field),
            operation("conv2d_grad", {"Input": x, "Filter": w, "Output@GRAD": tensor("y", 4, 16, 8, 8)},
                      {"Input@GRAD": tensor("gx", 4, 8, 16, 16), "Filter@GRAD": tensor("gw", *w["shape"])},
                      "backward", **field),
        )
    )  # fmt: skip
    made = {op.kind: op for op in graph.ops}
    assert set(made) == {
        "convolution", "convolution_weight_gradient", "convolution_input_gradient"
    }  # fmt: skip
    assert {op.attributes["groups"] for op in made.values()} == {groups}


# --- layers -----------------------------------------------------------------------------------


def batch_norm(**attributes):
    c = [tensor(name, 8) for name in ("scale", "bias", "mean", "variance")]
    return operation(
        "batch_norm",
        {"X": tensor("x", 4, 8, 6, 6), "Scale": c[0], "Bias": c[1], "Mean": c[2], "Variance": c[3]},
        {"Y": tensor("y", 4, 8, 6, 6), "MeanOut": c[2], "VarianceOut": c[3],
         "SavedMean": tensor("sm", 8), "SavedVariance": tensor("sv", 8),
         "ReserveSpace": tensor("rs", -1)},
        **attributes,
    )  # fmt: skip


def test_a_batch_norm_in_training_moves_its_running_statistics():
    graph = graph_of(program(batch_norm(is_test=False), weights=("scale", "bias")))
    assert work(graph) == [("normalise", "batch"), ("elementwise", "lerp")]
    assert {old for _, old in graph.updates} == {"mean", "variance"}
    assert {t.name for t in graph.of_role(Role.STATE)} == {"mean", "variance"}


def test_a_batch_norm_in_inference_reads_what_was_learnt():
    graph = graph_of(program(batch_norm(is_test=True), weights=("scale", "bias")))
    op = only(graph)
    assert op.attributes["training"] is False
    assert len(op.inputs) == 5
    assert op.attributes["groups"] == 8


def test_a_layer_norm_has_a_group_for_each_row():
    graph = graph_of(
        program(
            operation("layer_norm", {"X": tensor("x", 4, 16, 32), "Scale": tensor("w", 32), "Bias": tensor("b", 32)},
                      {"Y": tensor("y", 4, 16, 32), "Mean": tensor("m", 4, 16), "Variance": tensor("v", 4, 16)},
                      begin_norm_axis=2)
        )
    )  # fmt: skip
    assert only(graph).attributes["groups"] == 64


@pytest.mark.parametrize(
    ("attributes", "kernel", "stride"),
    [
        ({"ksize": [3, 3], "strides": [2, 2], "pooling_type": "max"}, (3, 3), (2, 2)),
        ({"ksize": [7, 7], "global_pooling": True, "pooling_type": "avg"}, (8, 8), (8, 8)),
        ({"ksize": [1, 1], "adaptive": True, "pooling_type": "avg"}, (8, 8), (8, 8)),
    ],
)  # fmt: skip
def test_pools_have_the_window_that_they_really_cover(attributes, kernel, stride):
    size = 1 if attributes.get("adaptive") or attributes.get("global_pooling") else 4
    graph = graph_of(
        program(operation("pool2d", {"X": tensor("x", 4, 8, 8, 8)},
                          {"Out": tensor("out", 4, 8, size, size)}, **attributes))
    )  # fmt: skip
    op = only(graph)
    assert (op.attributes["kernel"], op.attributes["stride"]) == (kernel, stride)


def test_views_and_turns_take_no_time_and_turning_back_is_the_original():
    graph = graph_of(
        program(
            operation("transpose2", {"X": tensor("x", 4, 8)}, {"Out": tensor("t", 8, 4)}, axis=[1, 0]),
            operation("transpose2", {"X": tensor("t", 8, 4)}, {"Out": tensor("u", 4, 8)}, axis=[1, 0]),
            operation("reshape2", {"X": tensor("u", 4, 8)}, {"Out": tensor("v", 32)}),
        )
    )  # fmt: skip
    assert work(graph) == []
    producers = graph.producers()
    assert producers[graph.outputs[0]].inputs == ("x",)


def test_dropout_draws_a_mask_in_training_and_again_in_the_backward_pass():
    graph = graph_of(
        program(
            operation("dropout", {"X": X}, {"Out": OUT, "Mask": tensor("m", 4, 8, dtype="uint8")}),
            operation("dropout_grad", {"Out@GRAD": OUT, "Mask": tensor("m", 4, 8, dtype="uint8")},
                      {"X@GRAD": tensor("g", 4, 8)}, "backward"),
        )
    )  # fmt: skip
    assert [kind for kind, _ in work(graph)] == ["random", "elementwise"] * 2
    mask = graph.ops[0].outputs[0]
    assert all(mask not in op.inputs for op in graph.ops if op.phase is Phase.BACKWARD)
    quiet = operation("dropout", {"X": X}, {"Out": OUT}, is_test=True,
                      dropout_implementation="upscale_in_train")  # fmt: skip
    assert work(graph_of(program(quiet))) == []


def test_an_embedding_is_a_gather_and_its_gradient_a_scatter():
    ids, table = tensor("x", 4, 16, dtype="int64"), tensor("w", 100, 32)
    out = tensor("out", 4, 16, 32)
    graph = graph_of(
        program(
            operation("lookup_table_v2", {"Ids": ids, "W": table}, {"Out": out}),
            operation("lookup_table_v2_grad", {"Ids": ids, "W": table, "Out@GRAD": out},
                      {"W@GRAD": tensor("gw", 100, 32)}, "backward"),
        )
    )  # fmt: skip
    assert work(graph) == [("gather", ""), ("scatter", "add")]
    assert graph.tensors["x"].dtype == "int32"


def test_a_cross_entropy_is_a_softmax_and_a_pick_and_both_ways_back():
    logits, label = tensor("x", 4, 10), tensor("label", 4, 1, dtype="int64")
    soft, loss = tensor("s", 4, 10), tensor("loss", 4, 1)
    graph = graph_of(
        program(
            operation("softmax_with_cross_entropy", {"Logits": logits, "Label": label},
                      {"Loss": loss, "Softmax": soft}, axis=-1),
            operation("softmax_with_cross_entropy_grad", {"Loss@GRAD": loss, "Label": label, "Softmax": soft},
                      {"Logits@GRAD": tensor("g", 4, 10)}, "backward", axis=-1),
            feeds=("x", "label"),
        )
    )  # fmt: skip
    assert [kind for kind, _ in work(graph)] == ["softmax", "gather", "scatter", "softmax_gradient"]


# --- optimisers -------------------------------------------------------------------------------

STATES = {
    "sgd": [], "momentum": ["Velocity"], "adam": ["Moment1", "Moment2"],
    "adamw": ["Moment1", "Moment2"], "lamb": ["Moment1", "Moment2"], "adagrad": ["Moment"],
    "adadelta": ["AvgSquaredGrad", "AvgSquaredUpdate"], "adamax": ["Moment", "InfNorm"],
    "rmsprop": ["MeanSquare", "Moment"],
}  # fmt: skip


@pytest.mark.parametrize("kind", STATES)
def test_an_optimiser_updates_its_weight_and_all_of_its_states(kind):
    states = STATES[kind]
    inputs = {"Param": tensor("w", 8, 3), "Grad": tensor("g", 8, 3), "LearningRate": tensor("lr")}
    inputs |= {state: tensor(state.lower(), 8, 3) for state in states}
    outputs = {"ParamOut": tensor("w", 8, 3)}
    outputs |= {f"{state}Out": tensor(state.lower(), 8, 3) for state in states}
    graph = graph_of(
        program(
            operation("fill_constant", {}, {"Out": tensor("g", 8, 3)}, "backward"),
            operation(kind, inputs, outputs, "update"),
        )
    )
    assert {old for _, old in graph.updates} == {"w", *(state.lower() for state in states)}
    assert graph.tensors["w"].role is Role.WEIGHT
    assert all(graph.tensors[state.lower()].role is Role.STATE for state in states)
    assert {op.phase for op in graph.ops} == {Phase.BACKWARD, Phase.UPDATE}


# --- the whole --------------------------------------------------------------------------------


def test_what_has_no_row_is_listed_and_counted_not_left_out():
    graph = graph_of(program(operation("warpctc", {"X": X}, {"Out": OUT})))
    assert work(graph) == [("unknown", "")]
    found = estimate(graph, settings_of(program(operation("relu", {"X": X}, {"Out": OUT}))))
    assert found.unknown == {"paddle.warpctc": 1}
    assert found.cycles.total > 0


def test_a_shape_that_is_not_known_is_an_error_that_names_the_variable():
    with pytest.raises(EstimateNeedsBatch, match="out has the shape"):
        graph_of(program(operation("relu", {"X": X}, {"Out": tensor("out", -1, 8)})))


def test_batches_replicas_and_stages_come_from_the_program():
    graph = graph_of(
        program(
            operation("relu", {"X": X}, {"Out": OUT}),
            operation("tanh", {"X": OUT}, {"Out": tensor("u", 4, 8)}, stage=1, ipu=1),
            operation("relu", {"X": tensor("u", 4, 8)}, {"Out": tensor("v", 4, 8)}, stage=2, ipu=0),
            micro_batch_size=4, gradient_accumulation=8, batches_per_step=3, replicas=2, ipus=4,
            pipelined=True, training=True, options={"auto_recomputation": 3},
        )
    )  # fmt: skip
    schedule = graph.schedule
    assert schedule.batch == 4 * 8 * 3 * 2
    assert schedule.stage_ipus == (0, 1, 0)
    assert schedule.recomputed_stages == {0, 1}
    assert [op.stage for op in graph.ops] == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"available_memory_proportion": 0.25}, "available_memory_proportion", 0.25),
        ({"available_memory_proportion": 0.0}, "available_memory_proportion", 0.6),
        ({"partials_type_matmuls": "half"}, "matmul_partials", "float16"),
        ({"num_io_tiles": 32}, "io_tiles", 32),
        ({"enable_prefetch_datastreams": False}, "prefetch_depth", 0),
        ({"enable_stochastic_rounding": True}, "stochastic_rounding", True),
    ],
)
def test_options_of_the_strategy_become_settings(options, field, value):
    made = program(operation("relu", {"X": X}, {"Out": OUT}), options=options)
    assert getattr(settings_of(made), field) == value


def test_locations_of_the_strategy_become_settings():
    made = program(
        operation("relu", {"X": X}, {"Out": OUT}),
        locations={"location_optimizer": {"on_chip": 0, "use_replicated_tensor_sharding": 1}},
    )
    settings = settings_of(made)
    assert settings.optimiser_state_off_chip
    assert settings.replicated_tensor_sharding
    assert not settings.weights_off_chip


def test_every_forward_row_of_arithmetic_has_its_gradient():
    for name in ("matmul_v2", "conv2d", "layer_norm", "batch_norm", "softmax", "pool2d", "dropout",
                 "reshape2", "transpose2", "slice", "concat", "lookup_table_v2", "reduce_mean",
                 "elementwise_mul", "gelu", "relu", "tanh", "where", "expand_v2"):  # fmt: skip
        assert f"{name}_grad" in TABLE


def test_versions_of_an_operation_share_a_row():
    assert row_of("softmax_v2") is TABLE["softmax"]
    assert row_of("no_such_operation") is None


# --- recurrent layers -------------------------------------------------------------------------

STEPS, INS, WIDTH, GATES = 12, 16, 32, {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def recurrent(mode, batch=4, layers=1, directions=1, training=False, steps=STEPS):
    count, gates = layers * directions, GATES[mode] * WIDTH
    weights, biases, ins = [], [], INS
    for layer in range(layers):
        for side in range(directions):
            name = f"{layer}.{side}"
            weights += [tensor(f"w{name}", gates, ins), tensor(f"u{name}", gates, WIDTH)]
            biases += [tensor(f"b{name}", gates), tensor(f"c{name}", gates)]
        ins = WIDTH * directions
    states = [tensor(f"h{n}", count, batch, WIDTH) for n in range(2 if mode == "LSTM" else 1)]
    x, out = tensor("x", steps, batch, INS), tensor("out", steps, batch, WIDTH * directions)
    given = {"Input": x, "PreState": states, "WeightList": weights + biases}
    options = {
        "mode": mode, "hidden_size": WIDTH, "num_layers": layers, "is_bidirec": directions == 2,
    }  # fmt: skip
    reserve = {"name": "reserve", "shape": [], "dtype": "uint8"}
    made = {"Out": out, "State": [tensor(f"s{n}", *s["shape"]) for n, s in enumerate(states)],
            "Reserve": reserve}  # fmt: skip
    operations = [operation("rnn", given, made, **options)]
    if training:
        wanted = {
            "Input@GRAD": tensor("dx", steps, batch, INS),
            "WeightList@GRAD": [tensor(f"d{w['name']}", *w["shape"]) for w in weights + biases],
            "PreState@GRAD": [tensor(f"d{s['name']}", *s["shape"]) for s in states],
        }
        back = {**given, "Out": out, "Reserve": reserve, "Out@GRAD": tensor("g", *out["shape"])}
        operations.append(operation("rnn_grad", back, wanted, "backward", **options))
    names = [item["name"] for item in [*weights, *biases, *states]]
    fetches = ["out", *(f"d{name}" for name in names)]
    return program(
        *operations, feeds=("x", "g"), weights=names, micro_batch_size=batch,
        fetches=fetches if training else fetches[:1],
    )  # fmt: skip


def multiplications(graph):
    total = 0
    for op in graph.ops:
        if op.kind == "loop":
            total += op.attributes["count"] * multiplications(op.bodies[0])
        elif op.kind == "matmul":
            (groups, rows, inner), right = (graph.tensors[name].shape for name in op.inputs[:2])
            total += groups * rows * inner * right[2]
    return total


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("mode", GATES)
def test_a_recurrent_layer_is_a_loop_over_its_steps(mode, directions):
    data = recurrent(mode, layers=2, directions=directions, training=True)
    graph = graph_of(data)
    loops = [(op.attributes["count"], op.phase) for op in graph.ops if op.kind == "loop"]
    sides = 2 * directions
    assert loops == [(STEPS, Phase.FORWARD)] * sides + [(STEPS, Phase.BACKWARD)] * sides
    found = estimate(graph, settings_of(data))
    assert not found.unknown
    gates = GATES[mode] * WIDTH
    forward = sum(
        directions * STEPS * 4 * gates * (ins + WIDTH) for ins in (INS, WIDTH * directions)
    )
    assert multiplications(graph_of(recurrent(mode, 4, 2, directions))) == forward
    assert multiplications(graph) == 3 * forward
    longer = recurrent(mode, layers=2, directions=directions, training=True, steps=4 * STEPS)
    ratio = estimate(graph_of(longer), settings_of(longer)).cycles.total / found.cycles.total
    assert 3 < ratio < 4.2
    shapes = {name: graph.tensors[name].shape for name in graph.outputs}
    assert list(shapes.values())[1:] == [
        graph.tensors[item["name"]].shape for item in data["weights"]
    ]
