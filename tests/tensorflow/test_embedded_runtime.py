"""Executables: compiled to a file, run by engines, refused when damaged."""

import threading

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.ipu.ops import embedded_runtime
from tensorflow.python.ipu.ops.application_compile_op import experimental_application_compile_op

from softipu import errors

BATCHES = np.arange(24, dtype=np.float32).reshape(8, 3)


def feeds():
    dataset = tf.data.Dataset.from_tensors(tf.zeros([3])).repeat()
    return ipu.ipu_infeed_queue.IPUInfeedQueue(dataset), ipu.ipu_outfeed_queue.IPUOutfeedQueue()


def compiled_loop(path, w, freeze):
    infeed, outfeed = feeds()

    @tf.function
    def scaled(x):
        return x * w

    def body(x):
        return outfeed.enqueue({"a": scaled(x), "b": tf.reduce_sum(x)})

    def program():
        return ipu.loops.repeat(4, body, [], infeed)

    return experimental_application_compile_op(
        program, output_path=str(path), freeze_variables=freeze
    )


@pytest.fixture
def engine(request):
    """Starts engines that end with the test."""
    started = []

    def start(*args):
        started.append(embedded_runtime.embedded_runtime_start(*args, request.node.name))
        return started[-1]

    yield start
    for context in started:
        embedded_runtime.embedded_runtime_stop(context)


def test_a_program_with_feeds_answers_each_batch(tmp_path, engine):
    w = tf.Variable(2.0)
    path = compiled_loop(tmp_path / "loop.exec", w, freeze=True)
    w.assign(100.0)
    context = engine(path, [])
    assert [row.shape for row in context.signature().streamed_inputs] == [[3]]
    assert context.signature().inputs == []
    for batch in BATCHES:  # more batches than the loop has iterations
        scaled, total = embedded_runtime.embedded_runtime_call([tf.constant(batch)], context)
        np.testing.assert_array_equal(scaled, batch * 2)
        assert total.numpy() == batch.sum()


def test_variables_that_are_not_frozen_are_inputs_by_name(tmp_path, engine):
    path = compiled_loop(tmp_path / "loop.exec", tf.Variable(2.0, name="scale"), freeze=False)
    with pytest.raises(Exception, match="Failed to find input tensor with name 'XLA_Args/scale'"):
        engine(path, {})
    with pytest.raises(Exception, match="expects 1 inputs, but 2 were provided"):
        engine(path, [np.float32(1), np.float32(1)])
    with pytest.raises(Exception, match=r"Mismatched input dtype at position 0 \('XLA_Args/scale"):
        engine(path, [np.int32(1)])
    context = engine(path, {"XLA_Args/scale": np.float32(5)})
    with pytest.raises(Exception, match=r"Mismatched input shape.*Expected \[3\]"):
        embedded_runtime.embedded_runtime_call([tf.zeros([4])], context)
    scaled, _ = embedded_runtime.embedded_runtime_call([tf.ones([3])], context)
    np.testing.assert_array_equal(scaled, [5, 5, 5])


def test_threads_get_the_answers_to_their_own_batches(tmp_path, engine):
    context = engine(compiled_loop(tmp_path / "loop.exec", tf.Variable(3.0), freeze=True), [])
    wrong = []

    def ask(batch):
        for _ in range(5):
            scaled, _ = embedded_runtime.embedded_runtime_call([tf.constant(batch)], context)
            if not np.array_equal(scaled, batch * 3):
                wrong.append(batch)

    threads = [threading.Thread(target=ask, args=[batch]) for batch in BATCHES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_program_runs_in_graphs_of_tensorflow_1(tmp_path, engine):
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        infeed, outfeed = feeds()

        def program():
            return ipu.loops.repeat(2, lambda x: outfeed.enqueue(x + w), [], infeed)

        w = v1.get_variable("w", initializer=1.0, use_resource=True)
        compile_op = experimental_application_compile_op(
            program, output_path=str(tmp_path / "v1.exec"), freeze_variables=True
        )
        session.run(w.initializer)
        session.run(w.assign(10.0))
        path = session.run(compile_op).decode()
        context = engine(path, [])
        x = v1.placeholder(tf.float32, [3])
        (y,) = embedded_runtime.embedded_runtime_call([x], context)
        for batch in BATCHES:
            np.testing.assert_array_equal(session.run(y, {x: batch}), batch + 10)


def test_a_program_without_feeds_returns_its_results(tmp_path, engine):
    path = experimental_application_compile_op(
        lambda x: x * x, inputs=[tf.zeros([2])], output_path=str(tmp_path / "square.exec")
    )
    (y,) = embedded_runtime.embedded_runtime_call([], engine(path, [np.float32([2, 3])]))
    np.testing.assert_array_equal(y, [4, 9])


def test_damaged_and_foreign_files_are_refused(tmp_path):
    path = tmp_path / "loop.exec"
    compiled_loop(path, tf.Variable(2.0), freeze=True)
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    with pytest.raises(errors.ExecutableCorrupt):
        embedded_runtime.embedded_runtime_start(str(path), [], "damaged")
    path.write_bytes(b"something else")
    with pytest.raises(errors.ExecutableForeign):
        embedded_runtime.embedded_runtime_start(str(path), [], "foreign")


def test_a_failing_program_says_why(tmp_path, engine):
    infeed, outfeed = feeds()

    def body(x):
        with tf.control_dependencies([tf.debugging.Assert(x[0] < 5, ["too much", x[0]])]):
            return outfeed.enqueue(tf.identity(x))

    path = experimental_application_compile_op(
        lambda: ipu.loops.repeat(4, body, [], infeed), output_path=str(tmp_path / "fails.exec")
    )
    context = engine(path, [])
    embedded_runtime.embedded_runtime_call([tf.zeros([3])], context)
    with pytest.raises(tf.errors.OpError, match="too much"):
        embedded_runtime.embedded_runtime_call([tf.fill([3], 7.0)], context)
