"""Spec files of the benchmark runner: what they mean, and what is said of wrong ones."""

from __future__ import annotations

import itertools
import json
import textwrap
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from softipu.bench.runner import command, environment
from softipu.bench.runner.benchmark import parse
from softipu.bench.runner.spec import Entry, find_specs, load_entries, select
from softipu.bench.runner.variants import combinations, fill, variant_name
from softipu.errors import (
    BenchmarkInvalid,
    BenchmarkUnknown,
    PlaceholderUnknown,
    ProgramMissing,
    RunnerEnvironment,
    RunnerUnsupported,
    SoftIPUError,
    SpecMalformed,
    SpecMissing,
)

#: Machines that run tests are busy: how long one example takes says nothing.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
names = st.from_regex(r"[a-z][a-z_]{0,6}", fullmatch=True)
words = st.text("abcXYZ0189._-/é", min_size=1, max_size=8)
parameters = st.dictionaries(names, words, max_size=4)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def entry(**body: object) -> Entry:
    return Entry("bench_gen", Path("/specs/benchmarks.yml"), {"cmd": "python3 run.py", **body})


# --- products of parameters and placeholders -------------------------------------------------------


@unhurried
@given(st.dictionaries(names, st.lists(words, min_size=1, max_size=3, unique=True), max_size=4))
def test_a_mapping_gives_every_combination_once(values):
    found = combinations({name: ",".join(each) for name, each in values.items()})
    expected = [
        dict(zip(values, each, strict=True)) for each in itertools.product(*values.values())
    ]
    key = lambda one: sorted(one.items())  # noqa: E731
    assert sorted(found, key=key) == sorted(expected, key=key)
    assert combinations(values) == found  # lists mean the same as text with commas


def test_the_first_parameter_of_a_mapping_changes_fastest():
    found = combinations({"request": "SYNC,ASYNC", "clients": "1, 8"})
    assert [tuple(one.values()) for one in found] == [
        ("SYNC", "1"), ("ASYNC", "1"), ("SYNC", "8"), ("ASYNC", "8"),
    ]  # fmt: skip


@unhurried
@given(st.data())
def test_a_table_gives_one_variant_per_row(data):
    heads = data.draw(st.lists(names, min_size=1, max_size=4, unique=True))
    row = st.lists(st.one_of(words, st.integers()), min_size=len(heads), max_size=len(heads))
    rows = data.draw(st.lists(row, min_size=1, max_size=5))
    found = combinations([heads, *rows])
    assert found == [dict(zip(heads, map(str, row), strict=True)) for row in rows]


def test_a_set_and_a_single_number_are_values_too():
    assert combinations({"batch": {3: None, 4: None}}) == [{"batch": "3"}, {"batch": "4"}]
    assert combinations({"phase": 384}) == [{"phase": "384"}]


@unhurried
@given(parameters, st.lists(st.one_of(words, names), max_size=6))
def test_placeholders_take_their_values_and_the_rest_stays(values, pieces):
    template = " ".join(f"{{{piece}}}" if piece in values else piece for piece in pieces)
    expected = " ".join(values.get(piece, piece) for piece in pieces)
    assert fill(template, values) == expected


@unhurried
@given(parameters, names)
def test_variables_of_the_environment_are_no_placeholders(values, name):
    text = f"run ${{{name.upper()}}} ${name}"
    assert fill(text, values) == text


@unhurried
@given(parameters)
def test_a_placeholder_without_value_is_an_error_that_names_it(values):
    with pytest.raises(PlaceholderUnknown, match="UNKNOWN"):
        fill("run {UNKNOWN}", values)


@unhurried
@given(st.text())
def test_any_text_is_filled_or_refused_with_a_code(text):
    try:
        fill(text, {"a": "1"})
    except SoftIPUError as error:
        assert error.label == "SIPU-6054"


@unhurried
@given(parameters)
def test_names_of_variants_follow_the_alphabet_not_the_file(values):
    name = variant_name("b", values)
    assert name == variant_name("b", dict(reversed(values.items())))
    assert all(f"_{key}_{value}" in name for key, value in values.items())
    assert variant_name("b", {"z": "1", "a": "2"}) == "b_a_2_z_1"


