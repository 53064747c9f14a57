"""What is known of an IPU chip and of a system of IPUs: plain, immutable, in canonical units.

Bytes, hertz, bytes per second, FLOP/s, watts, degrees Celsius, seconds. Nothing here estimates
performance (that is `softipu.machine`) or knows which devices are in use (`softipu.devices`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from softipu.arch.schema import flag, real, text, whole


class Quantity(NamedTuple):
    """One value as its file states it: in its own unit, with where it comes from."""

    value: int | float | str | bool
    unit: str
    source: str
    note: str = ""

    @property
    def is_assumption(self) -> bool:
        """Whether no document backs the value; the source then gives the reason for it."""
        return self.source.startswith("assumption:")

    @property
    def is_derived(self) -> bool:
        """Whether the value follows from other keys; the source then gives the formula."""
        return self.source.startswith("derived:")


class _Sourced:
    """Access to the values as the file states them, beside the converted attributes."""

    name: str
    _quantities: dict[str, Quantity]

    def quantity(self, key: str) -> Quantity:
        """The stated value, unit and source of a key; KeyError when the file does not have it."""
        return self._quantities[key]

    def quantities(self) -> Mapping[str, Quantity]:
        """Every key that the file states, read-only."""
        return MappingProxyType(self._quantities)


@dataclass(frozen=True, kw_only=True, repr=False)
class Chip(_Sourced):
    """One generation of IPU processor. Rates are per tile unless the name says otherwise."""

    name: str
    product: str = text("name of the processor in documents")
    family: str = text("generation in words")
    architecture: str = text("architecture as tools print it", "ipu1", "ipu2", "ipu21")
    ipu_arch_id: int = whole("architecture number in IPUoF configuration files")
    tiles: int = whole("tiles that a program can use")
    physical_tiles: int | None = whole("tiles on the die, spares included", optional=True)
    worker_contexts: int = whole("worker threads per tile, served round robin")
    supervisor_contexts: int = whole("supervisor threads per tile")
    clock: int = whole("tile clock", "frequency")

    tile_memory: int = whole("SRAM per tile", "memory")
    tile_memory_base: int = whole("first address of tile memory", "address")
    region0_size: int = whole("plain part of tile memory, at its start", "memory")
    region1_size: int = whole("interleaved part of tile memory, after region 0", "memory")
    memory_element_size: int = whole("bank that one access per cycle can use", "memory")
    interleave_factor: int = whole("elements that alternate in region 1")
    loader_reserved: int | None = whole(
        "end of tile memory that a program loader cannot fill", "memory", optional=True
    )
    sram_latency: int = whole("cycles from a load to its value", "cycles")
    load_bytes_per_cycle: int = whole("load rate from plain memory", "bytes per cycle")
    interleaved_load_bytes_per_cycle: int = whole(
        "load rate from interleaved memory", "bytes per cycle"
    )
    local_copy_bytes_per_cycle: int = whole("copy rate inside a tile", "bytes per cycle")

    fp16_macs_per_cycle: int = whole("half precision multiply-adds", "MACs per cycle")
    fp32_macs_per_cycle: int = whole("single precision multiply-adds", "MACs per cycle")
    fp8_macs_per_cycle: int | None = whole(
        "quarter precision multiply-adds", "MACs per cycle", optional=True
    )
    amp_units: int = whole("matrix units used with half partials")
    amp_units_float_partials: int = whole("matrix units used with float partials")
    vector_width_fp16: int = whole("halves in one vector instruction")
    vector_width_fp32: int = whole("floats in one vector instruction")
    stated_peak_fp16: float = real("published half precision peak of the chip", "compute rate")
    stated_peak_fp32: float = real("published single precision peak of the chip", "compute rate")
    stated_peak_fp8: float | None = real(
        "published quarter precision peak of the chip", "compute rate", optional=True
    )

    exchange_bytes_per_cycle: int = whole("receive rate of on-chip exchange", "bytes per cycle")
    tiles_per_exchange_bus: int = whole("tiles that share one exchange bus")
    internal_sync_cycles: int = whole("longest sync inside a chip", "cycles")
    global_sync_cycles: int = whole("sync between chips or with the host", "cycles")
    sync_hop_latency: float = real("global sync, per hop between chips", "time")

    supervisor_overhead_cycles: int = whole("start of an elementwise vertex", "cycles")
    local_copy_call_cycles: int = whole("start of a six-worker copy", "cycles")
    amp_call_cycles: int = whole("start of a matrix kernel", "cycles")

    ipu_links: int = whole("IPU-Links of the chip")
    ipu_link_bandwidth: int = whole("one IPU-Link, one direction", "data rate")
    ipu_link_efficiency: float = real("part of the link rate that is payload", "number")

    _quantities: dict[str, Quantity] = field(compare=False)

    @property
    def memory_bytes(self) -> int:
        """In-processor memory of the whole chip."""
        return self.tiles * self.tile_memory

    @property
    def contexts(self) -> int:
        """Hardware threads per tile, the supervisor included."""
        return self.worker_contexts + self.supervisor_contexts

    @property
    def peak_fp16_flops(self) -> float:
        """Half precision peak of the chip, computed from tiles, units and clock."""
        return self._peak(self.fp16_macs_per_cycle)

    @property
    def peak_fp32_flops(self) -> float:
        """Single precision peak of the chip, computed from tiles, units and clock."""
        return self._peak(self.fp32_macs_per_cycle)

    @property
    def peak_fp8_flops(self) -> float | None:
        """Quarter precision peak of the chip; None where the chip has no such units."""
        return None if self.fp8_macs_per_cycle is None else self._peak(self.fp8_macs_per_cycle)

    @property
    def exchange_bandwidth(self) -> float:
        """Bytes per second that all tiles together can receive over the on-chip exchange."""
        return float(self.tiles * self.exchange_bytes_per_cycle * self.clock)

    def seconds(self, cycles: float) -> float:
        """How long a number of tile cycles takes."""
        return cycles / self.clock

    def _peak(self, macs_per_cycle: int) -> float:
        # A multiply-add counts as two operations, as in every published peak.
        return float(self.tiles * macs_per_cycle * 2 * self.clock)

    def __repr__(self) -> str:
        return f"<Chip {self.name}: {self.product}, {self.tiles} tiles, {self.clock / 1e9} GHz>"


@dataclass(frozen=True, kw_only=True, repr=False)
class System(_Sourced):
    """IPUs in machines, as a user buys or rents them. Power figures feed modelled telemetry."""

    name: str
    product: str = text("name of the system in documents")
    # The file holds the chip's name; the loader puts the chip itself here.
    chip: Chip = text("chip file that describes the processors")  # noqa: RUF009
    ipus: int = whole("IPUs in the system")
    ipus_per_machine: int = whole("IPUs in one IPU-Machine or on one card")
    machines: int = whole("IPU-Machines or cards in the system")
    boards_per_machine: int = whole("boards, each with its own serial number and power sensor")
    board_type: str = text("board type as gc-info and gc-monitor print it")
    board_variant: str = text("board variant as gc-info prints it")
    interconnect: str = text("how the host reaches the IPUs", "fabric", "pcie")

    link_topology: str = text("shape of the IPU-Links of one domain", "none", "ladder", "torus")
    ipu_link_domain: int = whole("IPUs that IPU-Links join without a gateway")
    ipu_link_bandwidth: int = whole("IPU-Links of one IPU to its neighbour", "data rate")
    intra_pair_links: int | None = whole("links between the two IPUs of a pair", optional=True)
    cross_links: int | None = whole("links that carry routes across a pair", optional=True)
    up_links: int | None = whole("links of an IPU to the next rung", optional=True)
    down_links: int | None = whole("links of an IPU to the rung before", optional=True)
    gw_link_bandwidth: int | None = whole(
        "Gateway-Links of one machine to other domains", "data rate", optional=True
    )

    streaming_memory: int = whole("memory of one machine outside its chips", "memory", zero=True)
    host_link_bandwidth: int = whole("link of one machine to its host", "data rate")
    host_streaming_bandwidth: int = whole("host I/O that one machine sustains", "data rate")
    host_exchange_bandwidth: int = whole(
        "what one IPU takes from buffers that its host has filled already", "data rate"
    )
    pcie_link_speed: str = text("PCIe speed as gc-info prints it")
    pcie_link_width: int = whole("PCIe lanes as gc-info prints them")
    remote_buffers: bool = flag("whether gc-info says that remote buffers are supported")
    hexoatt_size: int = whole("'hexoatt total size' of gc-info", "memory")
    hexopt_size: int = whole("'hexopt total size' of gc-info", "memory")

    board_idle_power: float = real("one board, attached and idle", "power")
    board_full_power: float = real("one board, all its IPUs busy", "power")
    board_power_limit: float | None = real("cap of one board", "power", optional=True)
    ambient_temperature: float = real("air at the inlet", "temperature")
    board_temperature_per_watt: float = real(
        "board above ambient, per watt of the board", "thermal resistance"
    )
    die_temperature_per_watt: float = real(
        "die above its board, per watt of the IPU", "thermal resistance"
    )
    idle_clock: int | None = whole(
        "clock that tools show while no program runs, where it differs", "frequency", optional=True
    )
    stated_peak_fp16: float | None = real(
        "published half precision peak of the system", "compute rate", optional=True
    )
    stated_peak_fp32: float | None = real(
        "published single precision peak of the system", "compute rate", optional=True
    )

    _quantities: dict[str, Quantity] = field(compare=False)

    @property
    def boards(self) -> int:
        """Boards in the whole system."""
        return self.machines * self.boards_per_machine

    @property
    def ipus_per_board(self) -> int:
        """IPUs that share a board, hence a serial number and a power sensor."""
        return self.ipus_per_machine // self.boards_per_machine

    @property
    def link_domains(self) -> int:
        """Groups of IPUs that only Gateway-Links join to each other."""
        return self.ipus // self.ipu_link_domain

    @property
    def memory_bytes(self) -> int:
        """In-processor memory of all IPUs."""
        return self.ipus * self.chip.memory_bytes

    @property
    def streaming_memory_bytes(self) -> int:
        """Streaming memory of all machines."""
        return self.machines * self.streaming_memory

    @property
    def remote_bytes(self) -> float:
        """What remote buffers of one IPU may take: its share of a machine's streaming memory. Cards
        have none; their remote buffers lie in the host's memory, as far as its window reaches."""
        if self.streaming_memory:
            return self.streaming_memory / self.ipus_per_machine
        return float(self.hexoatt_size) if self.remote_buffers else 0.0

    @property
    def peak_fp16_flops(self) -> float:
        """Half precision peak of all IPUs, computed."""
        return self.ipus * self.chip.peak_fp16_flops

    @property
    def peak_fp32_flops(self) -> float:
        """Single precision peak of all IPUs, computed."""
        return self.ipus * self.chip.peak_fp32_flops

    @property
    def effective_ipu_link_bandwidth(self) -> float:
        """Payload bytes per second from an IPU to its neighbour."""
        return self.ipu_link_bandwidth * self.chip.ipu_link_efficiency

    def __repr__(self) -> str:
        what = f"{self.ipus} x {self.chip.product} in {self.machines} x {self.board_type}"
        return f"<System {self.name}: {what}>"
