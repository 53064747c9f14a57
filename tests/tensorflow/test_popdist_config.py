"""popdist.tensorflow and what surrounds it, in one process."""

from __future__ import annotations

import copy

import pytest
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.ipu.ops.cross_replica_ops import cross_replica_sum

import horovod.tensorflow as hvd
import popdist.tensorflow
from softipu import devices
from softipu.errors import HorovodMisuse, InstanceEnvironment, PopdistTensorFlowMisuse
from softipu.frontends.tensorflow import between_instances, system


@pytest.fixture
def launched(monkeypatch):
    """The variables of instance 1 of 2, with two replicas of one or more IPUs each."""

    def set_variables(ipus_per_replica=1, **changes):
        values = {
            "RANK": 1,
            "WORLD_SIZE": 2,
            "POPDIST_LOCAL_INSTANCE_INDEX": 1,
            "POPDIST_NUM_TOTAL_REPLICAS": 4,
            "POPDIST_NUM_LOCAL_REPLICAS": 2,
            "POPDIST_NUM_IPUS_PER_REPLICA": ipus_per_replica,
            "POPDIST_REPLICA_INDEX_OFFSET": 2,
            **changes,
        }
        for name, value in values.items():
            monkeypatch.setenv(name, str(value))

    return set_variables


@pytest.mark.parametrize("ipus", [1, 2])
def test_the_configuration_names_the_instance_and_ipus_of_its_own(launched, ipus):
    launched(ipus)
    config = ipu.config.IPUConfig()
    assert popdist.tensorflow.set_ipu_config(config, ipus_per_replica=ipus) is config
    distribution = config.experimental.multi_replica_distribution
    assert (distribution.process_index, distribution.process_count) == (1, 2)
    chosen = devices.active_partition().device(config.select_ipus)
    assert len(chosen.ipus) == 2 * ipus
    assert chosen.ipus[0].id == 2 * ipus  # after those of instance 0


def test_a_program_that_poprun_did_not_start_gets_ipus_for_one_replica():
    config = ipu.config.IPUConfig()
    popdist.tensorflow.set_ipu_config(config, ipus_per_replica=2)
    assert config.auto_select_ipus == 2
    assert config.experimental.multi_replica_distribution.process_count == 1


def test_the_device_can_be_left_to_the_program(launched):
    launched()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    with pytest.raises(PopdistTensorFlowMisuse, match="configure_device=False"):
        popdist.tensorflow.set_ipu_config(config)
    popdist.tensorflow.set_ipu_config(config, configure_device=False)
    assert config.auto_select_ipus == 2
    assert config.experimental.multi_replica_distribution.process_count == 2


def test_a_second_call_replaces_what_the_first_one_chose():
    config = ipu.config.IPUConfig()
    for ipus in (1, 1, 2):
        popdist.tensorflow.set_ipu_config(config, ipus_per_replica=ipus)
        assert config.auto_select_ipus == ipus
    for same in (copy.deepcopy(config), config):  # also those that came from a configured one
        popdist.tensorflow.set_ipu_config(same, ipus_per_replica=2)
        assert same.auto_select_ipus == 2
    config.auto_select_ipus = 4
    with pytest.raises(PopdistTensorFlowMisuse, match="auto_select_ipus=4"):
        popdist.tensorflow.set_ipu_config(config)


def test_a_second_call_chooses_the_same_ipus_for_an_instance(launched):
    launched()
    config = ipu.config.IPUConfig()
    popdist.tensorflow.set_ipu_config(config)
    chosen = config.select_ipus
    popdist.tensorflow.set_ipu_config(config)
    assert config.select_ipus == chosen
    assert config.auto_select_ipus == []


def test_the_first_device_is_a_choice_of_the_program_too():
    config = ipu.config.IPUConfig()
    config.select_ipus = 0
    with pytest.raises(PopdistTensorFlowMisuse, match="select_ipus=0"):
        popdist.tensorflow.set_ipu_config(config)


@pytest.mark.parametrize(
    ("config", "arguments", "message"),
    [
        ({}, {}, "needs an IPUConfig, but got a dict"),
        (None, {"ipus_per_replica": 2}, "poprun was started with --ipus-per-replica 1"),
        (None, {"ipus_per_replica": 0}, "at least 1"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(launched, config, arguments, message):
    launched()
    given = ipu.config.IPUConfig() if config is None else config
    with pytest.raises(PopdistTensorFlowMisuse, match=message):
        popdist.tensorflow.set_ipu_config(given, **arguments)


def test_variables_that_contradict_each_other_are_refused(launched):
    launched(POPDIST_REPLICA_INDEX_OFFSET=0)
    with pytest.raises(InstanceEnvironment, match="contradict"):
        popdist.tensorflow.set_ipu_config(ipu.config.IPUConfig())


def test_ipus_of_all_instances_are_counted_together(ipus):
    ipus(2)
    assert system.instance() == (0, 1)
    assert ipu.utils.get_num_of_ipus_in_device("/device:IPU:0") == 2
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.experimental.multi_replica_distribution.process_count = 3
    config.experimental.multi_replica_distribution.process_index = 2
    config.configure_ipu_system()
    assert system.instance() == (2, 3)
    assert ipu.utils.get_num_of_ipus_in_device("/device:IPU:0") == 6


def test_a_compiled_function_that_is_called_on_an_ipu_device_runs_on_all_its_replicas(ipus):
    ipus(2)

    @tf.function(jit_compile=True)
    def inner(x):
        return cross_replica_sum(x)

    @tf.function(jit_compile=True)
    def outer(x):
        index = tf.cast(ipu.replication_ops.replication_index(), tf.float32)
        return inner(x + index)

    with tf.device("/device:IPU:0"):
        assert float(outer(tf.constant(10.0))) == 21.0
    assert float(outer(tf.constant(10.0))) == 10.0  # not on the IPU: one of its kind


def test_one_instance_speaks_with_itself_through_horovod():
    hvd.shutdown()
    with pytest.raises(HorovodMisuse, match=r"hvd\.init\(\)"):
        hvd.size()
    hvd.init()
    x = tf.constant([1.0, 2.0])
    assert hvd.allreduce(x).numpy().tolist() == [1, 2]
    assert hvd.allgather(x).numpy().tolist() == [1, 2]
    assert hvd.allgather_object({"a": 1}) == [{"a": 1}]
    with pytest.raises(HorovodMisuse, match="no rank 1"):
        hvd.broadcast(x, root_rank=1)
    with pytest.raises(HorovodMisuse, match="not both"):
        hvd.allreduce(x, average=True, op=hvd.Sum)
    with pytest.raises(HorovodMisuse, match="not one of Average"):
        hvd.allreduce(x, op=hvd.Adasum)
    with pytest.raises(HorovodMisuse, match="compression"):
        hvd.allreduce(x, compression="fp16")


def test_older_names_lead_to_the_same_things():
    from tensorflow.python.ipu import horovod as older
    from tensorflow.python.ipu.distributed import popdist_strategy
    from tensorflow.python.ipu.horovod import popdist_strategy as older_strategy

    assert older_strategy.PopDistStrategy is popdist_strategy.PopDistStrategy
    assert older.allgather is hvd.allgather


def test_strings_do_not_travel():
    with pytest.raises(TypeError, match="strings"):
        between_instances.on_host("sum", tf.constant("text"), "name")
