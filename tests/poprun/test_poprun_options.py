"""poprun's command line: one table of options, shortened names, files of options."""

from __future__ import annotations

from pathlib import Path

import pytest

from softipu.errors import PoprunConfigInvalid, UsageError
from softipu.poprun import config_file, job, options
from softipu.poprun.cli import main

DOCS = Path(__file__).parents[2] / "docs"


def test_options_end_where_the_program_begins():
    found = options.parse(
        [
            "-vv",
            "--num-replicas",
            "4",
            "--num-instances=2",
            "python3",
            "t.py",
            "--num-replicas",
            "9",
        ]
    )
    assert (found.num_replicas, found.num_instances, found.verbosity) == (4, 2, 2)
    assert found.program == ["python3", "t.py", "--num-replicas", "9"]


def test_two_dashes_end_the_options():
    assert options.parse(["-v", "--", "-strange-program", "--dry-run"]).program == [
        "-strange-program", "--dry-run",
    ]  # fmt: skip


@pytest.mark.parametrize("word", ["yes", "1", "true", "on", "YES", "True"])
def test_yes_has_many_words(word):
    assert options.parse([f"--offline-mode={word}", "true"]).offline_mode is True
    assert options.parse(["--offline-mode", word, "true"]).program == ["true"]


@pytest.mark.parametrize("word", ["no", "0", "false", "off", "No"])
def test_no_has_many_words(word):
    assert options.parse([f"--remove-partition={word}", "x"]).remove_partition is False


def test_a_yes_no_option_may_stand_alone():
    found = options.parse(["--numa-aware", "python3", "x.py"])
    assert found.numa_aware is True
    assert found.program == ["python3", "x.py"]


def test_names_may_be_shortened_while_they_are_unique():
    assert options.parse(["--num-instance", "2", "x"]).num_instances == 2
    with pytest.raises(UsageError, match="--num-ilds, --num-instances"):
        options.parse(["--num-i", "2", "x"])


def test_vv_is_as_verbose_as_two_v():
    for words in (["--vv"], ["-vv"], ["-v", "-v"], ["--verbose", "-v"], ["--debug=yes"]):
        assert options.parse([*words, "x"]).verbosity == 2
    assert options.parse(["-v", "x"]).verbosity == 1


@pytest.mark.parametrize("words", [["-Ha,b"], ["-H", "a,b"], ["--host", "a,b"], ["--host=a,b"]])
def test_hosts_can_be_given_in_each_form(words):
    assert options.parse([*words, "x"]).host == "a,b"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--num-replica5", "2", "x"], "Did you mean --num-replicas"),
        (["-n", "2", "x"], "no option -n"),
        (["--num-replicas"], "expects a value"),
    ],
)
def test_an_unknown_option_is_an_error_with_a_hint(words, says, capsys):
    assert main(words) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    "word",
    ["--num-replicas=0", "--num-replicas=two", "--num-replicas=1_0", "--vipu-server-port=70000",
     "--vipu-server-timeout=-1", "--offline-mode=maybe", "--vipu-partition=", "--host= ",
     "--version-format=xml", "--instance-mpi-local-args=-x A"],
)  # fmt: skip
def test_a_wrong_value_is_an_error(word, capsys):
    with pytest.raises(SystemExit) as caught:
        main([word, "true"])
    assert caught.value.code == 2
    assert word[2:].partition("=")[0] in capsys.readouterr().err


def test_a_program_is_needed(capsys):
    assert main(["-v"]) == 2
    assert "a program is expected" in capsys.readouterr().err


def test_host_and_hostfile_exclude_each_other(capsys):
    assert main(["--host", "a", "--hostfile", "f", "true"]) == 2
    assert "exclude each other" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["distribute-ssh-key", "synchronise-python-venv", "synchronise-poplar-sdk"]
)
def test_what_is_left_to_others_is_refused_when_asked_for_and_fine_when_not(name):
    with pytest.raises(job.PoprunUnsupported, match=name):
        job.check(options.parse([f"--{name}=yes", "true"]))
    job.check(options.parse([f"--{name}=no", "true"]))


