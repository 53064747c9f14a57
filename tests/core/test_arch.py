"""What softipu.arch says of chips and systems: sourced, consistent, true to published figures.

How it refuses broken files is in test_arch_loader.py, units are in test_arch_units.py.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import pickle
import re
import subprocess
import sys
import typing

import pytest

from softipu import arch
from softipu.arch.model import Chip, System
from softipu.arch.schema import rows
from softipu.arch.units import CANONICAL, UNITS, to_canonical
from softipu.errors import UnknownSystem

CHIPS = arch.chip_names()
SYSTEMS = arch.system_names()
FILES = [("chip", name) for name in CHIPS] + [("system", name) for name in SYSTEMS]
MACHINE_OF = {"mk2": "m2000", "bow": "bow-2000"}
NO_SOURCE = re.compile(r"\b(todo|tbd|fixme|xxx|placeholder|citation needed|lorem)\b", re.I)
EMPTY_WORDS = {"", "none", "n/a", "unknown", "guess", "internet", "web", "see above", "various"}


def load(kind: str, name: str) -> Chip | System:
    return arch.chip(name) if kind == "chip" else arch.system(name)


@pytest.fixture(params=FILES, ids=lambda pair: f"{pair[0]}-{pair[1]}")
def item(request: pytest.FixtureRequest) -> Chip | System:
    return load(*request.param)


# --- sources -----------------------------------------------------------------------------------


def test_every_value_has_a_known_unit_and_a_source(item: Chip | System) -> None:
    for key, quantity in item.quantities().items():
        assert quantity.unit in UNITS, key
        assert len(quantity.source) >= 6, key


def test_no_source_is_a_placeholder(item: Chip | System) -> None:
    for key, quantity in item.quantities().items():
        words = quantity.source.removeprefix("assumption:").removeprefix("derived:")
        assert words.strip().lower() not in EMPTY_WORDS, key
        assert not NO_SOURCE.search(words), (key, quantity.source)
        assert not re.search(r"(?<!\S)/\w", quantity.source), f"{key}: a path of one machine"


def test_a_source_is_a_document_a_formula_or_an_assumption_with_a_reason(
    item: Chip | System,
) -> None:
    for key, quantity in item.quantities().items():
        if quantity.is_assumption:
            assert len(quantity.source.removeprefix("assumption:").split()) >= 3, key
        elif not quantity.is_derived:
            # repository and file, web address, or paper
            assert re.search(r"\w+/\w+|arXiv:\d{4}\.\d{5}", quantity.source), (key, quantity.source)


def test_a_derived_value_names_the_keys_it_comes_from(item: Chip | System) -> None:
    for key, quantity in item.quantities().items():
        if quantity.is_derived:
            named = set(re.findall(r"[a-z][a-z0-9_]+", quantity.source)) - {"derived"}
            assert named, key
            assert named <= set(item.quantities()), (key, named)


def test_a_derived_value_follows_from_its_formula(item: Chip | System) -> None:
    for key, quantity in item.quantities().items():
        if quantity.is_derived:
            values = {other: getattr(item, other) for other in item.quantities()}
            formula = quantity.source.removeprefix("derived:").strip()
            result = eval(formula, {"__builtins__": {}}, values)
            assert result == pytest.approx(getattr(item, key), rel=0.01), key


def test_an_attribute_is_its_stated_value_in_canonical_units(item: Chip | System) -> None:
    kind: type = type(item)
    for key, row in rows(kind).items():
        if key == "chip" or key not in item.quantities():
            continue
        quantity = item.quantity(key)
        if row.kind in (int, float):
            assert not isinstance(quantity.value, str)
            expected = to_canonical(quantity.value, quantity.unit)
            assert getattr(item, key) == pytest.approx(expected, rel=1e-12), key
        else:
            assert getattr(item, key) == quantity.value


def test_an_optional_value_that_the_file_leaves_out_is_none() -> None:
    assert arch.chip("mk2").fp8_macs_per_cycle is None
    assert arch.chip("mk2").peak_fp8_flops is None
    assert arch.system("c600").gw_link_bandwidth is None


def test_asking_for_a_quantity_that_is_not_stated_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="fp8_macs_per_cycle"):
        arch.chip("mk2").quantity("fp8_macs_per_cycle")


def test_a_quantity_keeps_the_unit_of_its_file() -> None:
    clock = arch.chip("mk2").quantity("clock")
    assert (clock.value, clock.unit) == (1.33, "GHz")
    assert "PopRT" in clock.source
    assert "1330MHz" in clock.note


# --- the schema --------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [Chip, System])
def test_the_row_of_a_field_agrees_with_its_type(cls: type) -> None:
    hints = typing.get_type_hints(cls)
    for key, row in rows(cls).items():
        if (cls, key) == (System, "chip"):  # the file names it, the attribute is the chip itself
            assert hints[key] is Chip
            continue
        assert hints[key] == (row.kind if row.required else row.kind | None), key


@pytest.mark.parametrize("cls", [Chip, System])
def test_every_row_has_a_known_dimension_and_a_one_line_meaning(cls: type) -> None:
    for key, row in rows(cls).items():
        assert row.dimension in CANONICAL, key
        assert row.meaning, key
        assert "\n" not in row.meaning, key


@pytest.mark.parametrize("cls", [Chip, System])
def test_every_field_but_the_name_and_the_raw_values_has_a_row(cls: type) -> None:
    names = {field.name for field in dataclasses.fields(cls)}
    assert names - set(rows(cls)) == {"name", "_quantities"}


def test_every_optional_key_is_used_by_some_file() -> None:
    for kind, cls, names in (("chip", Chip, CHIPS), ("system", System, SYSTEMS)):
        used = {key for name in names for key in load(kind, name).quantities()}
        assert used == set(rows(cls))


# --- published figures -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "fp16", "fp32"),
    [
        ("mk1", 124.5e12, 31.1e12),
        ("mk2", 250e12, 62.5e12),
        ("c600", 280e12, 70e12),
        ("bow", 89.23e15 / 256, 22.31e15 / 256),
    ],
)
def test_tiles_units_and_clock_reproduce_the_published_peaks(
    name: str, fp16: float, fp32: float
) -> None:
    chip = arch.chip(name)
    assert chip.peak_fp16_flops == pytest.approx(fp16, rel=0.01)
    assert chip.peak_fp32_flops == pytest.approx(fp32, rel=0.01)


def test_only_the_c600_has_quarter_precision_and_it_reaches_560_teraflops() -> None:
    assert [name for name in CHIPS if arch.chip(name).peak_fp8_flops] == ["c600"]
    assert arch.chip("c600").peak_fp8_flops == pytest.approx(560e12, rel=0.01)


@pytest.mark.parametrize("name", CHIPS)
def test_a_stated_peak_agrees_with_the_computed_one(name: str) -> None:
    chip = arch.chip(name)
    assert chip.stated_peak_fp16 == pytest.approx(chip.peak_fp16_flops, rel=0.01)
    assert chip.stated_peak_fp32 == pytest.approx(chip.peak_fp32_flops, rel=0.01)
    if chip.stated_peak_fp8 is not None:
        assert chip.stated_peak_fp8 == pytest.approx(chip.peak_fp8_flops, rel=0.01)


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_published_peak_of_a_system_agrees_with_its_chips(name: str) -> None:
    system = arch.system(name)
    # System peaks are published to one or two digits ("nearly 4", "over 22" petaFLOPS).
    for stated, computed in (
        (system.stated_peak_fp16, system.peak_fp16_flops),
        (system.stated_peak_fp32, system.peak_fp32_flops),
    ):
        if stated is not None:
            assert stated == pytest.approx(computed, rel=0.02)


def test_figures_that_people_know_by_heart_are_right() -> None:
    mk2, bow = arch.chip("mk2"), arch.chip("bow")
    assert (mk2.tiles, mk2.tile_memory, mk2.contexts) == (1472, 624 * 1024, 7)
    assert mk2.clock == 1_330_000_000
    assert bow.clock == 1_850_000_000
    assert arch.chip("mk1").memory_bytes == 304 * 2**20
    assert mk2.memory_bytes == 897 * 2**20
    assert mk2.exchange_bandwidth == pytest.approx(7.83e12, rel=0.001)
    assert mk2.seconds(1330) == pytest.approx(1e-6)


@pytest.mark.parametrize("name", CHIPS)
def test_matrix_units_and_vector_width_give_the_half_precision_rate(name: str) -> None:
    chip = arch.chip(name)
    assert chip.amp_units * chip.vector_width_fp16 == chip.fp16_macs_per_cycle


@pytest.mark.parametrize("name", CHIPS)
def test_the_parts_of_tile_memory_fit_together(name: str) -> None:
    chip = arch.chip(name)
    assert chip.region0_size + chip.region1_size == chip.tile_memory
    assert chip.region0_size % chip.memory_element_size == 0
    assert chip.region1_size % (chip.memory_element_size * chip.interleave_factor) == 0
    assert chip.tile_memory_base % chip.memory_element_size == 0


@pytest.mark.parametrize(
    ("name", "architecture", "arch_id"),
    [("mk1", "ipu1", 1), ("mk2", "ipu2", 2), ("c600", "ipu21", 21), ("bow", "ipu2", 2)],
)
def test_a_chip_reports_the_architecture_that_tools_print(
    name: str, architecture: str, arch_id: int
) -> None:
    assert arch.chip(name).architecture == architecture
    assert arch.chip(name).ipu_arch_id == arch_id


# --- systems -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_parts_of_a_system_add_up(name: str) -> None:
    system = arch.system(name)
    assert system.ipus == system.machines * system.ipus_per_machine
    assert system.boards * system.ipus_per_board == system.ipus
    assert system.link_domains * system.ipu_link_domain == system.ipus
    assert system.memory_bytes == system.ipus * system.chip.memory_bytes


@pytest.mark.parametrize("name", [name for name in SYSTEMS if "pod" in name])
def test_a_pod_has_as_many_ipus_as_its_name_says(name: str) -> None:
    system = arch.system(name)
    assert system.ipus == int(name.rpartition("pod")[2])
    assert system.machines == system.ipus // 4
    assert system.chip.name == ("bow" if name.startswith("bow") else "mk2")


@pytest.mark.parametrize("name", [name for name in SYSTEMS if "pod" in name])
def test_a_pod_is_made_of_the_machines_that_are_described_alone(name: str) -> None:
    pod = arch.system(name)
    machine = arch.system(MACHINE_OF[pod.chip.name])
    whole_system = {
        "product", "ipus", "machines", "link_topology", "ipu_link_domain",
        "stated_peak_fp16", "stated_peak_fp32",
    }  # fmt: skip
    for key in set(rows(System)) - whole_system:
        assert getattr(pod, key) == getattr(machine, key), key


@pytest.mark.parametrize(("name", "domains"), [("pod64", 1), ("pod128", 2), ("bow-pod256", 4)])
def test_pods_above_64_are_racks_joined_by_gateway_links(name: str, domains: int) -> None:
    system = arch.system(name)
    assert system.link_domains == domains
    assert system.link_topology == "torus"
    assert system.gw_link_bandwidth == 25_000_000_000


def test_a_card_is_one_chip_on_pcie_without_streaming_memory() -> None:
    card = arch.system("c600")
    assert (card.ipus, card.boards, card.ipus_per_board) == (1, 1, 1)
    assert (card.interconnect, card.board_type) == ("pcie", "C600")
    assert card.streaming_memory_bytes == 0
    assert card.chip is arch.chip("c600")


def test_link_and_memory_totals_are_in_bytes() -> None:
    pod = arch.system("bow-pod16")
    assert pod.ipu_link_bandwidth == 64_000_000_000
    assert pod.effective_ipu_link_bandwidth == pytest.approx(54.4e9)
    assert pod.streaming_memory_bytes == 4 * 256_000_000_000
    assert pod.host_link_bandwidth == 12_500_000_000


@pytest.mark.parametrize("name", SYSTEMS)
def test_modelled_temperatures_stay_where_hardware_works(name: str) -> None:
    system = arch.system(name)
    assert system.board_idle_power < system.board_full_power
    if system.board_power_limit is not None:
        assert system.board_full_power <= system.board_power_limit
    rise = system.board_temperature_per_watt * system.board_full_power
    board = system.ambient_temperature + rise
    die = board + system.die_temperature_per_watt * system.board_full_power / system.ipus_per_board
    assert 20 < board < 70
    assert board < die < 95


@pytest.mark.parametrize(
    ("name", "watts", "board"),
    [
        ("m2000", 113.7, 35.0),  # gc-monitor chapter of the command-line tools
        ("m2000", 172.0, 37.6),  # gc-powertest chapter, mean of five sensors
        ("bow-2000", 92.3, 21.1),  # argonne-lcf/user-guides
        ("c600", 12.6, 17.8),  # device attributes chapter
    ],
)
def test_modelled_board_temperature_is_near_public_samples(
    name: str, watts: float, board: float
) -> None:
    system = arch.system(name)
    modelled = system.ambient_temperature + watts * system.board_temperature_per_watt
    assert modelled == pytest.approx(board, abs=2.6)


# --- names and objects -------------------------------------------------------------------------


def test_names_come_in_the_order_in_which_people_think_of_them() -> None:
    assert CHIPS == ("mk1", "mk2", "c600", "bow")
    assert SYSTEMS == (
        "m2000", "bow-2000", "c600", "pod4", "pod16", "pod64", "pod128", "pod256",
        "bow-pod4", "bow-pod16", "bow-pod64", "bow-pod128", "bow-pod256",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "meant"), [("pod17", "pod16"), ("BOW-POD16", "bow-pod16"), ("m200", "m2000")]
)
def test_an_unknown_system_lists_the_known_ones_and_the_nearest(wrong: str, meant: str) -> None:
    with pytest.raises(UnknownSystem) as caught:
        arch.system(wrong)
    assert f"Did you mean {meant!r}?" in caught.value.what
    assert all(name in caught.value.what for name in SYSTEMS)


def test_an_unknown_chip_lists_the_known_ones() -> None:
    with pytest.raises(UnknownSystem) as caught:
        arch.chip("gpu")
    assert "Did you mean" not in caught.value.what
    assert "mk1, mk2, c600, bow" in caught.value.what


@pytest.mark.parametrize("name", ["", "../chips/mk2", "mk2.toml", "pod16\0", "/etc/passwd"])
def test_a_name_is_never_taken_for_a_path(name: str) -> None:
    with pytest.raises(UnknownSystem):
        arch.system(name)


def test_a_file_is_read_once() -> None:
    assert arch.system("pod16") is arch.system("pod16")
    assert arch.system("pod16").chip is arch.chip("mk2")


def test_chips_and_systems_are_values(item: Chip | System) -> None:
    for twin in (pickle.loads(pickle.dumps(item)), copy.deepcopy(item)):
        assert twin == item
        assert hash(twin) == hash(item)
        assert twin.quantities() == item.quantities()


def test_chips_and_systems_cannot_be_changed(item: Chip | System) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        item.name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        item.quantities()["name"] = item.quantity("product")  # type: ignore[index]


def test_a_repr_is_one_short_line() -> None:
    assert repr(arch.chip("mk2")) == "<Chip mk2: GC200, 1472 tiles, 1.33 GHz>"
    assert repr(arch.system("pod16")) == "<System pod16: 16 x GC200 in 4 x M2000>"


def test_an_attribute_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'gpu'"):
        _ = arch.gpu  # type: ignore[attr-defined]
    assert set(arch.__all__) <= set(dir(arch))


def test_listing_names_reads_no_file_and_builds_no_class() -> None:
    probe = (
        "import sys, softipu.arch as a; a.system_names();"
        "print({'tomllib', 'tomli', 'dataclasses', 'difflib'} & set(sys.modules))"
    )
    path = os.pathsep.join(entry for entry in sys.path if entry)
    result = subprocess.run(
        [sys.executable, "-S", "-c", probe],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "set()"
