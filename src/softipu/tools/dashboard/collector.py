"""From the statuses of `softipu.devices` to one snapshot: joins, sums and rates, as pure functions.

What one moment alone cannot tell comes from a `Memory` that the caller keeps. Nothing here reads
files, waits or serves; `reader` and `feed` do.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass

from ... import __version__, arch
from ...devices import Ipu, IpuStatus, Partition
from ...errors import RecordUnreadable, SoftIPUError
from . import snapshot as view
from .memory import Memory, Rate, next_rate, next_slots, process_key


@dataclass(frozen=True)
class Reading:
    """A partition and its statuses; None where they could not be read."""

    partition: Partition
    statuses: tuple[IpuStatus, ...] | None


def problem(error: SoftIPUError) -> view.Problem:
    return view.Problem(error.label, error.what, error.cause, error.remedy)


def take(
    readings: Sequence[Reading],
    problems: Sequence[view.Problem],
    memory: Memory,
    *,
    now: float,
    now_boot: float,
    interval: float,
    home: str,
    stale: bool = False,
) -> tuple[view.Snapshot, Memory]:
    """One snapshot, and what the next one needs to know about this one."""
    known = _distinct(readings)
    held = [status for status in known.values() if status.record is not None]
    rates = {}
    for status in held:
        rate = next_rate(memory.rates.get(status.ipu.key), status, now_boot)
        if rate is not None:
            rates[status.ipu.key] = rate
    slots = next_slots(
        memory.slots, (process_key(status.record) for status in held if status.record)
    )
    without_record = {key for key, one in known.items() if one.held and one.record is None}
    partitions = [
        _partition_view(reading, rates, active=number == 0)
        for number, reading in enumerate(readings)
    ]
    # For an instant of every attach and detach the lock is held without a record: only an IPU
    # that looks like that twice in a row is worth a banner.
    lasting = [known[key].ipu for key in known if key in without_record & memory.without_record]
    found = [*problems, *([problem(_unreadable(lasting))] if lasting else [])]
    sequence = memory.sequence + 1
    snapshot = view.Snapshot(
        version=view.VERSION,
        softipu=__version__,
        sequence=sequence,
        time=round(now, 3),
        interval=interval,
        server=socket.gethostname(),
        home=home,
        stale=stale,
        modelled=view.MODELLED,
        systems=systems(readings),
        partitions=partitions,
        processes=_processes(held, rates, slots),
        totals=totals(readings, rates),
        problems=list(dict.fromkeys(found)),
    )
    return snapshot, Memory(sequence, rates, slots, without_record)


def _distinct(readings: Sequence[Reading]) -> dict[str, IpuStatus]:
    """Every IPU whose status is known, once, however many partitions name it."""
    return {one.ipu.key: one for reading in readings for one in reading.statuses or ()}


def _unreadable(ipus: Sequence[Ipu]) -> RecordUnreadable:
    ids = ", ".join(f"{ipu.id} ({ipu.host} IPU# {ipu.device_id})" for ipu in ipus[:4])
    more = f" and {len(ipus) - 4} more" if len(ipus) > 4 else ""
    return RecordUnreadable(f"Held, but without a readable record: IPU {ids}{more}.")


def _partition_view(
    reading: Reading, rates: dict[str, Rate], *, active: bool
) -> view.PartitionView:
    partition, statuses = reading.partition, reading.statuses
    if statuses is None:
        ipus = [_unknown_view(ipu) for ipu in partition.ipus]
    else:
        ipus = [_ipu_view(status, rates.get(status.ipu.key)) for status in statuses]
    return view.PartitionView(
        name=partition.name,
        active=active,
        size=len(partition.ipus),
        busy=sum(one.state == "held" for one in ipus),
        origin=partition.origin,
        reconfigurable=partition.reconfigurable,
        gcd=partition.gcd,
        system=partition.system,
        board_type=partition.ipus[0].board_type if partition.ipus else "",
        interconnect=partition.interconnect,
        ipus=ipus,
    )


def _board(ipu: Ipu) -> str:
    host, number = ipu.board
    return f"{host}/{number}"


def _ipu_view(status: IpuStatus, rate: Rate | None) -> view.IpuView:
    ipu, record, sensors = status.ipu, status.record, status.sensors
    chip = arch.chip(ipu.chip)
    holder = None
    if record is not None:
        holder = view.Holder(
            process_key(record),
            record.pid,
            record.command,
            record.user,
            record.since,
            record.executable,
        )
    return view.IpuView(
        key=ipu.key,
        id=ipu.id,
        host=ipu.host,
        number=ipu.device_id,
        serial=ipu.serial,
        board=_board(ipu),
        state="held" if status.held else "free",
        holder=holder,
        utilisation=round(status.utilisation, 4),
        session_utilisation=round(status.session_utilisation, 4),
        memory_bytes=record.memory_bytes if record else 0,
        memory_total=chip.memory_bytes,
        clock_hz=chip.clock,
        host_in=round(rate.rate_in) if rate else 0,
        host_out=round(rate.rate_out) if rate else 0,
        ipu_power=round(sensors.ipu_power, 1),
        board_power=round(sensors.board_power, 1),
        board_temperature=round(sensors.board_temperature, 1),
        die_temperature=round(sensors.die_temperature, 1),
    )


def _unknown_view(ipu: Ipu) -> view.IpuView:
    chip = arch.chip(ipu.chip)
    return view.IpuView(
        ipu.key, ipu.id, ipu.host, ipu.device_id, ipu.serial, _board(ipu), "unknown", None,
        0.0, 0.0, 0, chip.memory_bytes, chip.clock, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
    )  # fmt: skip


def _processes(
    held: Sequence[IpuStatus], rates: dict[str, Rate], slots: dict[str, int]
) -> list[view.ProcessView]:
    groups: dict[str, list[IpuStatus]] = {}
    for status in held:
        if status.record is not None:
            groups.setdefault(process_key(status.record), []).append(status)
    return [_process_view(key, slots[key], group, rates) for key, group in groups.items()]


def _process_view(
    key: str, slot: int, group: Sequence[IpuStatus], rates: dict[str, Rate]
) -> view.ProcessView:
    record = group[0].record
    assert record is not None
    mine = [rates[status.ipu.key] for status in group if status.ipu.key in rates]
    return view.ProcessView(
        key=key,
        slot=slot,
        pid=record.pid,
        command=record.command,
        user=record.user,
        host=record.host,
        local=group[0].local,
        partition=record.partition,
        device=record.device,
        ipus=list(record.ids),
        since=record.since,
        seconds_held=round(group[0].seconds_held, 1),
        utilisation=round(_mean([status.utilisation for status in group]), 4),
        session_utilisation=round(_mean([status.session_utilisation for status in group]), 4),
        memory_bytes=sum(status.record.memory_bytes for status in group if status.record),
        host_in=round(sum(rate.rate_in for rate in mine)),
        host_out=round(sum(rate.rate_out for rate in mine)),
        executable=record.executable,
    )


def totals(readings: Sequence[Reading], rates: dict[str, Rate]) -> view.Totals:
    every = {ipu.key: ipu for reading in readings for ipu in reading.partition.ipus}
    known = _distinct(readings)
    held = [status for status in known.values() if status.held]
    boards: dict[str, list[float]] = {}
    for status in known.values():
        boards.setdefault(_board(status.ipu), []).append(status.sensors.board_power)
    leases = {process_key(status.record) for status in held if status.record}
    return view.Totals(
        ipus=len(every),
        known=len(known),
        busy=len(held),
        utilisation=round(_mean([status.utilisation for status in known.values()]), 4),
        held_utilisation=round(_mean([status.utilisation for status in held]), 4),
        memory_bytes=sum(status.record.memory_bytes for status in held if status.record),
        memory_total=sum(arch.chip(ipu.chip).memory_bytes for ipu in every.values()),
        boards=len({_board(ipu) for ipu in every.values()}),
        # Two partitions may share a board, and each models it from the IPUs that it sees. Power is
        # linear in load, so the mean over the board's IPUs is what one look at all would give.
        power=round(sum(_mean(values) for values in boards.values()), 1),
        host_in=round(sum(rate.rate_in for rate in rates.values())),
        host_out=round(sum(rate.rate_out for rate in rates.values())),
        processes=len(leases),
    )


def systems(readings: Sequence[Reading]) -> list[view.SystemView]:
    by_name: dict[str, dict[str, Ipu]] = {}
    for reading in readings:
        ipus = by_name.setdefault(reading.partition.system, {})
        ipus.update((ipu.key, ipu) for ipu in reading.partition.ipus)
    found = []
    for name, ipus in by_name.items():
        system = arch.system(name)
        found.append(
            view.SystemView(
                name=name,
                product=system.product,
                chip=system.chip.name,
                chip_product=system.chip.product,
                board_type=system.board_type,
                ipus=len(ipus),
                machines=len({ipu.host for ipu in ipus.values()}),
                boards=len({_board(ipu) for ipu in ipus.values()}),
                clock_hz=system.chip.clock,
                memory_bytes=system.chip.memory_bytes,
            )
        )
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
