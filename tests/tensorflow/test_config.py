"""IPUConfig: the tree of options, its checks, and what configuring does to the process."""

from __future__ import annotations

import copy
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
tf = pytest.importorskip("tensorflow")

from tensorflow.compiler.plugin.poplar.driver import config_pb2  # noqa: E402
from tensorflow.python import ipu  # noqa: E402
from tensorflow.python.ipu import vertex_edsl  # noqa: E402
from tensorflow.python.ipu.ops import f8_ops  # noqa: E402
from tensorflow.python.platform import tf_logging  # noqa: E402

from softipu import devices  # noqa: E402
from softipu.errors import InvalidPoplarFlags  # noqa: E402
from softipu.estimating import idle_options  # noqa: E402
from softipu.frontends.tensorflow import device_list, engine_options, flags, system  # noqa: E402
from softipu.frontends.tensorflow.ipu_options import CATEGORIES, OPTIONS  # noqa: E402

Connection = ipu.config.DeviceConnectionType


@pytest.fixture(autouse=True)
def _unconfigured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("TF_POPLAR_FLAGS", raising=False)
    monkeypatch.delenv("POPLAR_ENGINE_OPTIONS", raising=False)
    system.reset()
    yield
    system.reset()


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    for name in ("warn", "warning"):
        monkeypatch.setattr(tf_logging, name, said.append)
    monkeypatch.setattr(ipu.config, "_warned", set())
    monkeypatch.setattr(flags, "_said", set())
    monkeypatch.setattr(idle_options, "_told", set())
    return said


def configured(**options: object) -> ipu.config.IPUConfig:
    config = ipu.config.IPUConfig()
    for name, value in options.items():
        setattr(config, name, value)
    config.configure_ipu_system()
    return config


def holders() -> int:
    return sum(status.record is not None for status in devices.status())


class TestTree:
    def test_every_row_of_the_table_is_an_attribute_with_its_default_and_metadata(self) -> None:
        config = ipu.config.IPUConfig()
        for option in OPTIONS:
            metadata = config.get_attribute_metadata(option.path)
            assert config.to_dict()[option.path] == getattr(option.default, "value", option.default)
            assert (metadata.name, metadata.default) == (option.path, option.default)
            assert metadata.support == option.support
            assert f".. _{option.path}:" in (ipu.config.IPUConfig.__doc__ or "")
        assert all(config.get_attribute_metadata(path).is_category for path in CATEGORIES)

    def test_every_option_says_whether_it_is_honoured(self) -> None:
        assert {option.support.split(":")[0] for option in OPTIONS} == {
            "honoured",
            "modelled",
            "ignored",
        }

    def test_an_unknown_name_raises_and_suggests_the_right_one(self) -> None:
        config = ipu.config.IPUConfig()
        with pytest.raises(ValueError, match="Did you mean 'auto_select_ipus'"):
            config.auto_select_ipu = 1
        with pytest.raises(ValueError, match=r"Did you mean 'device_connection\.type'"):
            _ = config.device_connection.typ
        assert not hasattr(config, "nothing_like_it")

    def test_types_are_strict(self) -> None:
        config = ipu.config.IPUConfig()
        with pytest.raises(TypeError, match="allow_recompute to 1, but it must be of type bool"):
            config.allow_recompute = 1
        with pytest.raises(TypeError, match="auto_select_ipus to True"):
            config.auto_select_ipus = True
        with pytest.raises(TypeError, match="is a category"):
            config.norms = {}

    def test_configurations_do_not_share_mutable_defaults(self) -> None:
        first, second = ipu.config.IPUConfig(), ipu.config.IPUConfig()
        first.matmuls.poplar_options["partialsType"] = "half"
        third = copy.deepcopy(first)
        third.matmuls.poplar_options.clear()
        assert second.matmuls.poplar_options == {}
        assert first.matmuls.poplar_options == {"partialsType": "half"}

    def test_a_configuration_survives_json_and_the_message(self) -> None:
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = [2, 4]
        config.scheduling.algorithm = ipu.config.SchedulingAlgorithm.POST_ORDER
        config.optimizations.enable_graph_outlining = False
        config.io_tiles.available_memory_proportion = 0.25
        config.convolutions.poplar_options = {"a": "b"}
        read = ipu.config.IPUConfig()
        read.from_json(config.to_json())
        assert read.to_dict() == config.to_dict()
        back = ipu.config.IPUConfig._from_protobuf(config._create_protobuf())
        assert back.to_dict() == config.to_dict()

    def test_setting_a_deprecated_option_warns(self, warnings: list[str]) -> None:
        ipu.config.IPUConfig().optimizations.enable_fast_math = True
        assert "optimizations.enable_fast_math has been deprecated" in warnings[0]

    def test_options_that_exclude_each_other_are_refused(self) -> None:
        config = ipu.config.IPUConfig()
        config.auto_select_ipus, config.select_ipus = 1, 1
        with pytest.raises(ValueError, match="Only one of `auto_select_ipus` and `select_ipus`"):
            config.configure_ipu_system()
        config = ipu.config.IPUConfig()
        config.device_connection.type = Connection.NEVER
        with pytest.raises(ValueError, match=r"device_connection\.version must be set"):
            config.configure_ipu_system()