# --- files -----------------------------------------------------------------------------------------


def test_wildcards_directories_and_files_mean_spec_files_each_once(tmp_path):
    one = write(tmp_path / "a" / "benchmarks.yml", "x: {cmd: python3 x.py}")
    two = write(tmp_path / "b" / "c" / "more.yaml", "y: {cmd: python3 y.py}")
    write(tmp_path / "a" / "train.py", "print()")
    assert find_specs([f"{tmp_path}/**/*", str(one)]) == [one, two]
    assert find_specs([str(tmp_path / "a")]) == [one]
    assert [found.name for found in load_entries([one, two])] == ["x", "y"]


@pytest.mark.parametrize("pattern", ["missing.yml", "*.yml", "empty"])
def test_a_path_without_spec_files_is_an_error(tmp_path, pattern):
    (tmp_path / "empty").mkdir()
    with pytest.raises(SpecMissing):
        find_specs([str(tmp_path / pattern)])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("- a\n- b\n", "list"),
        ("a: 3\n", "'a' is a int"),
        ("a: {cmd: x\nb: }", "line 2"),
        ("a: {cmd: x}\na: {cmd: y}\n", "'a' is given twice"),
        ("a: !!python/object/apply:os.system [true]\n", "constructor"),
        ("a: &a [*a]\n", "list"),
        ("a: {cmd: \x00}", "special characters"),
    ],
)
def test_a_file_that_is_no_spec_is_told_with_the_place(tmp_path, text, said):
    path = write(tmp_path / "benchmarks.yml", text)
    with pytest.raises(SpecMalformed, match=said) as caught:
        load_entries([path])
    assert str(path) in str(caught.value)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "benchmarks.yml"
    path.write_bytes(b"\xff\xfe\x00a")
    with pytest.raises(SpecMalformed):
        load_entries([path])


def test_anchors_lend_their_keys_and_may_be_overridden(tmp_path):
    path = write(
        tmp_path / "benchmarks.yml",
        """
        first_options: &first
          env: {A: one}
          timeout: 5
        second_options: &second
          output: [[loss, loss]]
        base_gen: &base
          <<: [*first, *second]
          cmd: python3 a.py
        other_gen:
          <<: *base
          timeout: 7
        """,
    )
    base, other = (parse(one) for one in select(load_entries([path]), None))
    assert (base.name, base.env, base.timeout) == ("base_gen", {"A": "one"}, 5)
    assert (other.command, other.timeout) == ("python3 a.py", 7)
    assert other.output == [("loss", "loss")]


# --- selection -------------------------------------------------------------------------------------


def entries(*listed: str) -> list[Entry]:
    return [Entry(name, Path("/s.yml"), {"cmd": "true"}) for name in listed]


def chosen(found: list[Entry]) -> list[str]:
    return [one.name for one in found]


def test_without_names_all_run_but_templates_and_convergence_tests():
    all_entries = entries("common_options", "a", "b_conv", "c")
    assert chosen(select(all_entries, None)) == ["a", "c"]
    assert chosen(select(all_entries, None, include_convergence=True)) == ["a", "b_conv", "c"]


def test_names_run_in_the_order_given_and_wildcards_select():
    all_entries = entries("a_1", "a_2", "a_conv", "b")
    assert chosen(select(all_entries, ["b", "a_*", "a_1"])) == ["b", "a_1", "a_2"]
    assert chosen(select(all_entries, ["a_conv"])) == ["a_conv"]


def test_one_name_in_two_files_is_two_benchmarks():
    twice = [Entry("a", Path(f"/{name}.yml"), {}) for name in ("one", "two")]
    assert select(twice, ["a"]) == twice


def test_an_unknown_name_is_told_with_the_nearest():
    with pytest.raises(BenchmarkUnknown, match=r"'resnet5'.*Nearest: resnet50\."):
        select(entries("resnet50", "bert"), ["resnet5"])
    with pytest.raises(BenchmarkUnknown, match="No benchmark is left"):
        select(entries("a_conv", "x_options"), None)


# --- entries ---------------------------------------------------------------------------------------


