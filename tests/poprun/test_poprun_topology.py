"""Hosts, instances and replicas: lists of hosts, the plan, its picture."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softipu.errors import HostListInvalid, InvalidTopology
from softipu.poprun import hosts, picture, plan

# --- lists of hosts ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ("a",)),
        ("a,b", ("a", "b")),
        (" a , b ,", ("a", "b")),
        ("host[0-2,4]", ("host0", "host1", "host2", "host4")),
        ("n[08-10]-ib,x", ("n08-ib", "n09-ib", "n10-ib", "x")),
        ("10.1.3.[101-102]", ("10.1.3.101", "10.1.3.102")),
        ("me@a,b", ("me@a", "b")),
    ],
)
def test_a_list_of_hosts_is_expanded(text, names):
    assert hosts.parse(text) == names


@pytest.mark.parametrize(
    "text",
    ["", ",", "a,a", "h[0-1],h1", "h[2-1]", "h[a]", "h[0-1", "h]0[", "h[0-99999]", "-oProxyCommand=x",
     "a b", "a;b", "h[[0-1]]", "x[]"],
)  # fmt: skip
def test_what_is_no_list_of_hosts_is_refused(text):
    with pytest.raises(HostListInvalid):
        hosts.parse(text)


def test_a_host_file_has_a_host_on_each_line(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("# ours\nnode1   # the first\n\n  node[2-3]\n")
    assert hosts.read(path) == ("node1", "node2", "node3")
    path.write_text("# none\n")
    with pytest.raises(HostListInvalid, match="names no host"):
        hosts.read(path)
    with pytest.raises(HostListInvalid, match="cannot be read"):
        hosts.read(tmp_path / "missing")


@given(st.lists(st.integers(0, 500), min_size=1, max_size=20, unique=True))
@settings(deadline=None)
def test_a_bracket_of_numbers_is_the_same_as_writing_them_out(numbers):
    short = hosts.parse(f"n[{','.join(map(str, numbers))}]")
    assert short == hosts.parse(",".join(f"n{number}" for number in numbers))


def test_this_host_is_known_by_its_names_and_addresses():
    for name in ("localhost", "127.0.0.1", socket.gethostname()):
        assert hosts.is_here(name)
    for name in ("192.0.2.1", "no-such-host.invalid", "somebody@localhost"):
        assert not hosts.is_here(name)


# --- the plan ---------------------------------------------------------------------------------


def test_replicas_are_divided_among_instances_and_these_among_hosts():
    found = plan.make(hosts=("a", "b"), num_instances=4, num_replicas=8, ipus_per_replica=2)
    assert [(i.host, i.local_index, i.replica_offset, i.replicas) for i in found.instances] == [
        (0, 0, 0, 2), (0, 1, 2, 2), (1, 0, 4, 2), (1, 1, 6, 2),
    ]  # fmt: skip
    assert (found.ipus, found.ipus_per_instance, found.instances_per_host) == (16, 4, 2)


@given(
    st.integers(1, 6), st.integers(1, 6), st.integers(1, 6), st.sampled_from([1, 2, 4])
)  # fmt: skip
@settings(deadline=None)
def test_every_replica_belongs_to_exactly_one_instance(number, per_host, each, ipus):
    count = number * per_host
    found = plan.make(
        hosts=[f"h{n}" for n in range(number)],
        num_instances=count,
        num_replicas=count * each,
        ipus_per_replica=ipus,
        num_ilds=count,
    )
    owned = [r for i in found.instances for r in range(i.replica_offset, i.replica_offset + each)]
    assert owned == list(range(found.replicas))
    assert [i.index for h in range(number) for i in found.on_host(h)] == list(range(count))


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ({"num_instances": 2}, "1 replica cannot be divided evenly among 2 instances"),
        ({"num_instances": 3, "num_replicas": 4}, "4 replicas cannot be divided"),
        ({"hosts": "ab", "num_instances": 3, "num_replicas": 3}, "3 instances cannot .* 2 hosts"),
        ({"hosts": "ab", "instances_per_host": 2, "num_instances": 3}, "makes 4 instances"),
        ({"num_replicas": 128, "num_ilds": 1}, "128 IPUs need 2 IPU-Link domains"),
        ({"num_replicas": 4, "num_ilds": 3}, "4 replicas .* 3 IPU-Link domains"),
        ({"num_instances": 5000, "num_replicas": 5000, "num_ilds": 5000}, "more than"),
    ],
)
def test_numbers_that_do_not_divide_are_an_error(numbers, says):
    with pytest.raises(InvalidTopology, match=says) as caught:
        plan.make(**numbers)
    assert caught.value.remedy


def test_instances_per_host_says_how_many_there_are():
    assert len(plan.make(hosts="abc", instances_per_host=2, num_replicas=6).instances) == 6


def test_without_numbers_each_host_has_one_instance():
    assert len(plan.make().instances) == 1
    assert len(plan.make(hosts="abc", num_replicas=3).instances) == 3


def test_link_domains_follow_from_the_ipus():
    assert plan.make(num_replicas=16, ipus_per_replica=4).ilds == 1
    assert plan.make(num_replicas=32, ipus_per_replica=4).ilds == 2
    assert plan.make(num_replicas=16, num_ilds=4).ilds == 4
    assert plan.make(num_replicas=100).ilds == 2
    assert plan.make(num_replicas=195).ilds == 5  # 4 are enough, but do not divide it
    with pytest.raises(InvalidTopology, match="1 replicas .* 2 IPU-Link domains"):
        plan.make(ipus_per_replica=128)


# --- the picture ------------------------------------------------------------------------------


def drawn(**numbers) -> str:
    return picture.draw(plan.make(**numbers))


def test_one_instance_on_a_named_host_is_drawn_to_the_character():
    assert (
        drawn(hosts=("gc-poplar-02",), num_replicas=4)
        == """\
 ===========================
