"""Keras models, functions and loops of `ipu.loops` become graphs with their batches and stages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras
from tensorflow.python import ipu

import softipu
from softipu import devices
from softipu.errors import ModelNotRun, OptionsContradict
from softipu.frontends.tensorflow import neutral_programs
from softipu.frontends.tensorflow.ipu_options import OPTIONS
from softipu.graph import KINDS, Phase, Role
from softipu.machine import estimate

X, Y = np.ones((64, 8, 8, 3), np.float32), np.zeros(64, np.int32)


def network(*stages):
    image = keras.Input((8, 8, 3), batch_size=4)
    first, second = stages or (None, None)
    scope = keras.ipu.PipelineStage if stages else (lambda _: tf.name_scope("plain"))
    with scope(first):
        x = keras.layers.ReLU()(keras.layers.Conv2D(8, 3)(image))
    with scope(second):
        x = keras.layers.Dense(10)(keras.layers.GlobalAveragePooling2D()(x))
    return keras.Model(image, x)


def compiled(model, steps=4):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.1), loss, steps_per_execution=steps)
    return model


def work(graph, phase=None):
    return [
        op.kind for op in graph.ops
        if not KINDS[op.kind].free and phase in (None, op.phase)
    ]  # fmt: skip


def test_a_model_that_has_not_run_says_what_to_call(ipus):
    with ipus().scope():
        model = compiled(network())
        with pytest.raises(ModelNotRun, match="has not run in mode 'train'"):
            neutral_programs.of_model(model)


def test_a_prediction_is_forward_only_and_a_fit_has_all_phases(ipus):
    with ipus().scope():
        model = compiled(network())
        model.predict(X, batch_size=4)
        forward, settings = neutral_programs.of_model(model, "predict")
        model.fit(X, Y, batch_size=4, verbose=0)
        whole, _ = neutral_programs.of_model(model, "train")
    assert work(forward) == ["convolution", "elementwise", "reduce", "matmul"]
    assert not forward.training
    assert work(whole, Phase.FORWARD)[:4] == work(forward)
    assert "convolution_weight_gradient" in work(whole, Phase.BACKWARD)
    assert "convolution_input_gradient" not in work(whole)
    assert set(work(whole, Phase.UPDATE)) <= {"elementwise", "cast"}
    assert forward.schedule.device_iterations == 4
    assert estimate(forward, settings).unknown == {}


def test_softipu_estimate_takes_a_model_that_has_run(ipus):
    with ipus().scope():
        model = compiled(network())
        model.predict(X, batch_size=4)
        graph, settings = neutral_programs.of_model(model, "predict")
        found = softipu.estimate(model, arch=settings.chip)
        assert found.cycles == estimate(graph, settings).cycles
        assert softipu.estimate(model, arch="mk2").settings.chip == "mk2"
        with pytest.raises(OptionsContradict, match="its own options"):
            softipu.estimate(model, options=settings)
        with pytest.raises(OptionsContradict, match="inputs can't be others"):
            softipu.estimate(model, X)
        with pytest.raises(ModelNotRun):
            softipu.estimate(model, training=True)


def test_weights_are_weights_and_what_the_optimiser_keeps_is_state(ipus):
    with ipus().scope():
        model = compiled(network())
        model.fit(X, Y, batch_size=4, verbose=0)
        graph, _ = neutral_programs.of_model(model)
        variables = model.trainable_variables
    weights = sorted(t.shape for t in graph.of_role(Role.WEIGHT) if t.elements > 1)
    assert weights == sorted(tuple(v.shape) for v in variables)
    states = [t.shape for t in graph.of_role(Role.STATE) if t.elements > 1]
    assert sorted(states) == sorted(weights * 2)
    updated = {old for _, old in graph.updates}
    assert {t.name for t in graph.of_role(Role.WEIGHT) if t.elements > 1} <= updated
    assert [t.shape for t in graph.of_role(Role.INPUT)] == [(4, 8, 8, 3), (4,)]


def test_a_weight_gradient_is_made_as_soon_as_it_can_be(ipus):
    """XLA prints all weight gradients last, which would keep every activation for too long."""
    with ipus().scope():
        image = keras.Input((8, 8, 3), batch_size=4)
        x = image
        for _ in range(4):
            x = keras.layers.Conv2D(8, 3, padding="same", activation="relu")(x)
        model = compiled(keras.Model(image, keras.layers.Dense(10)(keras.layers.Flatten()(x))))
        model.fit(X, Y, batch_size=4, verbose=0)
        graph, _ = neutral_programs.of_model(model)
    order = [kind for kind in work(graph, Phase.BACKWARD) if kind.startswith("convolution_")]
    assert order.count("convolution_weight_gradient") == 4
    assert order.count("convolution_input_gradient") == 3
    for position, kind in enumerate(order[:-1]):
        if kind == "convolution_input_gradient":
            assert "convolution_weight_gradient" in order[max(0, position - 1) : position + 2]
    assert order[:2] != ["convolution_input_gradient"] * 2


def test_pipeline_stages_accumulation_and_replicas_become_the_schedule(ipus):
    with ipus(4).scope():
        model = network(0, 1)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=8)
        compiled(model, steps=16)
        data = np.repeat(X, 4, 0), np.repeat(Y, 4, 0)
        model.fit(*data, batch_size=4, verbose=0)
        graph, settings = neutral_programs.of_model(model)
    schedule = graph.schedule
    assert schedule.stage_ipus == (0, 1)
    assert (schedule.accumulation, schedule.device_iterations, schedule.replicas) == (8, 2, 2)
    stages = {op.kind: op.stage for op in graph.ops if op.phase is Phase.FORWARD}
    assert stages["convolution"] == 0
    assert stages["matmul"] == stages["softmax"] == 1
    backward = {op.kind: op.stage for op in graph.ops if op.phase is Phase.BACKWARD}
    assert backward["convolution_weight_gradient"] == 0
    assert backward["softmax_gradient"] == backward["matmul"] == 1
    assert len(estimate(graph, settings).memory) == 2
    makers = {output: op for op in graph.ops for output in op.outputs}
    updates = {graph.tensors[old].shape: makers[new].stage for new, old in graph.updates}
    assert updates[(3, 3, 3, 8)] == 0  # the convolution's weights and what Adam keeps for them
    assert updates[(8, 10)] == 1


def test_options_of_the_configuration_become_settings(ipus):
    strategy = ipus(
        1, matmuls__poplar_options={"availableMemoryProportion": "0.3", "partialsType": "half"},
        io_tiles__num_io_tiles=32, optimizations__prefetch_data_streams=False,
    )  # fmt: skip
    with strategy.scope():
        settings = neutral_programs.settings_of()
    assert settings.available_memory_proportion == 0.3
    assert settings.matmul_partials == "float16"
    assert settings.convolution_partials == "float32"
    assert settings.io_tiles == 32
    assert settings.prefetch_depth == 0


def test_convolutions_and_products_have_memory_proportions_of_their_own(ipus):
    def found(**options):
        with ipus(1, **options).scope():
            model = compiled(network())
            model.fit(X, Y, batch_size=4, verbose=0)
            graph, settings = neutral_programs.of_model(model)
        given = {op.kind: op.attributes.get("available_memory_proportion") for op in graph.ops}
        assert estimate(graph, settings).cycles.total > 0
        kinds = ("convolution", "convolution_weight_gradient", "matmul")
        return settings.available_memory_proportion, *(given[kind] for kind in kinds)

    tenth, half = ({"availableMemoryProportion": text} for text in ("0.1", "0.5"))
    assert found(convolutions__poplar_options=tenth) == (0.6, 0.1, 0.1, None)
    assert found(matmuls__poplar_options=tenth) == (0.1, 0.6, 0.6, None)
    both = {"convolutions__poplar_options": tenth, "matmuls__poplar_options": half}
    assert found(**both) == (0.5, 0.1, 0.1, None)
    both["matmuls__poplar_options"] = tenth
    assert found(**both) == (0.1, None, None, None)


def test_what_a_pipeline_offloads_becomes_settings_and_what_it_ignores_a_warning(ipus, caplog):
    dataset = tf.data.Dataset.from_tensors(tf.ones((4, 8))).repeat()
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    ops = ipu.pipelining_ops
    ipus(2)
    weights = [tf.Variable(tf.ones((8, 8))) for _ in range(2)]
    optimizer = keras.optimizers.legacy.SGD(0.01)

    def settings(**offloaded):
        def train():
            ops.pipeline(
                [lambda x: x @ weights[0], lambda x: tf.reduce_sum(x @ weights[1])], 8,
                infeed_queue=infeed, outfeed_queue=outfeed,
                optimizer_function=lambda loss: ops.OptimizerFunctionOutput(
                    optimizer, loss, variables=weights
                ),
                **offloaded,
            )  # fmt: skip

        graph, found = neutral_programs.of_function(train)
        assert estimate(graph, found).cycles.total > 0
        return found

    assert not settings().accumulators_off_chip
    found = settings(offload_gradient_accumulation_buffers=True, offload_weights=True)
    assert found.accumulators_off_chip
    assert found.weights_off_chip
    assert "replicated_weight_sharding" not in caplog.text
    settings(replicated_weight_sharding=True)
    assert "replicated_weight_sharding has no effect" in caplog.text


# --- loops ------------------------------------------------------------------------------------


def loop_program(turns):
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(4, drop_remainder=True).repeat()
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    weights = tf.Variable(tf.ones((192, 10)))

    def body(total, x, y):
        with tf.GradientTape() as tape:
            logits = tf.reshape(x, (4, 192)) @ weights
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
            loss = tf.reduce_mean(loss)
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
        return total + loss, outfeed.enqueue(loss)

    @tf.function
    def program():
        return ipu.loops.repeat(turns, body, [0.0], infeed)

    return program, infeed, weights


def test_a_loop_over_an_infeed_is_its_body_and_a_number_of_iterations(ipus):
    with ipus().scope():
        program, _, weights = loop_program(10)
        before = weights.numpy()
        graph, settings = neutral_programs.of_function(program)
        np.testing.assert_array_equal(weights.numpy(), before)  # described, not run
    assert graph.schedule.device_iterations == 10
    assert graph.schedule.micro_batch == 4
    assert [t.shape for t in graph.of_role(Role.INPUT)] == [(4, 8, 8, 3), (4,)]
    assert work(graph, Phase.FORWARD)[0] == "matmul"
    assert [old for _, old in graph.updates] == [t.name for t in graph.of_role(Role.WEIGHT)]
    assert estimate(graph, settings).throughput > 0


def test_describing_a_program_leaves_it_able_to_run(ipus):
    strategy = ipus()
    with strategy.scope():
        program, infeed, weights = loop_program(3)
        neutral_programs.of_function(program)
        infeed.initializer  # noqa: B018  # starts the feed
        before = weights.numpy()
        strategy.run(program)
        assert not np.array_equal(weights.numpy(), before)


def test_a_loop_in_the_middle_of_a_function_is_one_op_with_a_body(ipus):
    weights = tf.Variable(tf.ones((8, 8)))

    def recurrent(x):
        _, state = tf.while_loop(
            lambda i, _: i < 6, lambda i, s: (i + 1, tf.tanh(s @ weights)), (0, x)
        )
        return state

    with ipus().scope():
        graph, settings = neutral_programs.of_function(recurrent, tf.TensorSpec((4, 8)))
    (loop,) = [op for op in graph.ops if op.kind == "loop"]
    assert loop.attributes["count"] == 6
    body = loop.bodies[0]
    assert work(body).count("matmul") == 1
    functions = [op.attributes.get("function") for op in body.ops]
    assert functions.count("tanh") == 1
    once = estimate(graph, settings).cycles.total
    assert once > 0


def test_a_loop_that_ends_by_what_it_computes_is_listed_as_unknown(ipus):
    def until(x):
        return tf.while_loop(
            lambda s: tf.reduce_sum(s) < 100.0, lambda s: (s * 2.0,), (x,)
        )[0]  # fmt: skip

    with ipus().scope():
        graph, settings = neutral_programs.of_function(until, tf.TensorSpec((4, 8)))
    found = estimate(graph, settings)
    assert [name.endswith("While") for name in found.unknown] == [True]


def test_a_condition_costs_its_dearer_branch(ipus):
    def either(flag, x):
        return tf.cond(flag[0] > 0, lambda: tf.matmul(x, x), lambda: x + 1.0)

    with ipus().scope():
        graph, settings = neutral_programs.of_function(
            either, tf.TensorSpec((1,)), tf.TensorSpec((32, 32))
        )
    (branch,) = [op for op in graph.ops if op.kind == "branch"]
    assert len(branch.bodies) == 2
    assert estimate(graph, settings).cycles.total > 0


MODELLED = {
    "allow_recompute": True,
    "convolutions__poplar_options": {"partialsType": "half"},
    "io_tiles__num_io_tiles": 64,
    "matmuls__poplar_options": {"availableMemoryProportion": "0.1"},
    "optimizations__prefetch_data_streams": False,
}


def test_every_option_that_is_said_to_be_modelled_is_read(ipus):
    """But for the version of the IPU model, which has a test of its own."""
    said = {o.path.replace(".", "__") for o in OPTIONS if o.support.startswith("modelled")}
    assert said == {*MODELLED, "ipu_model__version"}
    ipus()
    plain = neutral_programs.settings_of(), neutral_programs._recomputed(2)
    for path, value in MODELLED.items():
        ipus(**{path: value})
        assert (neutral_programs.settings_of(), neutral_programs._recomputed(2)) != plain, path


def test_the_chip_is_that_of_the_ipus_there_are(ipus, monkeypatch):
    ipus()
    assert neutral_programs.chip() == "bow"
    other = replace(devices.active_partition(), system="pod16")
    monkeypatch.setattr(devices, "active_partition", lambda: other)
    assert neutral_programs.chip() == "mk2"


def test_the_ipu_model_has_the_version_that_it_is_given(ipus, monkeypatch):
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
    ipus()
    assert neutral_programs.chip() == "mk2"
    ipus(ipu_model__version="ipu1")
    assert neutral_programs.chip() == "mk1"