class TestConfiguring:
    def test_the_devices_have_the_ipus_asked_for(self) -> None:
        assert (system.configured(), system.config(), system.ipus()) == (False, None, 1)
        configured(auto_select_ipus=[2, 4])
        assert [system.configured(n) for n in range(3)] == [True, True, False]
        assert [system.ipus(n) for n in range(3)] == [2, 4, 1]
        assert ipu.utils.get_num_of_ipus_in_device("/device:IPU:1") == 4
        assert len(ipu.utils.get_ipu_config()) == 2

    def test_ipus_can_be_chosen_by_device_id(self) -> None:
        pair = next(d for d in devices.active_partition().devices if len(d.ipus) == 2)
        configured(select_ipus=[3, pair.id])
        assert (system.ipus(0), system.ipus(1)) == (1, 2)
        held = {status.ipu.id for status in devices.status() if status.record}
        assert held == {3, *(chip.id for chip in pair.ipus)}

    def test_configuring_again_resets_and_gives_ipus_back(self) -> None:
        configured(auto_select_ipus=4)
        assert holders() == 4
        configured(auto_select_ipus=2)
        assert (system.ipus(), holders()) == (2, 2)
        ipu.config.reset_ipu_configuration()
        assert (system.configured(), holders()) == (False, 0)
        with pytest.raises(RuntimeError, match="No IPU devices configured"):
            ipu.utils.get_ipu_config()

    def test_without_reset_a_different_configuration_is_an_error(self) -> None:
        same = configured(auto_select_ipus=2)
        ipu.config.configure_ipu_system(same, reset_configuration=False)
        other = ipu.config.IPUConfig()
        other.auto_select_ipus = 1
        with pytest.raises(tf.errors.FailedPreconditionError, match="already been set"):
            ipu.config.configure_ipu_system(other, reset_configuration=False)
        assert system.ipus() == 2

    def test_what_is_no_configuration_is_refused(self) -> None:
        with pytest.raises(TypeError, match="must be an IpuOptions instance"):
            ipu.config.configure_ipu_system({"auto_select_ipus": 1})

    def test_later_changes_of_the_object_do_not_count(self) -> None:
        config = configured(auto_select_ipus=2)
        config.auto_select_ipus = 4
        assert system.config().auto_select_ipus == [2]

    def test_set_all_turns_every_trap_on(self) -> None:
        config = ipu.config.IPUConfig()
        config.floating_point_behaviour.set_all = True
        config.configure_ipu_system()
        behaviour = system.config().floating_point_behaviour
        assert (behaviour.inv, behaviour.div0, behaviour.oflo) == (True, True, True)
        assert behaviour.esr is ipu.config.StochasticRoundingBehaviour.ON

    def test_an_option_without_effect_is_named_once_in_a_process(self, warnings: list[str]) -> None:
        for count in (1, 2):
            config = ipu.config.IPUConfig()
            config.auto_select_ipus = count
            config.norms.use_stable_statistics = True
            config.configure_ipu_system()
        named = [text for text in warnings if "has no effect" in text]
        assert len(named) == 1
        assert "IPUConfig.norms.use_stable_statistics" in named[0]

    @pytest.mark.parametrize("group", ["convolutions", "matmuls"])
    def test_entries_that_nothing_counts_are_named_once(
        self, warnings: list[str], group: str
    ) -> None:
        for ipus in (1, 2):
            config = ipu.config.IPUConfig()
            config.auto_select_ipus = ipus
            counted = {"availableMemoryProportion": "0.1", "partialsType": "half"}
            getattr(config, group).poplar_options = {**counted, "planConstraints": "{}"}
            config.configure_ipu_system()
        named = [text for text in warnings if "has no effect" in text]
        assert len(named) == 1
        assert f"IPUConfig.{group}.poplar_options['planConstraints'] has no effect" in named[0]

    def test_a_plain_configuration_warns_of_nothing(self, warnings: list[str]) -> None:
        configured(auto_select_ipus=1)
        assert warnings == []


