"""Pipeline stages of Keras models: how they are given, checked, shown, saved and restored."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras
from tensorflow.python import ipu  # noqa: F401  (adds keras.ipu)

layers = keras.layers
PipelineStage = keras.ipu.PipelineStage


@pytest.fixture
def strategy(ipus):
    strategy = ipus(1)
    with strategy.scope():
        yield strategy


class Tower(keras.Model):
    """Two layers, the second of which is called twice and belongs to two stages."""

    def __init__(self, scoped=False):
        super().__init__()
        self.scoped = scoped
        self.first = layers.Dense(4)
        self.shared = layers.Dense(4)

    def call(self, inputs):
        if not self.scoped:
            return self.shared(self.shared(self.first(inputs)))
        with PipelineStage(0):
            x = self.first(inputs)
        with PipelineStage(1):
            x = self.shared(x)
        with PipelineStage(2):
            return self.shared(x)


def functional(stages=(0, 1)):
    inputs = keras.Input(4)
    with PipelineStage(stages[0]):
        x = layers.Dense(4, activation="relu")(inputs)
    with PipelineStage(stages[1]):
        x = layers.Dense(2)(x)
    return keras.Model(inputs, x)


def nested():
    """A model in a model; the inner one has two stages of its own."""
    inner = functional((1, 2))
    inputs = keras.Input(4)
    with PipelineStage(0):
        x = layers.Dense(4)(inputs)
    x = inner(x)
    with PipelineStage(3):
        return keras.Model(inputs, layers.Dense(2)(x))


def stages(assignments):
    return [
        stages(a.pipeline_stage_assignments) if a.is_nested_model else a.pipeline_stage
        for a in assignments
    ]


def stages_of(model):
    return stages(model.get_pipeline_stage_assignment())


# The scope.


def test_a_stage_needs_an_ipu_strategy():
    with pytest.raises(RuntimeError, match="within an IPUStrategy"), PipelineStage(0):
        pass


@pytest.mark.usefixtures("strategy")
def test_stages_do_not_nest_and_are_left_after_an_error():
    with (
        pytest.raises(RuntimeError, match="must not be nested"),
        PipelineStage(0),
        PipelineStage(1),
    ):
        pass
    with pytest.raises(ValueError, match="-1 is not a valid pipeline stage"), PipelineStage(-1):
        pass
    with PipelineStage(1):
        assert layers.Dense(1)._pipeline_stage == 1
    assert not hasattr(layers.Dense(1), "_pipeline_stage")


@pytest.mark.usefixtures("strategy")
def test_the_stage_of_a_call_has_precedence_over_that_of_the_layer():
    inputs = keras.Input(4)
    with PipelineStage(0):
        shared = layers.Dense(4)
    x = shared(inputs)
    with PipelineStage(1):
        x = shared(x)
    assert stages_of(keras.Model(inputs, x)) == [0, 1]


@pytest.mark.usefixtures("strategy")
def test_a_layer_without_stage_is_refused_where_others_have_one():
    inputs = keras.Input(4)
    with PipelineStage(0):
        x = layers.Dense(4)(inputs)
    x = layers.Dense(4, name="forgotten")(x)
    with pytest.raises(ValueError, match="However, forgotten has not been assigned to one"):
        keras.Model(inputs, x)


# Checks.


@pytest.mark.usefixtures("strategy")
def test_tensors_only_flow_to_later_stages_also_through_nested_models():
    model = nested()
    assert stages_of(model) == [0, [1, 2], 3]
    assignments = model.get_pipeline_stage_assignment()
    first, last = assignments[0], assignments[-1]
    last.pipeline_stage = 1
    with pytest.raises(ValueError, match="in pipeline stage 1 has a dependency"):
        model.set_pipeline_stage_assignment(assignments)
    first.pipeline_stage, last.pipeline_stage = 2, 3
    with pytest.raises(ValueError, match="in pipeline stage 1 has a dependency"):
        model.set_pipeline_stage_assignment(assignments)


@pytest.mark.usefixtures("strategy")
def test_assignments_of_a_nested_model_are_copies():
    inner = functional((1, 2))
    inputs = keras.Input(4)
    model = keras.Model(inputs, inner(inputs))
    (assignment,) = model.get_pipeline_stage_assignment()
    assignment.pipeline_stage_assignments[0].pipeline_stage = 0
    model.set_pipeline_stage_assignment([assignment])
    assert stages_of(model) == [[0, 2]]
    assert stages_of(inner) == [1, 2]


@pytest.mark.usefixtures("strategy")
def test_a_stage_without_layers_is_refused_when_the_model_runs():
    model = functional((0, 2))
    model.set_pipelining_options(device_mapping=[0, 0, 0])
    model.compile()
    with pytest.raises(RuntimeError, match=r"preceeding stages \[1\] had no assignments"):
        model.predict(np.zeros((2, 4), np.float32), batch_size=1)


@pytest.mark.usefixtures("strategy")
def test_layers_of_a_sequential_model_go_to_the_same_stage_or_the_next():
    model = keras.Sequential([layers.Dense(2, name=name) for name in "abc"])
    given = [0, 0, 1]
    model.set_pipeline_stage_assignment(given)
    assert stages_of(model) == given == [0, 0, 1], "the caller's list stays as it is"
    for wrong, message in (
        ([1, 1, 1], "assigned to the 0th pipeline stage"),
        ([0, 2, 2], "Layer b has been assigned to pipeline stage 2"),
        ([0, 1], r"\(2\) does not match the number of layers in the graph \(3\)"),
        (["0", 1, 1], "All elements of `pipeline_stage_assignment`"),
    ):
        with pytest.raises(ValueError, match=message):
            model.set_pipeline_stage_assignment(wrong)
    model.add(layers.Dense(2))
    assert not model._pipeline_stage_assignment_valid


@pytest.mark.usefixtures("strategy")
def test_a_pipelined_model_may_not_override_call():
    class Own(keras.Sequential):
        def call(self, *args, **kwargs):
            return super().call(*args, **kwargs)

    model = Own([layers.Dense(2)])
    model.set_pipeline_stage_assignment([0])
    model.compile()
    with pytest.raises(RuntimeError, match="The function `call`"):
        model.predict(np.zeros((2, 4), np.float32), batch_size=1)


# Models of users' classes.


@pytest.mark.usefixtures("strategy")
def test_a_subclassed_model_knows_its_calls_once_it_is_built():
    model = Tower()
    with pytest.raises(RuntimeError, match="which has not been built yet"):
        model.get_pipeline_stage_assignment()
    for _ in range(2):  # a second build counts the calls anew
        model.build((1, 4))
        assignments = model.get_pipeline_stage_assignment()
        assert [(a.layer, a.node_index) for a in assignments] == [
            (model.first, 0),
            (model.shared, 0),
            (model.shared, 1),
        ]
    assignments[1], assignments[2] = assignments[2], assignments[1]
    for stage, assignment in enumerate(assignments):
        assignment.pipeline_stage = stage
    with pytest.raises(ValueError, match="missmatched nodes of layer"):
        model.set_pipeline_stage_assignment(assignments)


@pytest.mark.usefixtures("strategy")
def test_scopes_in_call_make_the_model_a_pipeline_when_it_first_runs():
    model = Tower(scoped=True)
    model.set_pipelining_options(device_mapping=[0] * 3)
    model.compile(steps_per_execution=3)
    model.predict(np.zeros((3, 4), np.float32), batch_size=1)
    assert stages_of(model) == [0, 1, 2]


@pytest.mark.usefixtures("strategy")
def test_tracing_leaves_nothing_but_the_graph_behind():
    class Lazy(keras.Model):
        def build(self, shape):
            self.dense = layers.Dense(3)
            super().build(shape)

        def call(self, inputs):
            self.add_loss(tf.reduce_sum(inputs))
            return self.dense(inputs)

    model = Lazy()
    model.compile("sgd", "mse")
    x = np.ones((4, 2), np.float32)
    loss = model.fit(x, np.zeros((4, 3), np.float32), batch_size=2, verbose=0).history["loss"][0]
    assert len(model.weights) == 2, "layers made in build belong to the model"
    assert loss > 4.0, "the loss that call adds is that of the data"
    assert not model._losses


# Saving and loading.


#: Kinds of model and formats; Keras does not save subclassed models as .h5.
SAVED = [
    (kind, suffix)
    for kind in ("functional", "sequential", "nested", "subclass")
    for suffix in ("", ".keras", ".h5")
    if (kind, suffix) != ("subclass", ".h5")
]


def pipelined(kind):
    if kind == "sequential":
        model = keras.Sequential([layers.Dense(4), layers.Dense(2)])
        model.build((2, 4))
        model.set_pipeline_stage_assignment([0, 1])
    elif kind == "subclass":
        model = Tower()
        model.build((2, 4))
        assignments = model.get_pipeline_stage_assignment()
        for stage, assignment in enumerate(assignments):
            assignment.pipeline_stage = stage
        model.set_pipeline_stage_assignment(assignments)
    else:
        model = {"functional": functional, "nested": nested}[kind]()
    model.set_pipelining_options(
        gradient_accumulation_steps_per_replica=8,
        device_mapping=[0] * 4,
        accumulate_outfeed=True,
        gradient_accumulation_reduction_method="mean",
    )
    return model


@pytest.mark.usefixtures("strategy")
@pytest.mark.parametrize(("kind", "suffix"), SAVED)
def test_stages_and_options_come_back_with_the_model(kind, suffix, tmp_path):
    model = pipelined(kind)
    path = str(tmp_path / f"model{suffix}")
    model.save(path)
    loaded = keras.models.load_model(path, custom_objects={"Tower": Tower})
    assert stages_of(loaded) == stages_of(model)
    assert loaded._is_pipelined()
    assert loaded._pipelining_gradient_accumulation_steps_per_replica == 8
    assert loaded._pipelining_device_mapping == [0] * 4
    assert loaded._pipelining_accumulate_outfeed is True
    assert loaded._gradient_accumulation_reduction_method.name == "MEAN"
    x = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    np.testing.assert_allclose(loaded(x), model(x), rtol=1e-6)


@pytest.mark.usefixtures("strategy")
def test_a_configuration_makes_the_same_model():
    model = pipelined("nested")
    made = keras.models.model_from_json(model.to_json())
    assert stages_of(made) == [0, [1, 2], 3]
    assert made._pipelining_device_mapping == [0] * 4


@pytest.mark.usefixtures("strategy")
def test_a_model_whose_class_cannot_be_made_from_its_configuration_says_so(tmp_path):
    class Deep(keras.Model):
        def __init__(self, depth):
            super().__init__()
            self.dense = [layers.Dense(2) for _ in range(depth)]

        def call(self, inputs):
            for layer in self.dense:
                inputs = layer(inputs)
            return inputs

    class Silent(Tower):
        def get_config(self):
            return {}

    for model, error, message in (
        (Deep(2), NotImplementedError, "must override the `from_config` function"),
        (Silent(), RuntimeError, r"does not call super\(\).get_config"),
    ):
        model.build((2, 4))
        path = str(tmp_path / type(model).__name__)
        model.save(path)
        known = {"Deep": Deep, "Silent": Silent}
        with pytest.raises(error, match=message):
            keras.models.load_model(path, custom_objects=known)


@pytest.mark.usefixtures("strategy")
def test_stages_are_not_lost_where_the_class_is_not_given(tmp_path):
    path = str(tmp_path / "model")
    pipelined("subclass").save(path)
    with pytest.raises(ValueError, match="`custom_objects`"):
        keras.models.load_model(path)


def test_arguments_that_get_config_names_reach_the_constructor(strategy):
    class Wide(keras.Model):
        def __init__(self, units=1):
            super().__init__()
            self.units = units

        def get_config(self):
            return {**super().get_config(), "units": self.units}

        def call(self, inputs):
            return inputs

    assert strategy is tf.distribute.get_strategy()
    assert Wide.from_config(Wide(5).get_config()).units == 5


# What it is for.


@pytest.mark.usefixtures("strategy")
def test_a_pipelined_model_trains_as_plain_accumulation_does():
    model = functional()
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=4, device_mapping=[0, 0])
    plain = keras.models.clone_model(model)
    plain.set_weights(model.get_weights())
    random = np.random.default_rng(1)
    x = random.normal(size=(16, 4)).astype(np.float32)
    y = random.normal(size=(16, 2)).astype(np.float32)
    model.compile(keras.optimizers.SGD(0.05), "mse", steps_per_execution=8)
    model.fit(x, y, batch_size=2, shuffle=False, verbose=0)
    for begin in (0, 8):
        with tf.GradientTape() as tape:
            losses = [
                tf.reduce_mean(tf.square(plain(x[i : i + 2]) - y[i : i + 2]))
                for i in range(begin, begin + 8, 2)
            ]
            loss = tf.add_n(losses)
        for weight, gradient in zip(plain.weights, tape.gradient(loss, plain.weights), strict=True):
            weight.assign_sub(0.05 * gradient)
    for weight, expected in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(weight, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("strategy")
def test_the_summary_shows_layers_inputs_and_stages():
    inputs = keras.Input(4, name="in")
    x = layers.Concatenate(name="both")([inputs, layers.Dense(4, name="dense")(inputs)])
    inner = keras.Sequential([layers.Dense(2, name="inside")], name="inner")
    model = keras.Model(inputs, inner(x), name="outer")
    lines = []
    model.print_pipeline_stage_assignment_summary(line_length=50, print_fn=lines.append)
    assert [" ".join(line.split()) for line in lines] == [
        'Model: "outer"',
        "_" * 50,
        "Layer (type) (node Input Layers Pipeline S",
        "=" * 50,
        "dense (Dense) (0) in None",
        "_" * 50,
        "both (Concatenate) in None",
        "dense",
        "=" * 50,
        'Nested Model: "inner"',
        "-" * 50,
        "inside (Dense) None",
        "=" * 50,
    ]


@pytest.mark.parametrize("kind", ["functional", "sequential", "scoped"])
def test_an_exported_model_computes_the_same(kind, ipus, tmp_path):
    strategy = ipus(1)
    with strategy.scope():
        model = Tower(scoped=True) if kind == "scoped" else pipelined(kind)
        model.build((2, 4))
        x = np.random.default_rng(2).normal(size=(3, 4)).astype(np.float32)
        expected = 2.0 * model(x)
    doubled = tf.function(lambda y: 2.0 * y, input_signature=[tf.TensorSpec(expected.shape)])
    path = str(tmp_path / "served")
    model.export_for_ipu_serving(path, 3, output_names="result", postprocessing_step=doubled)
    served = tf.saved_model.load(path).signatures["serving_default"]
    (name,) = served.structured_input_signature[1]
    np.testing.assert_allclose(served(**{name: x})["result"], expected, rtol=1e-5)


@pytest.mark.usefixtures("strategy")
def test_an_export_needs_a_batch_size(tmp_path):
    with pytest.raises(ValueError, match="specify `batch_size`"):
        functional().export_for_ipu_serving(str(tmp_path / "served"))
