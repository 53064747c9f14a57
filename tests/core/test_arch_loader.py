"""How softipu.arch reads files: what it refuses, naming the file and the key each time."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from softipu import arch
from softipu.arch.loader import load_chip, load_system
from softipu.arch.schema import rows
from softipu.errors import ArchitectureError

PACKAGE = Path(arch.__file__).parent
CHIP_TEXT = (PACKAGE / "chips" / "mk2.toml").read_text()
SYSTEM_TEXT = (PACKAGE / "systems" / "pod16.toml").read_text()

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file under the name that its text states, unless told another."""

    def write(text: str, name: str = "mk2") -> Path:
        path = tmp_path / f"{name}.toml"
        path.write_text(text)
        return path

    return write


def with_entry(text: str, key: str, entry: str) -> str:
    """The text with the line of a key replaced."""
    lines = [
        f"{key} = {entry}" if line.startswith(f"{key} = ") else line for line in text.splitlines()
    ]
    changed = "\n".join(lines) + "\n"
    assert changed != text, f"{key} is not in the file"
    return changed


def without(text: str, key: str) -> str:
    lines = [line for line in text.splitlines() if not line.startswith(f"{key} = ")]
    assert len(lines) == len(text.splitlines()) - 1
    return "\n".join(lines) + "\n"


def valued(value: str, unit: str = "1", source: str = "a book, page 7") -> str:
    return f'{{ value = {value}, unit = "{unit}", source = "{source}" }}'


def refusal(load: Callable[[Path], object], path: Path) -> str:
    with pytest.raises(ArchitectureError) as caught:
        load(path)
    what = caught.value.what
    assert str(path) in what, "the message must name the file"
    return what


# --- what is accepted --------------------------------------------------------------------------


def test_a_file_outside_the_package_loads_like_one_inside(write: Write) -> None:
    assert load_chip(write(CHIP_TEXT)) == arch.chip("mk2")
    assert load_system(write(SYSTEM_TEXT, "pod16")) == arch.system("pod16")


def test_a_path_may_be_text(write: Write) -> None:
    assert load_chip(os.fspath(write(CHIP_TEXT))) == arch.chip("mk2")


def test_a_value_may_be_in_any_unit_of_its_dimension(write: Write) -> None:
    text = with_entry(CHIP_TEXT, "clock", valued("1100.7", "MHz"))
    assert load_chip(write(text)).clock == 1_100_700_000


def test_a_whole_valued_float_is_a_whole_number(write: Write) -> None:
    tiles = load_chip(write(with_entry(CHIP_TEXT, "tiles", valued("1472.0")))).tiles
    assert tiles == 1472
    assert type(tiles) is int


def test_a_number_of_kind_float_is_a_float_even_when_the_file_says_250(write: Write) -> None:
    assert type(load_chip(write(CHIP_TEXT)).stated_peak_fp16) is float


def test_zero_is_accepted_only_where_it_means_something(write: Write) -> None:
    text = with_entry(SYSTEM_TEXT, "streaming_memory", valued("0", "GB"))
    assert load_system(write(text, "pod16")).streaming_memory == 0
    assert "'tiles'" in refusal(load_chip, write(with_entry(CHIP_TEXT, "tiles", valued("0"))))


def test_a_system_may_refer_to_a_chip_that_the_caller_loaded(write: Write) -> None:
    mine = load_chip(write(CHIP_TEXT.replace('name = "mk2"', 'name = "mine"'), "mine"))
    text = with_entry(SYSTEM_TEXT, "chip", valued('"mine"', "text"))
    assert load_system(write(text, "pod16"), chips={"mine": mine}).chip is mine


def test_a_note_is_optional_and_kept(write: Write) -> None:
    entry = '{ value = 1472, unit = "1", source = "a book, page 7", note = " spares left out " }'
    tiles = load_chip(write(with_entry(CHIP_TEXT, "tiles", entry))).quantity("tiles")
    assert tiles.note == "spares left out"
    assert arch.chip("mk2").quantity("tiles").note == ""