def test_an_entry_becomes_a_benchmark():
    found = parse(
        entry(
            description="  What it does.\n",
            parameters={"n": "1,2"},
            env={"NUMBER": 3, "FLAG": True, "TEXT": "x"},
            data={"loss": {"regexp": "loss (.*)", "reduction_type": "final", "skip": 2}},
            derived={"double": {"expr": "{loss} * 2"}},
            output=[["Loss", "loss"]],
            pre_run_commands=["make"],
            location="sub",
            requirements_path="requirements.txt",
            descripton="typo",
        )
    )
    assert found.env == {"NUMBER": "3", "FLAG": "true", "TEXT": "x"}
    assert found.parameters == [{"n": "1"}, {"n": "2"}]
    metric = found.metrics[0]
    assert (metric.name, metric.reduction, metric.skip) == ("loss", "final", 2)
    assert found.derived[0].expression == "{loss} * 2"
    assert found.output == [("Loss", "loss")]
    assert found.description == "What it does."
    assert found.unknown_keys == ["descripton (did you mean description?)"]


@pytest.mark.parametrize(("given", "kept"), [(None, ""), ("", ""), (["a", "b"], "['a', 'b']")])
def test_a_description_may_be_anything_or_left_empty(given, kept):
    assert parse(entry(description=given)).description == kept


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"cmd": 3}, "cmd: expected text"),
        ({"cmd": ""}, "cmd: expected text"),
        ({"env": ["A"]}, "env: expected a mapping"),
        ({"env": {"A": [1]}}, "env: expected text or a number"),
        ({"timeout": 0}, "timeout: expected a number of seconds above 0"),
        ({"timeout": "soon"}, "timeout"),
        ({"parameters": "1,2"}, "parameters: expected a table"),
        ({"parameters": [["a", "b"], [1]]}, r"parameters: \[1\] has 1 values for the 2 names"),
        ({"parameters": [["a"]]}, "parameters: a table is"),
        ({"parameters": {"a": []}}, "parameters: a has no values"),
        ({"parameters": {"a": "1,1"}}, "parameters: a has a value twice"),
        ({"parameters": {"a": {"b": 1}}}, "parameters: a: expected values"),
        ({"data": {"x": {"regexp": "("}}}, "data: x: the regexp '\\(' is wrong"),
        ({"data": {"x": {"regexp": "(a)(b)"}}}, "more than one group"),
        ({"data": {"x": {}}}, "data: expected text"),
        ({"data": {"x": {"regexp": "a", "skip": -1}}}, "skip is a whole number"),
        ({"data": {"x": {"regexp": "a", "reduction_type": "median"}}}, "reduction_type is mean"),
        ({"derived": {"x": {}}}, "derived: expected text"),
        ({"output": ["loss"]}, "output: expected \\[label, metric\\]"),
        ({"pre_run_commands": [1]}, "pre_run_commands: expected text"),
        ({"generated": "yes"}, "generated: expected true or false"),
        ({"repository": {"url": "x"}}, "repository: expected origin and ref, found url"),
        ({"notebook": "a.ipynb"}, "both `cmd` and `notebook`"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_told_with_benchmark_and_key(body, said):
    with pytest.raises(BenchmarkInvalid, match=said) as caught:
        parse(entry(**body))
    assert "bench_gen" in caught.value.what


def test_an_entry_without_command_is_refused():
    with pytest.raises(BenchmarkInvalid, match="no `cmd`"):
        parse(Entry("a", Path("/s.yml"), {"env": {}}))


def test_a_notebook_becomes_a_command():
    body = {"notebook": {"file": "a.ipynb", "working_directory": "sub", "timeout": 9}}
    found = parse(Entry("a", Path("/s.yml"), body))
    module = "examples_utils.benchmarks.notebook_utils"
    assert found.command == f"python3 -m {module} a.ipynb sub --timeout 9"
    spaced = {"notebook": {"file": "my {n}.ipynb", "working_directory": "a folder"}}
    found = parse(Entry("a", Path("/s.yml"), spaced))
    assert build(found.command, Path("/here")).words[3:] == ["my 4.ipynb", "a folder"]
    with pytest.raises(BenchmarkInvalid, match="found kernel"):
        parse(Entry("a", Path("/s.yml"), {"notebook": {"file": "a.ipynb", "kernel": "x"}}))


@unhurried
@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
), st.sampled_from(["env", "data", "derived", "output", "parameters", "timeout", "repository",
                    "notebook", "pre_run_commands", "required_apt_packages", "location"]))  # fmt: skip
