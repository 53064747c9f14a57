"""The partition of a run: used, created, updated, reset and removed, as the options ask."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from softipu import devices
from softipu.devices import ipuof
from softipu.devices.entities import PartitionRequest
from softipu.errors import (
    AmbiguousPartition,
    InUse,
    InvalidTopology,
    NoFreeIpus,
    NotEnoughIpus,
    PartitionMismatch,
    PartitionNotRemoved,
    ServerUnreachable,
    UnknownPartition,
)
from softipu.poprun import job, options, partition
from softipu.poprun.log import Log
from softipu.vipu.local import LocalController


def decide(*words: str, others: tuple[str, ...] = ()):
    chosen = options.parse([*words, "prog"])
    return partition.decide(chosen, job.topology(chosen), others, Log(chosen.verbosity))


def carry_out(*words: str) -> partition.Use:
    decision, controller = decide(*words)
    partition.make(decision, controller, Log())
    partition.settle(decision, controller, 1, Log())
    return decision.use


@pytest.fixture
def controller() -> LocalController:
    return LocalController()


def make(controller: LocalController, name: str = "p1", size: int = 4, **more):
    return controller.create_partition(
        PartitionRequest(name, size, **{"reconfigurable": True, **more})
    )


def test_without_anything_the_whole_embedded_system_is_used():
    decision, _ = decide("--num-replicas=8")
    assert decision.action == "use"
    assert (decision.use.name, decision.use.size, decision.use.created) == ("ipuof", 16, False)


def test_more_ipus_than_the_system_has_are_an_error_before_anything_starts():
    with pytest.raises(NotEnoughIpus, match="16 IPUs, too few for 2 instances of 16 IPUs"):
        decide("--num-replicas=32", "--num-instances=2")


def test_a_named_partition_is_created_with_a_gcd_for_each_instance(controller):
    use = carry_out("--vipu-partition=new", "--num-instances=2", "--num-replicas=4")
    info = controller.partition_info("new")
    assert (info.size, info.num_gcds, info.reconfigurable) == (4, 2, True)
    assert use.created
    assert [use.gcd_of(n) for n in (0, 1)] == [0, 1]


def test_three_instances_share_one_gcd_of_the_next_power_of_two(controller):
    use = carry_out("--vipu-partition=new", "--num-instances=3", "--num-replicas=3")
    info = controller.partition_info("new")
    assert (info.size, info.num_gcds) == (4, 1)
    assert use.gcd_of(2) == 0


def test_replicas_of_three_ipus_take_four(controller):
    carry_out(
        "--vipu-partition=new", "--num-instances=2", "--num-replicas=2", "--ipus-per-replica=3"
    )
    assert controller.partition_info("new").size == 8


def test_a_sync_type_makes_a_fixed_partition(controller):
    use = carry_out("--vipu-partition=new", "--num-replicas=4", "--sync-type=ST_POD_NATIVE_DEFAULT")
    info = controller.partition_info("new")
    assert (info.sync_type, info.reconfigurable) == ("pod-native-default", False)
    assert not use.reconfigurable
    with pytest.raises(InvalidTopology, match="GCD each"):
        decide("--vipu-partition=x", "--num-instances=3", "--num-replicas=3",
               "--sync-type=ST_POD_NATIVE_DEFAULT")  # fmt: skip


def test_looking_changes_nothing(controller):
    decision, _ = decide("--vipu-partition=new", "--num-replicas=4")
    assert "create partition new (4 IPUs" in decision.describe()
    assert controller.partitions() == ()


def test_a_partition_that_fits_is_used_as_it_is(controller):
    made = make(controller)
    decision, _ = decide("--vipu-partition=p1", "--num-replicas=2", "--num-instances=2")
    assert (decision.action, decision.reset, decision.use.created) == ("use", False, False)
    assert controller.partition_info("p1") == made


def test_the_only_partition_is_used_without_its_name(controller, capsys):
    make(controller)
    assert decide("--num-replicas=4", "-v")[0].use.name == "p1"
    said = capsys.readouterr().err
    assert "POPRUN [I] Using V-IPU partition p1 as it is the only one available" in said
    assert "POPRUN [I] Partition p1 already exists and is in state: PS_ACTIVE" in said


def test_one_of_several_partitions_has_to_be_named(controller, monkeypatch):
    make(controller, "a")
    make(controller, "b")
    with pytest.raises(AmbiguousPartition, match="a, b"):
        decide()
    monkeypatch.setenv("IPUOF_VIPU_API_PARTITION_ID", "b")
    assert decide()[0].use.name == "b"


def test_a_partition_of_the_environment_is_never_created(monkeypatch):
    monkeypatch.setenv("IPUOF_VIPU_API_PARTITION_ID", "gone")
    with pytest.raises(UnknownPartition):
        decide()


@pytest.mark.parametrize(
    ("shape", "words", "says"),
    [
        ({"size": 2}, ["--num-replicas=4"], "2 IPUs, too few for 1 instance of 4 IPUs"),
        ({"size": 4, "reconfigurable": False}, ["--num-replicas=2"], "one device of 4 IPUs"),
        ({"size": 8, "num_gcds": 4}, ["--num-replicas=8", "--num-instances=2"], "4 GCDs"),
        ({"size": 4, "num_gcds": 2}, ["--num-replicas=8", "--num-instances=2"], "GCDs have 2 IPUs"),
        ({"size": 4}, ["--num-replicas=4", "--sync-type=ST_POD_NATIVE_DEFAULT"], "sync type"),
    ],
)
def test_a_partition_that_does_not_fit_is_an_error_or_updated(controller, shape, words, says):
    make(controller, **shape)
    with pytest.raises(PartitionMismatch, match=says):
        decide("--vipu-partition=p1", *words)
    use = carry_out("--vipu-partition=p1", "--update-partition=yes", *words)
    assert not use.created  # the name was somebody else's: it stays
    assert decide("--vipu-partition=p1", *words)[0].action == "use"


def test_a_partition_that_cannot_be_updated_is_there_as_before(controller):
    make(controller, "first", 4)
    before = make(controller, num_gcds=2, gcd_sync_replicas=2)
    controller.remove_partition("first")
    make(controller, "other", 8)
    with pytest.raises(NoFreeIpus):
        carry_out("--vipu-partition=p1", "--update-partition=yes", "--num-replicas=16")
    after = controller.partition_info("p1")
    assert dataclasses.replace(after, created=before.created) == before  # its IPUs as well


def test_a_partition_that_is_gone_after_all_is_said_to_be(controller, monkeypatch):
    make(controller)
    decision, found = decide("--vipu-partition=p1", "--update-partition=yes", "--num-replicas=8")

    def refuse(request):
        raise ServerUnreachable(f"No {request.size} today.")

    monkeypatch.setattr(found, "create_partition", refuse)
    with pytest.raises(ServerUnreachable, match=r"No 8 today\. Partition p1, .*: No 4 today\."):
        partition.make(decision, found, Log())


def test_a_fixed_partition_is_reset_unless_told_otherwise(controller, capsys):
    make(controller, size=4, reconfigurable=False)
    words = ["--vipu-partition=p1", "--num-replicas=4"]
    assert decide(*words)[0].reset
    assert not decide(*words, "--reset-partition=no")[0].reset
    assert not decide("--vipu-partition=q", "--num-replicas=4")[0].reset
    chosen = options.parse([*words, "prog"])
    decision, found = partition.decide(chosen, job.topology(chosen), (), Log())
    partition.settle(decision, found, 1, Log(1))
    assert "Reset partition p1" in capsys.readouterr().err


def test_a_reconfigurable_partition_is_reset_when_told(controller):
    make(controller)
    assert decide("--vipu-partition=p1", "--reset-partition")[0].reset


def test_a_partition_in_use_is_neither_reset_nor_updated(controller, monkeypatch):
    make(controller)
    monkeypatch.setenv("IPUOF_VIPU_API_PARTITION_ID", "p1")
    with devices.attach(1):
        for words in (["--reset-partition=yes"], ["--update-partition", "--num-replicas=8"]):
            with pytest.raises(InUse):
                carry_out("--vipu-partition=p1", *words)
    assert controller.partition_info("p1").size == 4


def test_no_room_for_a_new_partition_is_an_error(controller):
    make(controller, size=16)
    with pytest.raises(NoFreeIpus):
        carry_out("--vipu-partition=new", "--num-replicas=4")


def test_offline_no_partition_is_looked_at(monkeypatch):
    monkeypatch.setenv("IPUOF_VIPU_API_HOST", "192.0.2.1")
    decision, controller = decide("--offline-mode=yes", "--num-replicas=4096")
    assert (decision.action, controller) == ("none", None)


def test_a_file_that_describes_the_partition_is_enough(controller, tmp_path: Path, monkeypatch):
    make(controller, "filed", 4)
    path = tmp_path / "filed.conf"
    path.write_text(ipuof.dumps(controller.ipuof_config("filed")))
    monkeypatch.setenv("IPUOF_CONFIG_PATH", str(path))
    use = decide("--num-replicas=4")[0].use
    assert (use.name, use.from_file, use.size) == ("filed", True, 4)
    with pytest.raises(PartitionMismatch, match="too few"):
        decide("--num-replicas=8")


def test_other_hosts_are_told_of_the_file_that_describes_the_partition(
    controller, tmp_path: Path, monkeypatch
):
    """Else they would use the embedded system of each, and nobody would notice."""
    make(controller, "filed", 4)
    (tmp_path / "filed.conf").write_text(ipuof.dumps(controller.ipuof_config("filed")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPUOF_CONFIG_PATH", "filed.conf")
    chosen = options.parse(["--host=localhost,192.0.2.7", "--num-replicas=2", "prog"])
    topology = job.topology(chosen)
    decision, _ = partition.decide(chosen, topology, ("192.0.2.7",), Log())
    given = job.arguments(chosen, topology, Log())
    made = job.build(chosen, topology, given, decision.use, Log())
    assert made.environments[1]["IPUOF_CONFIG_PATH"] == str(tmp_path / "filed.conf")
    assert "IPUOF_CONFIG_PATH" not in made.environments[0]  # it inherits it


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", "127.9.9.9"])
def test_a_server_on_loopback_is_none_for_several_hosts(monkeypatch, name):
    with pytest.raises(ServerUnreachable, match=r"b, c cannot reach the V-IPU server"):
        decide(f"--vipu-server-host={name}", "--num-replicas=4", others=("b", "c"))
    monkeypatch.setenv("IPUOF_VIPU_API_HOST", name)
    with pytest.raises(ServerUnreachable, match="the host itself") as caught:
        decide("--num-replicas=4", others=("b",))
    assert "--vipu-server-host" in caught.value.remedy


def test_the_timeout_of_a_file_of_options_is_for_the_server_and_the_instances(tmp_path: Path):
    path = tmp_path / "run.conf"
    path.write_text("vipu-server-timeout=7\n")
    words = [f"--import-config={path}", "--vipu-server-host=192.0.2.1"]
    assert partition.controller_for(options.parse([*words, "prog"]))._timeout == 7
    chosen = options.parse([*words, "--vipu-server-timeout=8", "prog"])
    assert partition.controller_for(chosen)._timeout == 8


def test_several_hosts_without_a_server_use_their_own_systems():
    decision, controller = decide("--num-replicas=4", others=("b",))
    assert (decision.use.name, controller) == (None, None)
    with pytest.raises(NotEnoughIpus, match="Each host needs 32"):
        decide("--num-replicas=32", others=("b",))
    with pytest.raises(PartitionMismatch, match="cannot see"):
        decide("--vipu-partition=p", others=("b",))


def test_a_server_that_is_not_there_is_named():
    with pytest.raises(ServerUnreachable, match="127.0.0.1:9"):
        decide("--vipu-server-host=127.0.0.1", "--vipu-server-port=9", "--vipu-server-timeout=5")


def test_removing_waits_for_programs_that_are_about_to_end(controller, monkeypatch):
    make(controller)
    monkeypatch.setenv("IPUOF_VIPU_API_PARTITION_ID", "p1")
    lease = devices.attach(1)
    naps = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        lease.release()

    partition.remove(controller, "p1", 30, sleep=nap)
    assert naps
    assert controller.partitions() == ()
    partition.remove(controller, "p1")  # gone already is fine


def test_a_partition_that_somebody_keeps_busy_is_said_to_be_left(controller, monkeypatch):
    make(controller)
    monkeypatch.setenv("IPUOF_VIPU_API_PARTITION_ID", "p1")
    with devices.attach(1), pytest.raises(PartitionNotRemoved, match="p1 is still there"):
        partition.remove(controller, "p1", 0.3)