def test_version_comes_in_three_forms(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("poprun (softipu) ")
    assert main(["--version", "--version-format=full-json"]) == 0
    assert '"popdist"' in capsys.readouterr().out
    assert main(["--version", "--version-format", "full-text"]) == 0
    assert "python: 3." in capsys.readouterr().out


def test_every_option_says_whether_it_is_used():
    rows = options.OPTIONS
    assert len({row.name for row in rows}) == len(rows)
    for row in rows:
        assert row.support.split(",")[0].split(":")[0].split(";")[0]
        assert row.meaning[0].isupper() or row.meaning[0] in "`-"
        if row.default is not None and row.kind == "yes/no":
            assert isinstance(row.default, bool)


def test_the_documented_tables_are_those_of_the_code():
    from softipu.poprun import mpi

    page = (DOCS / "poprun.md").read_text()
    assert options.table() in page
    assert mpi.table() in page


# --- files of options -------------------------------------------------------------------------


def test_arguments_for_mpirun_add_up_when_they_are_given_again():
    found = options.parse(
        ["--mpi-local-args=-x A", "--mpi-global-args", "--tag-output", "--mpi-local-args",
         "-x B='c d'", "--mpi-global-args=--timeout 3", "prog"]
    )  # fmt: skip
    assert found.mpi_local_args == "-x A -x B='c d'"
    assert found.mpi_global_args == "--tag-output --timeout 3"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["--num-replicas=2", "--num-replicas", "4"],
            "--num-replicas is given twice, as '2' and '4'",
        ),
        (["--executable-cache-path=a", "--executable-cache-path=b"], "as 'a' and 'b'"),
        (["-H", "a", "--host=b"], "--host is given twice"),
        (["--numa-aware", "--numa-aware=0"], "as 'yes' and '0'"),
        (["--num-replicas=2", "--num-replicas=x"], "expected a whole number"),
    ],
)
def test_two_different_values_of_an_option_are_refused(words, says):
    with pytest.raises(UsageError, match=says):
        options.parse([*words, "prog"])


def test_the_same_value_twice_is_one():
    found = options.parse(
        ["--numa-aware=1", "--numa-aware", "--num-replicas=2", "--num-replicas=02", "p"]
    )
    assert (found.numa_aware, found.num_replicas) == (True, 2)


def test_exported_options_can_be_imported_and_the_command_line_wins(tmp_path):
    path = tmp_path / "run.conf"
    given = options.parse(
        ["-vv", "--num-replicas=8", "--num-instances=4", "--numa-aware=yes", "--host", "a[0-1]",
         "--mpi-local-args=-x A -x B='c d'", "--instance-mpi-local-args=1:-x C=1",
         "--instance-mpi-local-args=2:-x C=2", "--remove-partition=no", "prog"]
    )  # fmt: skip
    config_file.write(str(path), given, overwrite=False)
    again = options.parse(["--import-config", str(path), "--num-instances=2", "prog"])
    assert again.num_instances == 2
    for row in options.OPTIONS:
        if row.name not in ("num-instances", "import-config", "verbose", "vv"):
            assert getattr(again, row.key) == getattr(given, row.key), row.name
    assert again.verbosity == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("hostfile=f", ["--host=a"]),
        ("host=a", ["--host-file", "f"]),
        ("num-instances=3", ["--instances-per-host=2"]),
        ("instances-per-host=3", ["--num-instances=2"]),
    ],
)
def test_the_command_line_wins_over_the_other_way_to_say_the_same(tmp_path, line, words):
    path = tmp_path / "run.conf"
    path.write_text(f"{line}\nnum-replicas=4\n")
    found = options.parse([f"--import-config={path}", *words, "prog"])
    job.check(found)
    assert getattr(found, line.partition("=")[0].replace("-", "_")) is None
    assert found.num_replicas == 4


def test_a_file_of_options_is_only_replaced_when_told_so(tmp_path):
    path = tmp_path / "run.conf"
    path.write_text("mine")
    given = options.parse(["prog"])
    with pytest.raises(PoprunConfigInvalid, match="exists already"):
        config_file.write(str(path), given, overwrite=False)
    assert path.read_text() == "mine"
    config_file.write(str(path), given, overwrite=True)
    assert "num-replicas=1\n" in path.read_text()
    assert [one.name for one in tmp_path.iterdir() if one.is_file()] == ["run.conf"]


@pytest.mark.parametrize(
    "line", ["num-replicas", "colour=red", "num-replicas=many", "import-config=x", "verbose=7"]
)
def test_a_line_that_is_no_option_is_named(tmp_path, line):
    path = tmp_path / "run.conf"
    path.write_text(f"# a comment\n\n{line}\n")
    with pytest.raises(PoprunConfigInvalid, match=f"{path}, line 3"):
        options.parse([f"--import-config={path}", "prog"])


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(PoprunConfigInvalid, match="cannot be read"):
        options.parse([f"--import-config={tmp_path / 'none'}", "prog"])
    given = options.parse(["prog"])
    with pytest.raises(PoprunConfigInvalid, match="cannot be written"):
        config_file.write(str(tmp_path / "no" / "where"), given, overwrite=False)
