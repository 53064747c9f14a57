"""The benchmark runner as users start it: real processes, real files."""

from __future__ import annotations

import csv
import json
import stat
import sys
from pathlib import Path

import pytest
from runner_kit import codes, results, table, verdicts

SWEEP = """
common_options: &common
  generated: true
  data:
    throughput: {regexp: 'throughput: *(.*?) samples', skip: 1}
    loss: {regexp: 'loss: *(.*)', reduction_type: final}
sweep:
  <<: *common
  description: Two batch sizes.
  parameters: {batch: '1,2'}
  env: {FLAVOUR: sweet}
  derived: {per_sample: {expr: '{throughput} / {batch}'}}
  output: [[batch size, batch], [samples/sec, throughput]]
  cmd: >-
    python3 train.py
      --batch {batch} --wandb --name "a b" $FLAVOUR
"""


def test_a_sweep_gives_metrics_logs_and_result_files(kit):
    kit.spec(SWEEP)
    ran = kit.benchmark()
    assert ran.status == 0, ran.err
    assert verdicts(ran.out) == ["PASSED sweep::sweep_batch_1", "PASSED sweep::sweep_batch_2"]
    assert "================ 0 failed, 2 passed ===============" in ran.out
    second = results(kit)["sweep"][1]
    assert second["results"] == {
        "throughput": {"mean": 22.0},
        "loss": {"final": 0.25},
        "per_sample": {"mean": 11.0},
        "total_compiling_time": {"mean": None},
    }
    assert second["params"] == {"batch": "2"}
    assert second["command"] == f'python3 {kit.folder}/train.py --batch 2 --name "a b" $FLAVOUR'
    stdout = (kit.logs / "sweep_batch_2" / "stdout").read_text()
    assert "arguments ['--name', 'a b', 'sweet'] flavour sweet" in stdout
    assert "loss: 0.25" in (kit.logs / "sweep_batch_2" / "stderr").read_text()
    assert json.loads((kit.logs / "sweep_batch_2" / "variant_result.json").read_text()) == second
    transcript = (kit.logs / "output.log").read_text()
    assert transcript.count("throughput: ") == 8
    assert transcript.count("loss: ") == 8
    assert "Running sweep" in (kit.logs / "console.log").read_text()
    assert "| sweep_batch_1 | 1 | 12 |" in (kit.logs / "benchmark_results.md").read_text()
    rows = list(csv.reader(table(kit)))
    assert rows[0] == [
        "benchmark name",
        "Variant name",
        "throughput",
        "latency",
        "total_compiling_time",
    ]
    assert rows[2] == ["sweep", "sweep_batch_2", "22.0", "", ""]


def test_more_columns_and_metrics_of_ones_own(kit):
    kit.spec(SWEEP)
    (kit.folder / "mine.py").write_text(
        "from examples_utils import register_custom_metric\n"
        "register_custom_metric('lines', lambda out, err, code: {'count': out.count('\\n')})\n"
    )
    ran = kit.benchmark(
        "--additional-metrics", "--csv-metrics", "per_sample", "lines", "--custom-metrics-files", "mine.py"
    )  # fmt: skip
    assert ran.status == 0, ran.err
    row = next(csv.DictReader(table(kit)))
    assert (row["lines"], row["per_sample"], row["loss"], row["result"]) == (
        "5",
        "12.0",
        "0.25",
        "True",
    )
    assert float(row["test_duration"]) > 0
    assert row["cmd"].startswith(f"python3 {kit.folder}/train.py --batch 1")
    assert "FLAVOUR=sweet" in row["env"]
    assert row["git_commit_hash"] == "Not a git repo"