def test_any_value_is_taken_or_refused_with_a_code(value, key):
    try:
        parse(entry(**{key: value}))
    except SoftIPUError as error:
        assert error.label == "SIPU-6053"


# --- commands --------------------------------------------------------------------------------------


def build(template: str, here: Path, **options: object) -> command.Command:
    return command.build(template, {"n": "4"}, here, {"DATA": "/data sets"}, **options)  # type: ignore


def test_a_command_has_whole_script_paths_values_and_variables(tmp_path):
    found = build("python3 -u run.py\n  --n {n}   --data '$DATA/x' --keep $OTHER", tmp_path)
    assert found.text == f"python3 -u {tmp_path}/run.py --n 4 --data '$DATA/x' --keep $OTHER"
    assert found.words[-3:] == ["/data sets/x", "--keep", "$OTHER"]


def test_a_folder_may_have_spaces_in_its_name(tmp_path):
    here = tmp_path / "my programs"
    assert build("python3 run.py --n {n}", here).words == ["python3", f"{here}/run.py", "--n", "4"]


@pytest.mark.parametrize("text", ["python3 -m run --n 1", "bash run.sh", "python -c 'print(1)'"])
def test_modules_and_other_programs_stay_as_they_are(tmp_path, text):
    assert build(text, tmp_path).text == text


def test_options_of_wandb_go_unless_they_are_allowed(tmp_path):
    template = "python3 -m t --wandb --wandb-name 'my run' --lr 1 --wandb-x=3 --last"
    assert build(template, tmp_path).words == ["python3", "-m", "t", "--lr", "1", "--last"]
    assert build(template, tmp_path, keep_wandb=True).text == template
    kept = build(template, tmp_path, keep_wandb=True, compile_only=True).words
    assert kept == ["python3", "-m", "t", "--lr", "1", "--last", "--compile-only"]


@pytest.mark.parametrize("more", ["", " --wandb"])
def test_a_variable_is_as_many_words_as_its_quotes_say(tmp_path, more):
    template = f"""python3 -m t $DATA '$DATA' --to="$DATA" it\\ is{more}"""
    words = ["python3", "-m", "t", "/data", "sets", "/data sets", "--to=/data sets", "it is"]
    found = build(template, tmp_path)
    assert found.words == words
    assert found.text == template.removesuffix(" --wandb")
    assert build(template, tmp_path, compile_only=True).words == [*words, "--compile-only"]


def test_compiling_only_asks_for_no_partition(tmp_path):
    template = "poprun --vipu-partition=p --vipu-server-host $DATA -n 2 python3 -m t"
    found = build(template, tmp_path, compile_only=True)
    assert found.words == ["poprun", "-n", "2", "python3", "-m", "t", "--compile-only"]


@pytest.mark.parametrize("template", ["python3 'run.py", "   ", "{n"])
def test_a_command_that_cannot_be_split_is_refused(tmp_path, template):
    with pytest.raises((BenchmarkInvalid, PlaceholderUnknown)):
        build(template, tmp_path)


def test_a_program_that_is_not_there_is_named(tmp_path):
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    with pytest.raises(ProgramMissing, match="run.sh"):
        command.check_program(["./run.sh"], tmp_path, {"PATH": ""})
    (tmp_path / "run.sh").chmod(0o755)
    command.check_program(["./run.sh"], tmp_path, {"PATH": ""})
    with pytest.raises(ProgramMissing, match="poprun") as caught:
        command.check_program(["poprun", "python3"], tmp_path, {"PATH": str(tmp_path)})
    assert "python3 SCRIPT" in caught.value.remedy
    with pytest.raises(ProgramMissing, match="mpirun") as caught:
        command.check_program(["mpirun", "-np", "2"], tmp_path, {"PATH": str(tmp_path)})
    assert "poprun --num-instances" in caught.value.remedy