class TestAttaching:
    def test_always_leases_at_once_and_on_demand_when_a_program_runs(self) -> None:
        configured(auto_select_ipus=2)
        assert holders() == 2
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 2
        config.device_connection.type = Connection.ON_DEMAND
        config.configure_ipu_system()
        assert holders() == 0
        system.attach()
        system.attach()
        assert holders() == 2

    def test_without_configuration_one_ipu_is_leased(self) -> None:
        system.attach()
        assert holders() == 1

    def test_the_log_says_that_it_is_one_where_nobody_chose(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        said: list[str] = []
        monkeypatch.setattr(tf_logging, "info", said.append)
        system.attach()
        system.attach()
        ipu.config.IPUConfig().configure_ipu_system()
        system.attach()
        told = [text for text in said if text.startswith("No IPUs were configured for")]
        assert len(told) == 2  # once for each configuration
        assert "/device:IPU:0: it has one." in told[0]
        said.clear()
        configured(auto_select_ipus=1)
        system.attach()
        assert not [text for text in said if "No IPUs" in text]

    def test_gc_monitor_sees_what_was_accounted(self) -> None:
        configured(auto_select_ipus=1)
        system.attach()
        system.account(0.5, bytes_in=1000, bytes_out=10)
        system._state.devices[0]._lease.telemetry.flush()  # else within a second
        (counters,) = (status.counters for status in devices.status() if status.record)
        assert counters.busy_seconds == pytest.approx(0.5)
        assert (counters.host_bytes_in, counters.host_bytes_out) == (1000, 10)

    def test_never_refuses_to_run_and_pre_compile_leases_nothing(self) -> None:
        config = ipu.config.IPUConfig()
        config.device_connection.version = "ipu2"
        config.device_connection.type = Connection.NEVER
        config.configure_ipu_system()
        with pytest.raises(tf.errors.InvalidArgumentError, match="for compilation only"):
            system.attach()
        config.device_connection.type = Connection.PRE_COMPILE
        config.configure_ipu_system()
        system.attach()
        assert system.pre_compiling()
        assert holders() == 0

    def test_the_ipu_model_leases_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
        assert ipu.utils.running_on_ipu_model()
        configured(auto_select_ipus=2)
        system.attach()
        assert (system.ipus(), holders()) == (2, 0)
        with pytest.raises(ValueError, match="When using the IPUModel"):
            configured(select_ipus=1)

    @pytest.mark.parametrize("count", [3, 32])
    def test_a_number_of_ipus_that_no_device_has_is_an_error(self, count: int) -> None:
        with pytest.raises(
            tf.errors.FailedPreconditionError,
            match=f"could not find an IPU device with {count} IPUs(?s:.*)SIPU-12",
        ):
            configured(auto_select_ipus=count)
        assert not system.configured()

    def test_busy_ipus_are_an_error_that_names_their_holder(
        self, hold: Callable[..., subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        holder = hold(16)
        with pytest.raises(
            tf.errors.InternalError,
            match=rf"expected to have 1 IPU\(s\)(?s:.*)SIPU-1203(?s:.*){holder.pid}",
        ):
            configured(auto_select_ipus=1)
        monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_on_demand --on_demand_device_timeout=50")
        configured(auto_select_ipus=1)
        with pytest.raises(tf.errors.InternalError, match="Timed out"):
            system.attach()

    def test_half_of_a_configuration_is_not_kept(self, hold: Callable[..., object]) -> None:
        hold(8)
        with pytest.raises(tf.errors.InternalError, match="/device:IPU:1"):
            configured(auto_select_ipus=[8, 1])
        assert holders() == 8
        assert not system.configured()

    def test_replicas_fill_the_device(self) -> None:
        configured(auto_select_ipus=8)
        assert [system.replicas_for(n) for n in (1, 2, 3, 4, 8)] == [8, 4, 2, 2, 1]
        with pytest.raises(tf.errors.InternalError, match="8 IPUs and 16 shards"):
            system.replicas_for(9)


class TestEngineOptions:
    def test_an_option_that_poplar_does_not_have_is_an_error_when_a_program_runs(self) -> None:
        config = ipu.config.IPUConfig()
        config.compilation_poplar_options = {"some_option": "some_value"}
        config.configure_ipu_system()
        with pytest.raises(tf.errors.InternalError, match="Unrecognised option 'some_option'"):
            system.attach()

    def test_an_option_that_only_poplar_has_is_named_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
    ) -> None:
        monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"debug.allowOutOfMemory": "true"}')
        for count in (1, 2):
            config = ipu.config.IPUConfig()
            config.auto_select_ipus = count
            report = {"autoReport.directory": str(tmp_path)}
            config.compilation_poplar_options = {"opt.internalExchange": "x", **report}
            config.configure_ipu_system()
            system.attach()
        named = [text for text in warnings if "without effect" in text]
        assert len(named) == 1
        assert "debug.allowOutOfMemory" in named[0]
        assert "opt.internalExchange" in named[0]

    def test_auto_report_writes_what_ran_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        options = f'{{"autoReport.all": "true", "autoReport.directory": "{tmp_path}/r"}}'
        monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", options)
        configured(auto_select_ipus=1)
        system.attach()
        system.attach()
        (report,) = (tmp_path / "r").glob("tf_report_*/framework.json")
        assert '"auto_select_ipus": [\n   1\n  ]' in report.read_text()

    def test_no_report_unless_asked(self, tmp_path: Path) -> None:
        assert engine_options.write_report({"autoReport.directory": str(tmp_path)}, None) is None
        assert list(tmp_path.glob("tf_report_*")) == []


class TestFlags:
    def test_values_come_from_the_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(
            "TF_POPLAR_FLAGS",
            "--executable_cache_path='/a b' --use_on_demand=false --use_ipu_model",
        )
        values = flags.get()
        assert values.executable_cache_path == "/a b"
        assert (values.use_on_demand, values.use_ipu_model) == (False, True)

    def test_a_file_of_flags_is_read(self, tmp_path: Path) -> None:
        path = tmp_path / "flags"
        path.write_text("--log_cycle_count=3\n--use_ipu_model\n")
        assert flags.parse(str(path)).log_cycle_count == 3

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("--use_ipu_modell", "Unknown flags in TF_POPLAR_FLAGS.*Did you mean --use_ipu_model"),
            ("--log_cycle_count=x", "expected a whole number"),
            ("--use_ipu_model=perhaps", "expected true or false"),
            ("--executable_cache_path", "needs a value"),
            ("--synthetic_data_categories=nonsense", "unknown synthetic data category"),
            ("--synthetic_data_initializer=1", "can only be used in combination"),
            ("--executable_cache_path='x", "No closing quotation"),
            ("/no/such/file", "nor a file"),
        ],
    )
    def test_wrong_flags_are_errors(self, text: str, message: str) -> None:
        with pytest.raises(InvalidPoplarFlags, match=message):
            flags.parse(text)

    def test_help_lists_every_flag_once_and_goes_on(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(flags, "_said", set())
        monkeypatch.setenv("TF_POPLAR_FLAGS", "--help")
        flags.get()
        flags.get()
        printed = capsys.readouterr().err
        listed = [line.split(":")[0].split("=")[0] for line in printed.splitlines()[1:]]
        assert listed == [f"\t--{name}" for name in flags.FLAGS]

    def test_a_flag_without_effect_is_named_once(
        self, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
    ) -> None:
        monkeypatch.setenv("TF_POPLAR_FLAGS", "--fallback_scheduler")
        flags.get()
        flags.get()
        assert len(warnings) == 1
        assert "--fallback_scheduler has no effect" in warnings[0]

    def test_on_demand_overrides_the_configuration(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_on_demand")
        configured(auto_select_ipus=1)
        assert system.connection() is Connection.ON_DEMAND
        assert holders() == 0

    def test_synthetic_data_by_category(self, monkeypatch: pytest.MonkeyPatch) -> None:
        category = ipu.utils.SyntheticDataCategory
        monkeypatch.setenv("TF_POPLAR_FLAGS", "--synthetic_data_categories=infeed,parameters")
        assert ipu.utils.use_synthetic_data_for(category.Infeed)
        assert not ipu.utils.use_synthetic_data_for(category.Outfeed)
        monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_synthetic_data")
        assert ipu.utils.use_synthetic_data_for(category.Outfeed)


class TestDeviceList:
    def test_ipus_are_listed_as_tensorflow_lists_devices(self) -> None:
        device_list.install()
        device_list.install()
        listed = tf.config.list_physical_devices("IPU")
        assert len(listed) == 16
        assert listed[0] == tf.config.PhysicalDevice("/physical_device:IPU:0", "IPU")
        assert tf.config.list_logical_devices("IPU")[1].name == "/device:IPU:1"
        assert listed[0] in tf.config.list_physical_devices()
        assert {d.device_type for d in tf.config.list_physical_devices("CPU")} == {"CPU"}

    def test_the_model_has_as_many_as_are_configured(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
        assert device_list.count() == 2
        configured(auto_select_ipus=[1, 1, 2])
        assert device_list.count() == 3


class TestUtils:
    def test_the_seed_restarts_the_random_numbers(self) -> None:
        ipu.utils.reset_ipu_seed(7)
        first = tf.random.normal([4]).numpy()
        ipu.utils.reset_ipu_seed(7)
        assert (tf.random.normal([4]).numpy() == first).all()
        with pytest.raises(ValueError, match="is not an IPU device"):
            ipu.utils.reset_ipu_seed(7, device="/device:CPU:0")

    def test_initial_values_move_to_the_cpu_and_readers_of_variables_stay(self) -> None:
        with tf.Graph().as_default() as graph:
            with tf.device("/device:IPU:0"):
                first = tf.compat.v1.get_variable("a", initializer=tf.random.normal([2]))
                read = first.read_value()
                tf.compat.v1.get_variable("b", initializer=read)
            ipu.utils.move_variable_initialization_to_cpu(graph)
            moved = {op.type for op in graph.get_operations() if op.device == "/device:CPU:0"}
            assert "RandomStandardNormal" in moved
            assert "ReadVariableOp" not in moved

    def test_the_messages_have_the_names_that_programs_import(self) -> None:
        assert config_pb2.IpuDeviceConnectionType.Value("ON_DEMAND") == Connection.ON_DEMAND.value
        options = config_pb2.IpuOptions()
        options.ParseFromString(ipu.config.IPUConfig()._create_protobuf().SerializeToString())
        assert options.creator_id == config_pb2.IPU_UTILS


class TestEnumerations:
    def test_members_print_their_names_as_they_do_on_the_pythons_of_tensorflow_2_6(self) -> None:
        grouped = ipu.ops.pipelining_ops.PipelineSchedule.Grouped
        assert str(grouped) == "%s" % grouped == "PipelineSchedule.Grouped"  # noqa: UP031
        assert f"{grouped}" == "0"
        assert str(f8_ops.Format.F152) == "Format.F152"
        assert str(vertex_edsl.BaseType.Int32) == "BaseType.Int32"
        algorithm = ipu.config.SchedulingAlgorithm.LOOK_AHEAD
        assert str(algorithm) == f"{algorithm}" == "SchedulingAlgorithm.LOOK_AHEAD"
