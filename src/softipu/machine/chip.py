"""The chip and the system around it as the model sees them: rates in bytes per tile cycle."""

from __future__ import annotations

from dataclasses import dataclass

from softipu import arch
from softipu.errors import SettingsContradict

from .settings import Settings

#: GC2 cards have no system of their own in `softipu.arch`; links and host of an IPU-M2000 stand in,
#: as many as the program takes.
_STAND_IN = {"mk1": "m2000"}


@dataclass(frozen=True)
class Machine:
    """One IPU of a system. Tiles are those that compute; rates are per cycle of its clock."""

    chip: str
    system: str
    tiles: int
    io_tiles: int
    clock: float
    #: Bytes of one tile.
    memory: int
    workers: int
    #: Starting a copy on all workers.
    copy_call: int
    #: Bytes that a tile receives in a cycle, and tiles that can share what they receive.
    exchange: int
    bus: int
    sync: int
    global_sync: int
    #: Matrix units with half and with float partials; those for float inputs are as many as for
    #: half partials.
    units: int
    units_float: int
    quarter: bool
    copy: int
    load: int
    #: Payload of the links between the two IPUs of a pair, of those to the next pair, and of an
    #: IPU's share of the gateway.
    link: float
    rail: float
    gateway: float
    link_domain: int
    ipus: int
    ipus_per_machine: int
    #: From buffers that the host has filled, over an IPU's own link; what the host itself keeps up,
    #: which all IPUs of a machine share.
    host: float
    host_sustained: float
    #: Streaming memory (of cards: what they have of their host's), per IPU, and how much of it each
    #: IPU has.
    streaming: float
    streaming_bytes: float

    @property
    def all_tiles(self) -> int:
        return self.tiles + self.io_tiles


def smallest_system(chip: str, ipus: int) -> str:
    """The first system with such chips and enough of them."""
    home = _STAND_IN.get(chip)
    if home is not None:
        return home
    names = [name for name in arch.system_names() if arch.system(name).chip.name == chip]
    for name in names:
        if arch.system(name).ipus >= ipus:
            return name
    # Cards sit side by side in one host: as many as somebody has put there.
    return names[-1]


def _rail(system: arch.System) -> float:
    """Fewer links go to the next pair than to an IPU's partner."""
    share = 1.0
    if system.up_links and system.intra_pair_links:
        share = system.up_links / system.intra_pair_links
    return system.effective_ipu_link_bandwidth * share


def machine(settings: Settings, ipus: int = 1) -> Machine:
    """What `settings` describe, for a program that takes that many IPUs in all."""
    chip = arch.chip(settings.chip)
    name = settings.system or smallest_system(chip.name, ipus)
    system = arch.system(name)
    if settings.system is not None and system.chip.name != chip.name:
        raise SettingsContradict(
            f"the system {name} has {system.chip.name} chips, the settings say {chip.name}"
        )
    card = system.interconnect == "pcie" or chip.name in _STAND_IN
    if ipus > system.ipus and settings.system is not None:
        raise SettingsContradict(
            f"the program takes {ipus} IPUs, the system {name} has {system.ipus}",
            remedy="Use fewer replicas or pipeline stages, or a larger system.",
        )
    if ipus > system.ipus and not card:
        raise SettingsContradict(
            f"the program takes {ipus} IPUs, and no system with {chip.name} chips has more than the"
            f" {system.ipus} of {name}",
            remedy="Use fewer replicas or pipeline stages.",
        )
    tiles = chip.tiles if settings.tiles is None else settings.tiles
    clock = float(chip.clock if settings.clock_hz is None else settings.clock_hz)
    if tiles <= 0 or clock <= 0:
        raise SettingsContradict(f"{tiles} tiles at {clock} Hz is no IPU")
    if not 0 <= settings.io_tiles < tiles:
        raise SettingsContradict(
            f"{settings.io_tiles} of {tiles} tiles for I/O leave none to compute"
        )
    sharing = min(system.ipus_per_machine, ipus)
    gateway = system.gw_link_bandwidth or system.ipu_link_bandwidth
    return Machine(
        chip=chip.name, system=name, tiles=tiles - settings.io_tiles, io_tiles=settings.io_tiles,
        clock=clock, memory=chip.tile_memory, workers=chip.worker_contexts,
        copy_call=chip.local_copy_call_cycles,
        exchange=chip.exchange_bytes_per_cycle, bus=chip.tiles_per_exchange_bus,
        sync=chip.internal_sync_cycles, global_sync=chip.global_sync_cycles, units=chip.amp_units,
        units_float=chip.amp_units_float_partials, quarter=chip.fp8_macs_per_cycle is not None,
        copy=chip.local_copy_bytes_per_cycle, load=chip.load_bytes_per_cycle,
        link=system.effective_ipu_link_bandwidth / clock, rail=_rail(system) / clock,
        gateway=gateway / system.ipus_per_machine / clock, link_domain=system.ipu_link_domain,
        ipus=max(system.ipus, ipus), ipus_per_machine=system.ipus_per_machine,
        host=system.host_exchange_bandwidth / clock,
        host_sustained=system.host_streaming_bandwidth / sharing / clock,
        streaming=system.host_streaming_bandwidth / clock,
        streaming_bytes=system.remote_bytes,
    )  # fmt: skip