@pytest.mark.parametrize("option", [["--host", "localhost,far"], ["--host=far"], ["-H", "far"]])
def test_other_hosts_must_have_the_files_already(option):
    words = ["poprun", *option, "python3", "x.py", "--host", "nobody"]
    with pytest.raises(RunnerUnsupported, match="other hosts: far"):
        command.check_hosts(words, files_are_there=False)
    command.check_hosts(words, files_are_there=True)
    command.check_hosts(["poprun", "python3", "x.py", "--host", "far"], files_are_there=False)


def test_hosts_of_poprun_are_read_as_poprun_reads_them(tmp_path):
    words = ["poprun", "--numa-aware", "--host", "far[0-1],localhost", "python3", "x.py"]
    with pytest.raises(RunnerUnsupported, match="other hosts: far0, far1"):
        command.check_hosts(words, files_are_there=False)
    (tmp_path / "hosts").write_text("localhost\nfar\n")
    words = ["/opt/bin/poprun", f"--hostfile={tmp_path / 'hosts'}", "x"]
    with pytest.raises(RunnerUnsupported, match="other hosts: far"):
        command.check_hosts(words, files_are_there=False)
    command.check_hosts(["poprun", "--host=a[", "x"], files_are_there=False)
    command.check_hosts(["poprun", "--colour=red", "x"], files_are_there=False)


# --- environments ----------------------------------------------------------------------------------


def test_variables_of_poprun_are_found_or_asked_for():
    text = "poprun --vipu-partition $IPUOF_VIPU_API_PARTITION_ID --host ${HOSTS} python3 x.py"
    given_ = {"PARTITION": "p4"}
    assert environment.resolved(text, given_) == {"IPUOF_VIPU_API_PARTITION_ID": "p4"}
    assert environment.missing(text, given_) == ["IPUOF_VIPU_API_PARTITION_ID", "HOSTS"]
    with pytest.raises(RunnerEnvironment, match="HOSTS: the hosts to run on"):
        environment.check(parse(entry()), text, given_)


def test_the_host_of_a_server_comes_from_the_configuration_or_from_vipu(tmp_path):
    text = "poprun --vipu-server-host $VIPU_CLI_API_HOST python3 x.py"
    found = environment.resolved(text, {"IPUOF_VIPU_API_HOST": "far", "PATH": ""})
    assert found == {"VIPU_CLI_API_HOST": "far"}
    vipu = tmp_path / "vipu"
    vipu.write_text("#!/bin/sh\necho 'version: 1'; echo 'host: near:8090'\n")
    vipu.chmod(0o755)
    found = environment.resolved(text, {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert found == {"VIPU_CLI_API_HOST": "near"}
    vipu.write_text("#!/bin/sh\necho 'version: 1'; echo 'host: embedded'\n")
    found = environment.resolved(text, {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert found == {"VIPU_CLI_API_HOST": "embedded"}
    assert environment.resolved(text, {"PATH": ""}) == {}


def test_real_data_needs_its_directory():
    real = parse(Entry("train_real", Path("/s.yml"), {"cmd": "true"}))
    with pytest.raises(RunnerEnvironment, match="DATASETS_DIR"):
        environment.check(real, "true", {})
    environment.check(real, "true", {"DATASETS_DIR": "/d"})
    for own in (entry(), entry(synthetic=True)):
        environment.check(parse(own), "true", {})


def test_profiling_keeps_the_engine_options_of_the_benchmark(tmp_path):
    profiled = parse(entry(env={"POPLAR_ENGINE_OPTIONS": '{"opt.x": "1"}'}))
    added = environment.additions(profiled, "INFO", tmp_path)
    options = json.loads(added["POPLAR_ENGINE_OPTIONS"])
    assert options["opt.x"] == "1"
    assert options["autoReport.all"] == "true"
    assert options["autoReport.directory"] == added["SOFTIPU_PROFILE_DIR"] == str(tmp_path)
    with pytest.raises(BenchmarkInvalid, match="POPLAR_ENGINE_OPTIONS"):
        environment.additions(parse(entry(env={"POPLAR_ENGINE_OPTIONS": "[1]"})), "INFO", tmp_path)
