"""Programs of several workers or instances, and what is gone with tf.estimator."""

import importlib

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.distribute.cluster_resolver import cluster_resolver
from tensorflow.python.ipu import distributed
from tensorflow.python.ipu.distributed import popdist_strategy
from tensorflow.python.ipu.ipu_multi_worker_strategy import (
    IPUMirroredVariable,
    IPUMultiWorkerStrategyV1,
    IPUSyncOnReadVariable,
)

from softipu.frontends.tensorflow import replicas


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("ipu_estimator", "IPUEstimator"),
        ("ipu_pipeline_estimator", "IPUPipelineEstimatorSpec"),
        ("ipu_run_config", "RunConfig"),
    ],
)
def test_estimators_import_and_say_what_to_use_instead(module, name):
    found = importlib.import_module(f"tensorflow.python.ipu.{module}")
    with pytest.raises(NotImplementedError, match=rf"{name} is not available(?s:.*)IPUStrategy"):
        getattr(found, name)
    assert not hasattr(found, "nothing_of_that_name")


def test_one_instance_gathers_reduces_and_broadcasts_with_itself():
    x = tf.constant([1.0, 2.0])
    np.testing.assert_array_equal(distributed.allgather(x), [[1, 2]])
    np.testing.assert_array_equal(distributed.allreduce(x, tf.distribute.ReduceOp.MEAN), [1, 2])
    np.testing.assert_array_equal(distributed.broadcast(x), [1, 2])


def test_there_is_nothing_to_broadcast_from_beyond_the_last_instance():
    with pytest.raises(ValueError, match="no instance 1 to broadcast from; there are 1"):
        distributed.broadcast(tf.zeros([]), root_rank=1)
    with pytest.raises(ValueError, match="Unsupported reduce op"):
        distributed.allreduce(tf.zeros([]), "max")


def test_a_popdist_strategy_counts_all_replicas_and_reduces_over_them(ipus):
    ipus(2)
    strategy = popdist_strategy.PopDistStrategy()
    config = ipu.config.IPUConfig()
    strategy.update_ipu_config(config)
    assert config.experimental.multi_replica_distribution.process_count == 1
    assert strategy.num_replicas_in_sync == 2
    assert replicas.tracing() is None

    @tf.function
    def step(x):
        context = tf.distribute.get_replica_context()
        index = tf.cast(ipu.replication_ops.replication_index(), tf.float32)
        return context.all_reduce(tf.distribute.ReduceOp.SUM, x + index)

    with strategy.scope():
        result = strategy.run(step, args=[tf.constant(10.0)])
    assert result.numpy() == 21.0
    assert strategy.reduce(tf.distribute.ReduceOp.SUM, result, axis=None).numpy() == 21.0


@pytest.mark.parametrize("on_host", [False, True])
def test_a_single_worker_trains_under_the_multi_worker_strategy(on_host):
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        resolver = cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec({}))
        strategy = IPUMultiWorkerStrategyV1(resolver, variables_on_host=on_host)
        with strategy.scope():

            def step(x):
                w = v1.get_variable("w", initializer=2.0)
                seen = v1.get_variable(
                    "seen",
                    initializer=0.0,
                    trainable=False,
                    synchronization=tf.VariableSynchronization.ON_READ,
                    aggregation=tf.VariableAggregation.SUM,
                )
                assert isinstance(w, IPUMirroredVariable)
                assert isinstance(seen, IPUSyncOnReadVariable)
                assert ("CPU" in w.device) == on_host
                assert "IPU" in (w * x).device
                train = v1.train.GradientDescentOptimizer(0.5).minimize(w * x)
                return tf.group(train, seen.assign_add(x))

            x = v1.placeholder(tf.float32, [])
            train = strategy.run(step, args=[x])
            w, seen = v1.global_variables()
            config = strategy.update_config_proto(v1.ConfigProto(allow_soft_placement=False))
            with v1.Session(config=config) as session:
                session.run(v1.global_variables_initializer())
                for value in (1.0, 2.0):
                    session.run(train, {x: value})
                assert session.run([w, seen]) == [0.5, 3.0]
