"""TensorFlow programs that tests run as several instances; each returns what JSON can hold."""

from __future__ import annotations

import os
import time

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.ipu import distributed
from tensorflow.python.ipu.distributed.popdist_strategy import PopDistStrategy
from tensorflow.python.ipu.ops import all_to_all_op, cross_replica_ops, reduce_scatter_op
from tensorflow.python.ipu.ops.replication_ops import replication_index
from tf_keras.src.engine import data_adapter  # noqa: F401  (Keras loads before instances fork)

import horovod.tensorflow as hvd
import popdist
import popdist.tensorflow
import softipu

SUM, MEAN = tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN
BATCH, FEATURES, BATCHES = 2, 6, 32


def data():
    random = np.random.default_rng(7)
    x = random.normal(size=(BATCHES * BATCH, FEATURES)).astype(np.float32)
    y = (x @ random.normal(size=(FEATURES, 1)) > 0).astype(np.float32)
    return x, y


def weights():
    random = np.random.default_rng(8)
    shapes = [(FEATURES, 5), (5,), (5, 1), (1,)]
    return [random.normal(size=shape).astype(np.float32) * 0.5 for shape in shapes]


def model():
    layers = tf.keras.layers
    made = tf.keras.Sequential(
        [
            tf.keras.Input([FEATURES], batch_size=None),
            layers.Dense(5, activation="tanh"),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    made.compile(tf.keras.optimizers.SGD(0.3), "binary_crossentropy", metrics=["accuracy"])
    return made


def own_share():
    """The batches of this instance: in each step replica g of all takes batch step * total + g."""
    x, y = (part.reshape(BATCHES, BATCH, -1) for part in data())
    total, local = popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas()
    first = popdist.getReplicaIndexOffset()
    mine = [step + first + replica for step in range(0, BATCHES, total) for replica in range(local)]
    return tf.data.Dataset.from_tensor_slices((x[mine], y[mine]))


def strategy_for_instance():
    config = ipu.config.IPUConfig()
    assert popdist.tensorflow.set_ipu_config(config, ipus_per_replica=1) is config
    config.configure_ipu_system()
    return PopDistStrategy()


def training(accumulation=1):
    strategy = strategy_for_instance()
    share = own_share()
    with strategy.scope():
        trained = model()
        trained._steps_per_execution.assign(len(share) // popdist.getNumLocalReplicas())
        if popdist.getInstanceIndex() == 0:  # the others have random ones, until they are told
            trained.set_weights(weights())
        for variable in trained.variables:
            variable.assign(distributed.broadcast(variable.read_value()))
        if accumulation > 1:
            trained.set_gradient_accumulation_options(
                gradient_accumulation_steps_per_replica=accumulation,
                gradient_accumulation_reduction_method="mean",
            )
        history = trained.fit(share, epochs=3, verbose=0).history
        return {
            "history": history,
            "evaluation": trained.evaluate(share, verbose=0),
            "prediction": trained.predict(share, verbose=0).ravel().tolist(),
            "weights": [w.ravel().tolist() for w in trained.get_weights()],
            "in_sync": strategy.num_replicas_in_sync,
            "estimated": softipu.estimate(trained, training=True).schedule["replicas"],
        }


def of_all_kinds():
    """Everything that needs no failure, in one start."""
    strategy = strategy_for_instance()
    return {
        "initial": initial_values(strategy),
        "on_ipu": collectives_on_ipu(strategy),
        "loop": custom_loop(strategy),
        "on_host": collectives_on_host(),
        "in_graph": collectives_in_graphs(),
        "norm": batch_norm(strategy),
        "reads": reading(strategy),
        "horovod": of_horovod(),
        "large": large_tensors(strategy),
    }


def initial_values(strategy):
    with strategy.scope():
        tf.random.set_seed(popdist.getInstanceIndex())
        layer = tf.keras.layers.Dense(3)
        layer.build([None, 4])
        scalar = tf.Variable(float(popdist.getInstanceIndex() + 1))
    return {
        "kernel": layer.kernel.numpy().tolist(),
        "scalar": float(scalar.numpy()),
        "device": scalar.device,
    }


def collectives_on_ipu(strategy):
    total = popdist.getNumTotalReplicas()
    out = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    @tf.function
    def program():
        index = tf.cast(replication_index(), tf.float32)
        mine = tf.stack([index + 1, 10 * (index + 1)])
        results = {
            "index": index,
            "sum": cross_replica_ops.cross_replica_sum(mine),
            "mean": cross_replica_ops.cross_replica_mean(mine),
            "pairs": cross_replica_ops.cross_replica_sum(mine, replica_group_size=2),
            "gathered": all_to_all_op.all_gather(mine, total),
            "swapped": all_to_all_op.all_to_all(tf.repeat(mine[:1], total), 0, 0, total),
            "part": reduce_scatter_op.reduce_scatter(tf.repeat(mine[:1], total), total),
            "largest": reduce_scatter_op.reduce_scatter(
                tf.repeat(mine[:1], total), total, op="COLLECTIVE_OP_MAX"
            ),
        }
        # A loop, and collectives that nothing orders but the program's text.
        for _ in tf.range(3):
            results["sum"] += cross_replica_ops.cross_replica_sum(mine)
        out.enqueue(results)
        return results["sum"]

    with strategy.scope():
        strategy.run(program)
    found = out.dequeue()
    return {name: value.numpy()[0].tolist() for name, value in found.items()}


def custom_loop(strategy):
    """w fitted to y = 3 x by hand, four steps in one program, losses through an outfeed."""
    local = popdist.getNumLocalReplicas()
    first = popdist.getReplicaIndexOffset()
    total = popdist.getNumTotalReplicas()
    xs = np.array(
        [[1.0 + step * total + first + r] for step in range(4) for r in range(local)], np.float32
    )
    out = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with strategy.scope():
        batches = tf.data.Dataset.from_tensor_slices(xs / 10)
        feed = ipu.ipu_infeed_queue.IPUIterator(dataset=batches)
        w = tf.Variable([0.0])
        optimizer = tf.keras.optimizers.SGD(0.1)

        def step(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum((w * x - 3 * x) ** 2) / strategy.num_replicas_in_sync
            gradient = tape.gradient(loss, [w])
            optimizer.apply_gradients(zip(gradient, [w], strict=True))
            out.enqueue(loss)
            return loss

        @tf.function(jit_compile=True)
        def program(iterator):
            loss = 0.0
            for _ in tf.range(4):
                loss = step(next(iterator))
            return loss

        last = strategy.run(program, args=[feed])
        return {
            "w": float(w.numpy()[0]),
            "losses": out.dequeue().numpy().reshape(4, local).tolist(),
            "reduced": float(strategy.reduce(SUM, last, axis=None).numpy()),
        }


def collectives_on_host():
    me = float(popdist.getInstanceIndex())
    mine = tf.constant([me, 10 * me])
    flags = tf.constant([me == 0, True])
    return {
        "gathered": distributed.allgather(mine).numpy().tolist(),
        "sum": distributed.allreduce(mine, SUM).numpy().tolist(),
        "mean": distributed.allreduce(tf.constant(int(3 * me)), MEAN).numpy().tolist(),
        "broadcast": distributed.broadcast(mine, root_rank=1).numpy().tolist(),
        "flags": distributed.allgather(flags).numpy().tolist(),
    }


def collectives_in_graphs():
    """More collectives than TensorFlow has threads, in another order in each instance."""
    me = popdist.getInstanceIndex()
    names = [f"value_{i}" for i in range(12)]
    names = names[::-1] if me % 2 else names

    @tf.function
    def graph(x):
        return {
            name: distributed.allreduce(x + float(name.split("_")[1]), SUM, tensor_name=name)
            for name in names
        }

    found = {name: float(value) for name, value in graph(tf.constant(float(me))).items()}
    return [found[name] for name in sorted(found, key=lambda name: int(name.split("_")[1]))]


def batch_norm(strategy):
    """Moving averages are means over the instances once somebody reads them."""
    with strategy.scope():
        norm = tf.keras.layers.BatchNormalization(momentum=0.0)
        norm.build([None, 1])

        @tf.function
        def program(x):
            return norm(x, training=True)

        strategy.run(program, args=[tf.constant([[2.0 * (popdist.getInstanceIndex() + 1)], [0.0]])])
        return [float(norm.moving_mean.numpy()[0]), float(norm.moving_variance.numpy()[0])]


def reading(strategy):
    with strategy.scope():
        counts = tf.Variable(
            0.0,
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )

        @tf.function
        def program(x):
            counts.assign_add(x)
            return counts.read_value()

        own = strategy.run(program, args=[tf.constant(popdist.getInstanceIndex() + 1.0)])
        return [float(own), float(counts.read_value())]


def of_horovod():
    hvd.init()
    me = hvd.rank()
    mine = tf.range(2 * me, 2 * me + 3, dtype=tf.float32)
    rows = tf.fill([me + 1, 2], float(me))
    variable = tf.Variable([float(me)])
    hvd.broadcast_variables([variable], root_rank=1)

    @tf.function
    def graph(x):
        return hvd.allreduce(x, op=hvd.Sum), hvd.allgather(x[: me + 1]), hvd.broadcast(x, 1)

    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = variable * (me + 1.0)
    return {
        "places": [me, hvd.size(), hvd.local_rank(), hvd.local_size()],
        "average": hvd.allreduce(mine).numpy().tolist(),
        "sum": hvd.allreduce(mine, op=hvd.Sum).numpy().tolist(),
        "old": hvd.allreduce(mine, average=False).numpy().tolist(),
        "min": hvd.allreduce(mine, op=hvd.Min).numpy().tolist(),
        "max": hvd.allreduce(mine, op=hvd.Max).numpy().tolist(),
        "product": hvd.allreduce(mine, op=hvd.Product).numpy().tolist(),
        "scaled": hvd.allreduce(mine, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25)
        .numpy()
        .tolist(),
        "grouped": [t.numpy().tolist() for t in hvd.grouped_allreduce([mine, mine + 1])],
        "gathered": hvd.allgather(rows).numpy().tolist(),
        "scalars": hvd.allgather(tf.constant(me)).numpy().tolist(),
        "broadcast": hvd.broadcast(mine, root_rank=1).numpy().tolist(),
        "variable": variable.numpy().tolist(),
        "object": hvd.broadcast_object({"from": me}, root_rank=1),
        "objects": hvd.allgather_object("x" * (me + 1)),
        "graph": [t.numpy().tolist() for t in graph(mine)],
        "gradient": tape.gradient(loss, [variable])[0].numpy().tolist(),
    }


def large_tensors(strategy):
    """Too large for a frame: they go through gloo's own reduction."""
    random = np.random.default_rng(popdist.getInstanceIndex())
    mine = random.normal(size=[50, 200]).astype(np.float32)

    @tf.function
    def program(x):
        return cross_replica_ops.cross_replica_sum(x)

    with strategy.scope():
        summed = strategy.run(program, args=[tf.constant(mine)]).numpy()
    gathered = distributed.allgather(mine).numpy()
    return {
        "close": bool(np.allclose(summed, 2 * gathered.sum(0), atol=1e-5)),
        "digest": float(np.float64(summed).sum()),
        "mine_is_there": bool((gathered[popdist.getInstanceIndex()] == mine).all()),
    }


# Programs in which something goes wrong


def endless_training(folder):
    """Trains until somebody is killed."""
    strategy = strategy_for_instance()

    class Tell(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 2:
                open(os.path.join(folder, f"trains.{popdist.getInstanceIndex()}"), "w").close()

    with strategy.scope():
        model().fit(own_share(), epochs=100_000, verbose=0, callbacks=[Tell()])


def failing_callback():
    strategy = strategy_for_instance()

    class Fail(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1 and popdist.getInstanceIndex() == 1:
                raise RuntimeError("no more disk")

    with strategy.scope():
        model().fit(own_share(), epochs=1000, verbose=0, callbacks=[Fail()])


def ends_early():
    strategy = strategy_for_instance()
    with strategy.scope():
        model().fit(own_share(), epochs=1 + 1000 * popdist.getInstanceIndex(), verbose=0)


def goes_another_way():
    """Instance 0 evaluates alone while the other goes on with training."""
    strategy = strategy_for_instance()
    with strategy.scope():
        trained = model()
        trained.fit(own_share(), epochs=1, verbose=0)
        if popdist.getInstanceIndex() == 0:
            trained.evaluate(own_share(), verbose=0)
        trained.fit(own_share(), epochs=1, verbose=0)


def wrong_configuration():
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.experimental.multi_replica_distribution.process_count = 3
    config.configure_ipu_system()

    @tf.function
    def program():
        return cross_replica_ops.cross_replica_sum(1.0)

    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        strategy.run(program)


def sleeps_before_the_others(seconds):
    """Slow is not dead."""
    if popdist.getInstanceIndex() == 1:
        time.sleep(seconds)
    return distributed.allreduce(tf.constant(1.0), SUM).numpy().tolist()