|      poprun topology      |
|===========================|
| hosts     | gc-poplar-02  |
|-----------|---------------|
| ILDs      |       0       |
|-----------|---------------|
| instances |       0       |
|-----------|---------------|
| replicas  | 0 | 1 | 2 | 3 |
 ---------------------------"""
    )


def test_two_instances_stand_over_their_replicas():
    assert (
        drawn(num_replicas=8, num_instances=2)
        == """\
 ===========================================
|              poprun topology              |
|===========================================|
| hosts     |           localhost           |
|-----------|-------------------------------|
| ILDs      |               0               |
|-----------|-------------------------------|
| instances |       0       |       1       |
|-----------|-------------------------------|
| replicas  | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
 -------------------------------------------"""
    )


def test_a_host_whose_name_finds_no_room_is_a_number():
    assert (
        drawn(num_replicas=2, num_instances=2)
        == """\
 ===================
|  poprun topology  |
|===================|
| hosts     |  [0]  |
|-----------|-------|
| ILDs      |   0   |
|-----------|-------|
| instances | 0 | 1 |
|-----------|-------|
| replicas  | 0 | 1 |
 -------------------"""
    )


def test_replica_numbers_are_as_wide_as_the_widest():
    lines = drawn(num_replicas=16, ipus_per_replica=4).splitlines()
    assert lines[0] == " " + "=" * 91
    assert lines[3] == f"| hosts     |{' ' * 35}localhost{' ' * 35}|"
    assert lines[9].startswith("| replicas  | 0  | 1  | 2  |")
    assert lines[9].endswith("| 14 | 15 |")


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5))
@settings(deadline=None)
def test_all_lines_have_the_same_width(number, per_host, each):
    count = number * per_host
    names = [f"host{n}" for n in range(number)]
    lines = drawn(hosts=names, num_instances=count, num_replicas=count * each).splitlines()
    assert len(lines) == 11
    widths = {len(line) for line in lines[1:-1]}
    assert widths == {len(lines[0]) + 1}
    assert len(lines[0]) == len(lines[-1])
    assert lines[9].count("|") == count * each + 2
    assert lines[7].count("|") == count + 2