# --- broken values, one at a time ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "entry", "complaint"),
    [
        pytest.param("tiles", valued("1472", "furlong"), "unknown unit 'furlong'", id="bad-unit"),
        pytest.param("tiles", '{ value = 1, source = "book" }', "unknown unit None", id="no-unit"),
        pytest.param(
            "tiles", '{ value = 1, unit = 1, source = "book" }', "unknown unit 1", id="unit-int"
        ),
        pytest.param("tiles", valued("1472", "GHz"), "measures frequency", id="wrong-dimension"),
        pytest.param("clock", valued("1.33", "1"), "Hz, MHz, GHz", id="dimension-says-which"),
        pytest.param("tiles", valued('"many"'), "must be a number", id="text-for-number"),
        pytest.param("tiles", valued("true"), "must be a number", id="bool-is-no-number"),
        pytest.param("stated_peak_fp16", valued("false", "FLOP/s"), "a number", id="bool-no-float"),
        pytest.param("tiles", valued("[1]"), "must be a number", id="list-for-number"),
        pytest.param("tiles", valued("1979-05-27"), "must be a number", id="date-for-number"),
        pytest.param("tiles", valued("1.5"), "whole number", id="half-a-tile"),
        pytest.param("tiles", valued("-1"), "more than zero", id="negative"),
        pytest.param("clock", valued("-1.33", "GHz"), "more than zero", id="negative-float"),
        pytest.param("stated_peak_fp16", valued("nan", "FLOP/s"), "finite", id="nan"),
        pytest.param("stated_peak_fp16", valued("inf", "FLOP/s"), "finite", id="inf"),
        pytest.param("stated_peak_fp16", valued("-inf", "FLOP/s"), "finite", id="minus-inf"),
        pytest.param("clock", valued("1e308", "GHz"), "finite", id="overflows-when-converted"),
        pytest.param("tiles", valued("1" + "0" * 400), "finite", id="too-large-for-a-float"),
        pytest.param("product", valued("7", "text"), "must be text", id="number-for-text"),
        pytest.param("product", valued('" "', "text"), "must be text", id="blank-text"),
        pytest.param("architecture", valued('"ipu9"', "text"), "ipu1, ipu2, ipu21", id="choice"),
        pytest.param("tiles", '{ value = 1, unit = "1" }', "no source", id="no-source"),
        pytest.param("tiles", valued("1472", source=""), "no source", id="empty-source"),
        pytest.param("tiles", valued("1472", source="  "), "no source", id="blank-source"),
        pytest.param(
            "tiles", '{ value = 1, unit = "1", source = 7 }', "not text", id="source-no-text"
        ),
        pytest.param(
            "tiles", '{ value = 1, unit = "1", source = "b", note = 1 }', "not text", id="note-int"
        ),
        pytest.param("tiles", '{ unit = "1", source = "book" }', "no value", id="no-value"),
        pytest.param(
            "tiles",
            '{ value = 1, unit = "1", source = "b", scource = "c" }',
            "unknown part 'scource'",
            id="unknown-part",
        ),
        pytest.param("tiles", "1472", "must be a table", id="bare-value"),
        pytest.param("tiles", "[]", "must be a table", id="list"),
        pytest.param("tile_memory", valued("1", "MiB"), "regions add up", id="regions"),
        pytest.param("ipu_link_efficiency", valued("85"), "a part of one", id="efficiency"),
    ],
)
def test_a_chip_file_with_one_broken_value_is_refused(
    write: Write, key: str, entry: str, complaint: str
) -> None:
    what = refusal(load_chip, write(with_entry(CHIP_TEXT, key, entry)))
    assert f"key {key!r}" in what
    assert complaint in what


@pytest.mark.parametrize(
    ("key", "entry", "complaint"),
    [
        pytest.param("chip", valued('"mk7"', "text"), "mk1, mk2, c600, bow", id="unknown-chip"),
        pytest.param("ipus", valued("32"), "4 machines of 4 IPUs make 16", id="sum"),
        pytest.param("interconnect", valued('"string"', "text"), "fabric, pcie", id="choice"),
        pytest.param("remote_buffers", valued("1", "bool"), "true or false", id="one-is-no-bool"),
        pytest.param("remote_buffers", valued("true", "1"), "measures number", id="bool-unit"),
        pytest.param("boards_per_machine", valued("3"), "does not divide", id="boards"),
        pytest.param("ipu_link_domain", valued("6"), "does not divide", id="domain"),
        pytest.param("board_full_power", valued("1", "W"), "less than idle", id="power"),
        pytest.param("board_idle_power", valued("-5", "W"), "more than zero", id="negative-power"),
        pytest.param("gw_link_bandwidth", valued("2", "GB"), "data rate", id="bytes-for-rate"),
    ],
)
def test_a_system_file_with_one_broken_value_is_refused(
    write: Write, key: str, entry: str, complaint: str
) -> None:
    what = refusal(load_system, write(with_entry(SYSTEM_TEXT, key, entry), "pod16"))
    assert f"key {key!r}" in what
    assert complaint in what


def test_a_number_of_ipus_that_is_no_power_of_two_is_refused(write: Write) -> None:
    text = with_entry(SYSTEM_TEXT, "machines", valued("3"))
    text = with_entry(text, "ipus", valued("12"))
    text = with_entry(text, "ipu_link_domain", valued("12"))
    what = refusal(load_system, write(text, "pod16"))
    assert "key 'ipus'" in what
    assert "power of two" in what


