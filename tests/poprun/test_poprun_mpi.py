"""Arguments for mpirun: honoured, noted or refused, none silently dropped."""

from __future__ import annotations

import pytest

from softipu.errors import MpiArgumentRefused
from softipu.poprun import mpi

GLOBAL = "--mpi-global-args"


def test_variables_are_handed_on_or_set():
    found = mpi.parse('-x A -x B=1 -x "C=two words" -x D=', "--mpi-local-args")
    assert found.variables == [("A", None), ("B", "1"), ("C", "two words"), ("D", "")]
    assert found.notes == []


def test_arguments_may_stretch_over_lines_as_in_spec_files():
    text = """
        -x POPLAR_RUNTIME_OPTIONS
        -x POPLAR_ENGINE_OPTIONS"""
    assert [name for name, _ in mpi.parse(text, GLOBAL).variables] == [
        "POPLAR_RUNTIME_OPTIONS", "POPLAR_ENGINE_OPTIONS",
    ]  # fmt: skip


def test_the_network_of_open_mpi_is_ours_too():
    text = "--mca oob_tcp_if_include eno1 --mca btl_tcp_if_include 10.5.0.0/16,eno2"
    assert mpi.parse(text, GLOBAL).interfaces == ["10.5.0.0/16", "eno2"]
    swapped = "--mca btl_tcp_if_include eno2 --mca oob_tcp_if_include eno1"
    assert mpi.parse(swapped, GLOBAL).interfaces == ["eno2"]


def test_what_only_tunes_open_mpi_is_noted():
    found = mpi.parse("--mca pml ob1 --allow-run-as-root --map-by slot --oversubscribe", GLOBAL)
    assert len(found.notes) == 4
    assert "--mca pml" in found.notes[0]


def test_the_rest_of_the_table_is_honoured():
    text = (
        "--tag-output --timestamp-output --output-filename out --prefix /opt/p --wdir /tmp "
        "--timeout 30 --mca plm_rsh_agent 'srun -N1 -w' --mca plm_rsh_args '-p 2222'"
    )
    found = mpi.parse(text, GLOBAL)
    assert (found.tag_output, found.timestamps, found.output_directory) == (True, True, "out")
    assert (found.prefix, found.directory, found.timeout) == ("/opt/p", "/tmp", 30.0)
    assert found.remote_shell == ["srun", "-N1", "-w"]
    assert found.remote_shell_arguments == ["-p", "2222"]


@pytest.mark.parametrize(("where", "bound"), [("none", False), ("numa", True), ("socket", True)])
def test_binding_is_to_numa_nodes_or_nothing(where, bound):
    assert mpi.parse(f"--bind-to {where}", GLOBAL).bind_to_numa is bound
    assert mpi.parse(f"-bind-to {where}", GLOBAL).bind_to_numa is bound


def test_binding_to_less_than_a_node_is_noted():
    found = mpi.parse("--bind-to core:overload-allowed", GLOBAL)
    assert found.bind_to_numa is None
    assert "--bind-to core" in found.notes[0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("-np 4", "poprun decides"),
        ("--host a", "poprun decides"),
        ("--colour red", "does not know"),
        ("program", "does not know"),
        ("-x", "expects 1 value"),
        ("--mca pml", "expects 2 value"),
        ("-x =1", "names no variable"),
        ("--bind-to moon", "nothing of that name"),
        ("--timeout soon", "not a number of seconds"),
        ("-x 'A", "cannot be split"),
    ],
)
def test_what_cannot_be_honoured_is_an_error(text, says):
    with pytest.raises(MpiArgumentRefused, match=says):
        mpi.parse(text, GLOBAL)


@pytest.mark.parametrize("text", ["--tag-output", "--bind-to numa", "--mca pml ob1"])
def test_what_is_for_the_whole_run_cannot_be_for_one_instance(text):
    with pytest.raises(MpiArgumentRefused, match="whole run"):
        mpi.parse(text, "--instance-mpi-local-args", single=True)


def test_every_argument_of_the_table_is_recognised():
    for argument in mpi.ARGUMENTS:
        for name in argument.names:
            values = ["none"] if name.endswith("bind-to") else ["1"] * argument.values
            words = " ".join([name, *values])
            if argument.fate == mpi.REFUSED:
                with pytest.raises(MpiArgumentRefused):
                    mpi.parse(words, GLOBAL)
            else:
                found = mpi.parse(words, GLOBAL)
                assert argument.fate != mpi.IGNORED or found.notes