def test_what_fails_is_reported_and_the_rest_go_on(kit):
    kit.spec("""
        wrong_exit_gen: {cmd: python3 train.py --exit 3}
        killed_gen: {cmd: bash -c 'kill -9 $$'}
        no_metric_gen: {cmd: python3 train.py, data: {accuracy: {regexp: 'acc (.*)'}}}
        no_derived_gen: {cmd: python3 train.py, derived: {x: {expr: '1/0'}}}
        no_program_gen: {cmd: nosuchprogram --x}
        no_value_gen: {cmd: 'python3 train.py {nothing}'}
        no_folder_gen: {cmd: python3 train.py, location: nowhere}
        no_data: {cmd: python3 train.py}
        no_build_gen: {cmd: python3 train.py, pre_run_commands: ['echo building', 'false', touch never]}
        no_command_gen: {env: {A: b}}
        no_regexp_gen: {cmd: python3 train.py, data: {x: {regexp: '['}}}
        good_gen: {cmd: python3 train.py}
        """)
    ran = kit.benchmark()
    assert ran.status == 1
    assert codes(kit) == {
        "wrong_exit_gen": ["SIPU-6058"],
        "killed_gen": ["SIPU-6058"],
        "no_metric_gen": ["SIPU-6060"],
        "no_derived_gen": ["SIPU-6060"],
        "no_program_gen": ["SIPU-6056"],
        "no_value_gen": ["SIPU-6054"],
        "no_folder_gen": ["SIPU-6053"],
        "no_data": ["SIPU-6055"],
        "no_build_gen": ["SIPU-6057"],
        "no_command_gen": ["SIPU-6053"],
        "no_regexp_gen": ["SIPU-6053"],
        "good_gen": [],
    }
    assert verdicts(ran.out)[-1] == "PASSED good_gen::good_gen"
    assert "11 failed, 1 passed" in ran.out
    assert results(kit)["wrong_exit_gen"][0]["exitcode"] == 3
    assert results(kit)["no_metric_gen"][0]["exitcode"] == 1
    assert not (kit.folder / "never").exists()
    assert (kit.logs / "no_build_gen_pre_run" / "stdout").read_text() == "building\n"
    assert "Traceback" not in ran.err


def test_commands_before_share_a_shell_and_run_once(kit):
    kit.spec("""
        built_gen:
          parameters: {n: '1,2'}
          pre_run_commands: [mkdir sub, cd sub, echo once >> built, 'echo "$TOOL" >> built']
          env: {TOOL: hammer}
          cmd: cat sub/built
        """)
    assert kit.benchmark().status == 0
    for variant in ("built_gen_n_1", "built_gen_n_2"):
        assert (kit.logs / variant / "stdout").read_text() == "once\nhammer\n"


def test_the_program_itself_may_be_built_by_them(kit):
    build = "printf '#!/bin/sh\\necho built\\n' > app; chmod +x app"
    kit.spec(f'a_gen: {{cmd: ./app, pre_run_commands: ["{build}"]}}')
    ran = kit.benchmark()
    assert ran.status == 0, ran.err
    assert (kit.logs / "a_gen" / "stdout").read_text() == "built\n"


def test_commands_before_can_be_left_out(kit):
    kit.spec("a_gen: {cmd: ls, pre_run_commands: [touch built]}")
    assert kit.benchmark("--no-pre-run").status == 0
    assert not (kit.folder / "built").exists()


def test_stopping_at_the_first_error(kit):
    kit.spec("""
        a_gen: {cmd: 'python3 train.py --exit {n}', parameters: {n: '0,1,2'}}
        b_gen: {cmd: python3 train.py}
        """)
    ran = kit.benchmark("--stop-on-error")
    assert ran.status == 1
    assert verdicts(ran.out) == ["PASSED a_gen::a_gen_n_0", "FAILED a_gen::a_gen_n_1"]


def test_only_compiling(kit):
    kit.spec(SWEEP)
    ran = kit.benchmark("--compile-only")
    assert ran.status == 0, ran.err
    assert "compiled" in (kit.logs / "sweep_batch_1" / "stdout").read_text()
    assert set(results(kit)["sweep"][0]["results"]) == {"total_compiling_time"}


def test_several_specs_may_share_names(kit):
    for name in ("one", "two"):
        kit.spec(f"a_gen: {{cmd: echo {name}}}", f"{name}/benchmarks.yml")
    ran = kit.benchmark("--spec", "*/benchmarks.yml", "--benchmark", "a_*")
    assert ran.status == 0, ran.err
    assert len(results(kit)["a_gen"]) == 2
    assert [(kit.logs / name / "stdout").read_text() for name in ("a_gen", "a_gen_2")] == [
        "one\n",
        "two\n",
    ]


def test_values_with_slashes_stay_inside_the_log_directory(kit):
    kit.spec("a_gen: {cmd: 'echo {path}', parameters: {path: '../../x,/etc/y'}}")
    assert kit.benchmark().status == 0
    outside = [
        path
        for path in kit.folder.parent.rglob("variant_result.json")
        if kit.logs not in path.parents
    ]
    assert outside == []
    assert len(list(kit.logs.glob("*/stdout"))) == 2