# --- broken files --------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [key for key, row in rows(arch.Chip).items() if row.required])
def test_a_chip_file_without_a_required_key_is_refused(write: Write, key: str) -> None:
    what = refusal(load_chip, write(without(CHIP_TEXT, key)))
    assert f"key {key!r} is missing" in what


@pytest.mark.parametrize("key", [key for key, row in rows(arch.System).items() if row.required])
def test_a_system_file_without_a_required_key_is_refused(write: Write, key: str) -> None:
    what = refusal(load_system, write(without(SYSTEM_TEXT, key), "pod16"))
    assert f"key {key!r} is missing" in what


@pytest.mark.parametrize("key", ["gw_link_bandwidth", "intra_pair_links"])
def test_a_system_file_may_leave_out_an_optional_key(write: Write, key: str) -> None:
    system = load_system(write(without(SYSTEM_TEXT, key), "pod16"))
    assert getattr(system, key) is None
    assert key not in system.quantities()


@pytest.mark.parametrize("key", ["tyles", "_quantities", "memory_bytes", "ipus"])
def test_an_unknown_key_is_refused(write: Write, key: str) -> None:
    what = refusal(load_chip, write(f"{CHIP_TEXT}\n{key} = {valued('1')}\n"))
    assert f"key {key!r} is not a key of a chip file" in what


@pytest.mark.parametrize("version", ["2", "0", "1.0", '"1"', "true"])
def test_another_format_is_refused(write: Write, version: str) -> None:
    what = refusal(load_chip, write(with_entry(CHIP_TEXT, "format", version)))
    assert "key 'format'" in what


@pytest.mark.parametrize("key", ["format", "name"])
def test_a_file_without_a_frame_is_refused(write: Write, key: str) -> None:
    assert f"key {key!r}" in refusal(load_chip, write(without(CHIP_TEXT, key)))


@pytest.mark.parametrize("name", ['"mk3"', "2", '""'])
def test_a_name_other_than_that_of_the_file_is_refused(write: Write, name: str) -> None:
    what = refusal(load_chip, write(with_entry(CHIP_TEXT, "name", name)))
    assert "key 'name'" in what
    assert "'mk2'" in what


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda text: text[: len(text) // 2], id="cut-off"),
        pytest.param(lambda text: text + text, id="keys-twice"),
        pytest.param(lambda text: "<html>not found</html>", id="another-file"),
        pytest.param(lambda text: "x = " + "[" * 100_000, id="nested-without-end"),
    ],
)
def test_damaged_toml_is_refused(write: Write, damage: Callable[[str], str]) -> None:
    assert "is not valid TOML" in refusal(load_chip, write(damage(CHIP_TEXT)))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mk2.toml"
    path.write_bytes(b"\xff\xfe\x00")
    assert "is not valid TOML" in refusal(load_chip, path)


def test_an_empty_file_is_refused(write: Write) -> None:
    assert "key 'format'" in refusal(load_chip, write(""))


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    assert "cannot be read" in refusal(load_chip, tmp_path / "mk2.toml")
    (tmp_path / "pod16.toml").mkdir()
    assert "cannot be read" in refusal(load_system, tmp_path / "pod16.toml")


def test_a_chip_file_is_no_system_file(write: Write) -> None:
    assert "is not a key of a system file" in refusal(load_system, write(CHIP_TEXT))


# --- anything at all -----------------------------------------------------------------------------

same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@same_folder
@given(data=st.binary(max_size=200))
def test_arbitrary_bytes_never_get_past_the_loader(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "mk2.toml"
    path.write_bytes(data)
    with pytest.raises(ArchitectureError):
        load_chip(path)


@same_folder
@given(
    key=st.sampled_from(sorted(rows(arch.System))),
    value=st.one_of(
        st.integers().map(str),
        st.floats().map(str),
        st.booleans().map(lambda flag: str(flag).lower()),
        st.sampled_from(['"ladder"', '""', "[]", "{}", "07:32:00", "0xffff", "-0.0", "1e-320"]),
    ),
    unit=st.sampled_from(["1", "B", "GB", "bit/s", "W", "degC", "text", "bool", "parsec"]),
)
def test_a_changed_value_is_either_refused_or_taken_over_faithfully(
    tmp_path: Path, key: str, value: str, unit: str
) -> None:
    path = tmp_path / "bow-pod256.toml"
    text = (PACKAGE / "systems" / "bow-pod256.toml").read_text()
    present = any(line.startswith(f"{key} = ") for line in text.splitlines())
    entry = valued(value, unit)
    path.write_text(with_entry(text, key, entry) if present else f"{text}{key} = {entry}\n")
    try:
        system = load_system(path)
    except ArchitectureError:
        return  # the only way to refuse: any other exception fails this test
    assert system.quantity(key).unit == unit
    assert getattr(system, key) is not None
