"""`ipu_compiler.compile`, loops and scopes in graphs of TensorFlow 1."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from softipu.frontends.tensorflow import replicas

v1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("ipus")  # leases of its own, no configuration left behind
on_ipu = ipu.scopes.ipu_scope


def compiled(function, inputs=()):
    with on_ipu("/device:IPU:0"):
        return ipu.ipu_compiler.compile(function, list(inputs))


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def test_results_keep_the_structure_of_the_computation():
    with v1.Session() as session:
        assert session.run(compiled(lambda x: x + 1, [1.0])) == [2.0]
        assert session.run(compiled(lambda: {"a": tf.constant(1), "b": [tf.constant(2)]})) == {
            "a": 1, "b": [2],
        }  # fmt: skip
        assert session.run(compiled(lambda: None)) is None
    with pytest.raises(ValueError, match="zero or more Tensor values"):
        compiled(lambda: (tf.no_op(), tf.constant(1)))


def test_all_side_effects_happen_whichever_output_is_fetched():
    def step(x):
        count = v1.get_variable("count", initializer=0.0)
        count.assign_add(x)  # nobody depends on it
        return x * 2, x * 3

    double, _ = compiled(step, [2.0])
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(double)
        [count] = v1.global_variables()
        assert session.run(count) == 2.0


def test_a_computation_must_be_on_an_ipu():
    with tf.device("/device:CPU:0"), pytest.raises(Exception, match="not placed on an IPU"):
        ipu.ipu_compiler.compile(lambda x: x + 1, [1.0])
    with tf.device("/device:CPU:0"):
        ipu.ipu_compiler.compile(tf.no_op)


@pytest.mark.parametrize("configured", ["before", "after"])
def test_replicas_are_those_of_the_configuration_in_use_when_the_session_runs(ipus, configured):
    """Training sums the gradients of two replicas: checked against one replica of both batches."""
    data = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    if configured == "before":
        ipus(2)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(data))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def body(x):
        weights = v1.get_variable("weights", initializer=np.ones(3, np.float32))
        [gradient] = tf.gradients(tf.reduce_sum(tf.square(x * weights)), [weights])
        gradient = tf.add_n(replicas.exchange(gradient))
        with tf.control_dependencies([weights.assign_sub(0.1 * gradient)]):
            return outfeed.enqueue((x, weights.read_value()))

    train = compiled(lambda: ipu.loops.repeat(4, body, infeed_queue=infeed))
    outfed = outfeed.dequeue()
    if configured == "after":
        ipus(2)
    with v1.Session() as session:
        session.run([infeed.initializer, v1.global_variables_initializer()])
        session.run(train)
        seen, weights = session.run(outfed)
    np.testing.assert_array_equal(seen, data.reshape(4, 2, 3))
    expected = np.ones(3, np.float32)
    for pair, both in zip(data.reshape(4, 2, 3), weights, strict=True):
        expected = expected - 0.1 * np.sum(2 * pair**2 * expected, axis=0)
        np.testing.assert_allclose(both, [expected, expected], rtol=1e-5)


def test_shards_are_ipus_that_replicas_do_not_get(ipus):
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def model(x):
        with ipu.scopes.ipu_shard(0):
            x = x + tf.cast(replicas.replica_index(), tf.float32)
        with ipu.scopes.ipu_shard(1):
            return outfeed.enqueue(x)

    run = compiled(model, [1.0])
    outfed = outfeed.dequeue()
    ipus(4)
    with v1.Session() as session:
        session.run(run)
        np.testing.assert_array_equal(session.run(outfed), [[1.0, 2.0]])


def test_more_shards_than_ipus_are_an_error_when_it_runs(ipus):
    def model(x):
        with ipu.scopes.ipu_shard(3):
            return x + 1

    run = compiled(model, [1.0])
    ipus(2)
    with v1.Session() as session, pytest.raises(tf.errors.OpError, match="4 shards"):
        session.run(run)


def test_gradients_stay_on_the_shard_of_their_operation():
    def model(x):
        with ipu.scopes.ipu_shard(1):
            y = tf.square(x)
        with ipu.scopes.ipu_shard(0):
            [gradient] = tf.gradients(y, [x])
        assert ipu.sharding.get_sharding(y.op) == [1]
        assert ipu.sharding.get_sharding(gradient.op) == [1]
        return gradient

    compiled(model, [3.0])


def test_loops_have_gradients():
    def model(x):
        a = v1.get_variable("a", initializer=2.0)
        y = ipu.loops.repeat(5, lambda v: a * v, [x])
        return tf.gradients(y, [a])[0]

    with v1.Session() as session:
        gradient = compiled(model, [1.0])
        session.run(v1.global_variables_initializer())
        np.testing.assert_allclose(session.run(gradient), [5 * 2.0**4])


def test_a_while_loop_ends_by_its_condition():
    with v1.Session() as session:
        result = compiled(
            lambda: ipu.loops.while_loop(
                lambda i, v: i < 4, lambda i, v: (i + 1, v * 2.0), [0, 1.0]
            )
        )
        assert session.run(result) == [4, 16.0]


def test_a_loop_says_what_is_wrong_with_its_body():
    with pytest.raises(TypeError, match="needs exactly 1 argument"):
        ipu.loops.repeat(2, lambda v: v, [1.0, 2.0])
    with pytest.raises(TypeError, match="Mismatch between input types"):
        ipu.loops.repeat(2, lambda v: tf.cast(v, tf.int32), [1.0])
    with pytest.raises(ValueError, match="followed by zero or more"):
        ipu.loops.repeat(2, lambda v: (tf.no_op(), v), [1.0])


def test_code_outside_the_compilation_runs_on_the_host():
    def model(x):
        with ipu.scopes.outside_compilation_scope():
            x = tf.cast(tf.cast(x, tf.float64) * 2, tf.float32)
        return x + 1

    def in_a_loop(x):
        return ipu.loops.repeat(2, model, [x])

    with v1.Session() as session:
        assert session.run(compiled(model, [1.0])) == [3.0]
        with pytest.raises(tf.errors.UnimplementedError, match="enclosed in control flow"):
            session.run(compiled(in_a_loop, [1.0]))
    with pytest.raises(ValueError, match="only allowed in XLA context"):
        model(tf.constant(1.0))


def test_a_variable_that_is_returned_has_the_value_from_before_the_update():
    def step():
        weight = v1.get_variable("weight", initializer=1.0)
        loss = weight * weight
        return weight, loss, v1.train.GradientDescentOptimizer(0.5).minimize(loss)

    result = compiled(step)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        assert session.run(result) == [1.0, 1.0]
        assert session.run(v1.global_variables()) == [0.0]


def test_slots_of_optimizers_survive_that_a_program_is_built_again():
    def step():
        with v1.variable_scope("scope"):
            weight = v1.get_variable("weight", initializer=1.0)
        adam = ipu.optimizers.CrossReplicaOptimizer(v1.train.AdamOptimizer(0.1))
        return ipu.optimizers.GradientAccumulationOptimizerV2(adam, 2).minimize(weight * weight)

    train = compiled(lambda: ipu.loops.repeat(2, step))
    names = [variable.name for variable in v1.global_variables()]
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2  # only now
    config.configure_ipu_system()
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(train)
        assert session.run(v1.global_variables()[0]) == pytest.approx(0.9, abs=1e-5)
    assert [variable.name for variable in v1.global_variables()] == names


def test_operations_of_a_computation_name_the_ipu():
    devices = []
    compiled(lambda: devices.append(tf.constant(1.0).device))
    assert devices == ["/device:IPU:0"]


@pytest.mark.parametrize("trap", [False, True])
def test_a_session_stops_at_what_is_no_number_if_told_to(trap):
    result = compiled(lambda x: (1 / x, tf.constant(1)), [tf.constant(0.0)])
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.floating_point_behaviour.div0 = trap
    config.configure_ipu_system()
    with v1.Session() as session:
        if trap:
            with pytest.raises(tf.errors.InternalError, match="Tiles in excepted state"):
                session.run(result)
        else:
            assert session.run(result) == [np.inf, 1]


def test_invalid_operations_are_not_infinities():
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.floating_point_behaviour.inv = True
    config.configure_ipu_system()
    infinite, invalid = (compiled(lambda x: x / 0, [tf.constant(value)]) for value in (1.0, 0.0))
    with v1.Session() as session:
        assert session.run(infinite) == [np.inf]
        with pytest.raises(tf.errors.InternalError, match="Tiles in excepted state"):
            session.run(invalid)


def test_what_is_placed_on_an_ipu_leases_it_compiled_or_not():
    with on_ipu("/device:IPU:0"):
        total = tf.constant(1.0) + 1
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.compilation_poplar_options = {"no_such_option": "1"}
    config.configure_ipu_system()
    with v1.Session() as session, pytest.raises(tf.errors.InternalError, match="no_such_option"):
        session.run(total)


def test_programs_that_are_only_compiled_give_zeros_and_change_nothing(ipus):
    from tensorflow.python.ipu.utils import DeviceConnectionType

    def step(x):
        count = v1.get_variable("count", initializer=5.0)
        return x * 2, count.assign_add(1.0)

    outputs = compiled(step, [3.0])
    ipus(
        device_connection__version="ipu2", device_connection__type=DeviceConnectionType.PRE_COMPILE
    )
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        assert session.run(outputs) == [0.0, 0.0]
        [count] = v1.global_variables()
        assert session.run(count) == 5.0