def test_output_of_any_bytes_is_kept_and_searched(kit):
    kit.spec("""
        a_gen:
          cmd: python3 -c "import sys; sys.stdout.buffer.write(bytes(range(256)) * 4000 + b'\\n m=3\\n')"
          data: {m: {regexp: ' m=(.*)'}}
        """)
    ran = kit.benchmark()
    assert ran.status == 0, ran.err
    assert (kit.logs / "a_gen" / "stdout").stat().st_size == 256 * 4000 + 6


def test_profiles_are_asked_for_beside_the_benchmark(kit):
    kit.spec("a_gen: {cmd: printenv POPLAR_ENGINE_OPTIONS}")
    assert kit.benchmark("--profile").status == 0
    options = json.loads((kit.logs / "a_gen" / "stdout").read_text())
    assert options["autoReport.all"] == "true"
    assert options["autoReport.directory"] == str(kit.folder / "a_gen_profile")


def test_the_log_level_reaches_the_benchmark(kit):
    kit.spec("a_gen: {cmd: printenv POPLAR_LOG_LEVEL POPART_LOG_LEVEL}")
    ran = kit.benchmark("--logging", "ERROR")
    assert (kit.logs / "a_gen" / "stdout").read_text() == "ERROR\nERROR\n"
    assert "[INFO]" not in ran.err


def test_progress_is_shown_when_asked_for(kit):
    kit.spec("a_gen: {cmd: sleep 1.5}")
    assert (
        "Benchmark elapsed time: 0:00:01 (1 seconds)"
        in kit.benchmark("--progress-trace-period", "1").err
    )


def without_poprun(kit) -> None:
    """PATH with what the runner needs, but without the programs of softipu's environment."""
    kit.program("python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    kit.environment["PATH"] = f"{kit.folder / 'bin'}:/usr/bin:/bin"


def test_poprun_lines_need_a_poprun(kit):
    without_poprun(kit)
    kit.spec(
        "a_gen: {cmd: 'poprun -vv --num-instances {n} python3 train.py', parameters: {n: '1,2'}}"
    )
    ran = kit.benchmark()
    assert codes(kit) == {"a_gen_n_1": ["SIPU-6056"], "a_gen_n_2": ["SIPU-6056"]}
    assert "There is no poprun on PATH." in ran.err


def test_poprun_lines_run_with_softipus_own_poprun(kit):
    pytest.importorskip("torch")
    kit.program("poprun", f'#!/bin/sh\nexec {sys.executable} -m softipu.poprun "$@"\n')
    kit.spec("""
        a_gen:
          cmd: >-
            poprun -vv --num-instances={n} --num-replicas=2 --vipu-partition=bench
            --vipu-server-host $VIPU_CLI_API_HOST --reset-partition=no --update-partition=yes
            --mpi-local-args="-x FLAVOUR" --executable-cache-path=cache
            python3 train.py --batch 3
          env: {FLAVOUR: sweet}
          parameters: {n: '1,2'}
          data: {throughput: {regexp: 'throughput: *(.*?) samples'}}
        """)
    process = kit.start()
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    found = results(kit)["a_gen"]
    assert [one["results"]["throughput"] for one in found] == [{"mean": 31.5}] * 2  # type: ignore[index]
    for n in (1, 2):
        out = (kit.logs / f"a_gen_n_{n}" / "stdout").read_text()
        assert out.count("flavour sweet") == n
        assert "poprun topology" in out
        assert "Removed partition bench" in (kit.logs / f"a_gen_n_{n}" / "stderr").read_text()


def test_poprun_lines_work_with_another_poprun(kit):
    kit.program(
        "poprun",
        """\
        #!/bin/sh
        while [ "$1" != python3 ]; do echo "option $1"; shift; done
        exec "$@"
        """,
    )
    kit.spec("""
        a_gen:
          cmd: poprun --vipu-partition=$IPUOF_VIPU_API_PARTITION_ID python3 train.py
          data: {throughput: {regexp: 'throughput: *(.*?) samples'}}
        """)
    kit.environment["PARTITION"] = "mine"
    ran = kit.benchmark()
    assert ran.status == 0, ran.err
    assert "option --vipu-partition=mine" in (kit.logs / "a_gen" / "stdout").read_text()
    assert results(kit)["a_gen"][0]["results"]["throughput"] == {"mean": 11.5}  # type: ignore[index]


# --- showing only ----------------------------------------------------------------------------------


def test_a_dry_run_shows_all_and_does_nothing(kit):
    kit.spec(SWEEP + "  pre_run_commands: [touch built]\n  timeout: 9\n")
    before = sorted(kit.folder.rglob("*"))
    ran = kit.benchmark("--dry-run")
    assert ran.status == 0, ran.err
    assert sorted(kit.folder.rglob("*")) == before
    assert "sweep::sweep_batch_2\n" in ran.out
    assert f"command:   python3 {kit.folder}/train.py --batch 2" in ran.out
    for line in ("env:       FLAVOUR=sweet", "before:    touch built", "timeout:   9 s",
                 "metric:    throughput = skip 1, mean of throughput: *(.*?) samples",
                 "derived:   per_sample = {throughput} / {batch}",
                 "output:    batch size, samples/sec"):  # fmt: skip
        assert line in ran.out
    assert "1 benchmarks, 2 variants, 0 invalid; nothing was run" in ran.out


def test_a_dry_run_tells_what_is_wrong_and_what_is_missing(kit):
    kit.spec("""
        bad_gen: {cmd: 'python3 train.py {n}'}
        real: {cmd: 'poprun --host $HOSTS python3 train.py', colour: red}
        """)
    without_poprun(kit)
    ran = kit.benchmark("--dry-run")
    assert ran.status == 1
    assert "INVALID bad_gen" in ran.out
    assert "SIPU-6054" in ran.out
    for note in ("There is no poprun on PATH", "HOSTS is not set", "DATASETS_DIR is not set",
                 "the key colour is not known"):  # fmt: skip
        assert f"note:      {note}" in ran.out


def test_the_example_of_the_documentation_is_valid(kit):
    page = (Path(__file__).parents[2] / "docs" / "benchmark-runner.md").read_text()
    kit.spec(page.split("```yaml\n")[1].split("```")[0])
    ran = kit.benchmark("--dry-run")
    assert ran.status == 0, ran.out
    assert "mnist_train_gen::mnist_train_gen_batch_8_precision_16.16" in ran.out
    assert "1 benchmarks, 4 variants, 0 invalid" in ran.out
    assert "is not known" not in ran.out


# --- bad usage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--spec", "none.yml"], 1, "SIPU-6050"),
        (["--benchmark", "sweeb"], 1, "Nearest: sweep."),
        (["--submit-on-slurm"], 1, "--submit-on-slurm is not offered"),
        (["--upload-checkpoints", "s3"], 1, "--upload-checkpoints is not offered"),
        (["--custom-metrics-files", "none.py"], 1, "SIPU-6064"),
        (["--requirements-file", "none.txt"], 1, "SIPU-6062"),
        (["--timeout", "0"], 2, "above 0"),
        (["--logging", "LOUD"], 2, "invalid choice"),
        (["--benchmarc", "x"], 2, "Did you mean --benchmark?"),
    ],
)
def test_bad_usage_is_told_in_one_block(kit, arguments, status, said):
    kit.spec(SWEEP)
    ran = kit.benchmark(*arguments)
    assert ran.status == status
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert "PASSED" not in ran.out


def test_a_machine_type_of_slurm_is_ignored_with_one_warning(kit):
    kit.spec(SWEEP)
    ran = kit.benchmark("--slurm-machine-type", "mk2")
    assert ran.status == 0, ran.err
    assert ran.err.count("--slurm-machine-type is ignored") == 1
    assert "--slurm-machine-type" not in kit.benchmark().err


def test_a_log_directory_that_cannot_be_is_told(kit):
    kit.spec(SWEEP)
    kit.logs.write_text("a file")
    ran = kit.benchmark()
    assert ran.status == 1
    assert "SIPU-6066" in ran.err


def test_without_a_directory_logs_go_to_one_named_after_the_time(kit):
    kit.spec("a_gen: {cmd: echo}")
    assert kit.run("benchmark").status == 0
    (folder,) = kit.folder.glob("log_20*")
    assert stat.S_ISDIR(folder.stat().st_mode)
    assert (folder / "benchmark_results.json").exists()
