"""gc-monitor: which IPUs there are, and which processes hold them, as tables or JSON.

The layout is that of the real tool for IPU-Machines. It reads state only, and so disturbs nobody.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from .. import SDK_VERSION, __version__, devices
from ..devices import IpuStatus, Partition
from ..devices.usage import duration
from . import cli
from .attributes import NOT_AVAILABLE, clock_text, sensor_texts
from .table import cut_left, cut_right, fitted, row, rule, spans, terminal_columns

CARD_WIDTHS = (13, 20, 8, 14, 10, 6, 4, 6, 7)
CARD_HEADS = (
    "IPU-M", "Serial", "IPU-M SW", "Server version", "ICU FW", "Type", "ID", "IPU#", "Routing",
)  # fmt: skip
PROCESS_HEADS = ("PID", "Command", "Time", "User", "ID", "Clock", "Temp", "Temp", "Power")
#: The command takes what the terminal leaves; these are the columns before and after it.
PROCESS_WIDTHS = (8, 0, 8, 12, 4, 10, 8, 8, 8)
SMALLEST_TERMINAL, DEFAULT_TERMINAL = 98, 117
ELSEWHERE_WIDTHS = (4, 30, 14, 11, 11, 11)
NO_PROCESS_WIDTH = 98
MODELLED = "Temp and Power are modelled from the load, not measured."

View = tuple[Partition, tuple[IpuStatus, ...]]


def parser() -> cli.Parser:
    result = cli.Parser(
        prog="gc-monitor",
        version=True,
        description="Show the IPUs of the active partition and the processes that hold them.",
        epilog="Refresh it with: watch -n 2 gc-monitor",
    )
    result.add_argument("what", nargs="?", choices=["version"], help="print the SDK version")
    result.add_argument(
        "--all-partitions", action="store_true", help="show the other partitions too"
    )
    result.add_argument(
        "--no-card-info", action="store_true", help="leave out the table of devices"
    )
    result.add_argument("-j", "--json", action="store_true", help="print JSON, all values as texts")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    if options.what == "version":
        print(f"Poplar version: {SDK_VERSION} (softipu {__version__})")
        return 0
    home = devices.Home()
    shown = devices.partitions(home, active_only=not options.all_partitions)
    views = [(partition, devices.status(partition, home)) for partition in shown]
    if options.json:
        print(json.dumps(as_json(views), indent=2))
        return 0
    width = terminal_columns(DEFAULT_TERMINAL)
    lines: list[str] = []
    for number, (partition, statuses) in enumerate(views):
        if not options.no_card_info:
            lines += card_table(partition, active=number == 0)
        lines += process_tables(partition, statuses, width)
    if any(status.monitored for _, statuses in views for status in statuses):
        lines.append(MODELLED)
    print("\n".join(lines))
    return 0


def card_table(partition: Partition, *, active: bool) -> list[str]:
    rows = [
        (
            cut_left(ipu.host, CARD_WIDTHS[0]),
            ipu.serial,
            ipu.software_version,
            __version__,
            NOT_AVAILABLE,  # the board controller whose firmware this would be does not exist
            ipu.board_type,
            str(ipu.id),
            str(ipu.device_id),
            partition.routing,
        )
        for ipu in partition.ipus
    ]
    heads = list(CARD_HEADS)
    if partition.interconnect == "pcie":
        heads[0] = "PCIe ID"
    widths = fitted(CARD_WIDTHS, [heads, *rows])
    total = sum(widths) + len(widths) - 1
    title_widths = [15, total - 16]
    lines = [
        rule(title_widths),
        row(["gc-monitor", _title(partition, active)], title_widths),
        rule(widths),
        row(heads, widths),
        rule(widths),
    ]
    for number, cells in enumerate(rows):
        lines.append(row(cells, widths))
        if number + 1 == len(rows) or rows[number + 1][0] != cells[0]:
            lines.append(rule(widths))
    return lines


def _title(partition: Partition, active: bool) -> str:
    gcd = "" if partition.gcd is None else f" (gcd:{partition.gcd})"
    mark = " [active]" if active else ""
    kind = "reconfigurable " if partition.reconfigurable else ""
    count = len(partition.ipus)
    plural = "" if count == 1 else "s"
    return f"Partition: {partition.name}{gcd}{mark} has {count} {kind}IPU{plural}"


def process_tables(partition: Partition, statuses: Sequence[IpuStatus], terminal: int) -> list[str]:
    held = [status for status in statuses if status.held]
    here = [status for status in held if status.local or status.record is None]
    elsewhere = [status for status in held if not (status.local or status.record is None)]
    lines: list[str] = []
    if here:
        lines += _attached(partition, here, terminal)
    elif not elsewhere:
        text = f"No attached processes in partition {partition.name}"
        box = [max(NO_PROCESS_WIDTH, len(text))]
        lines += [rule(box), row([text], box), rule(box)]
    if elsewhere:
        lines += _elsewhere(partition, elsewhere)
    return lines


def _attached(partition: Partition, held: Sequence[IpuStatus], terminal: int) -> list[str]:
    rest = sum(PROCESS_WIDTHS) + len(PROCESS_WIDTHS) + 1
    widths = list(PROCESS_WIDTHS)
    widths[1] = max(terminal, SMALLEST_TERMINAL) - rest
    merged = spans(widths, (4, 3, 2))
    title = f"Attached processes in partition {partition.name}"
    lines = [
        rule(merged),
        row([cut_right(title, merged[0]), "IPU", "Board"], merged),
        rule(widths),
        row(PROCESS_HEADS, widths),
        rule(widths),
    ]
    for board in _by_process_and_board(held):
        for number, status in enumerate(board):
            lines.append(row(_process_cells(status, widths, first=number == 0), widths))
        lines.append(rule(widths))
    return lines


def _by_process_and_board(held: Sequence[IpuStatus]) -> Iterator[list[IpuStatus]]:
    """Runs of rows that share a process and a board: each has one cell for the board's sensors."""
    groups: dict[tuple[int, int, tuple[str, int]], list[IpuStatus]] = {}
    for status in held:
        record = status.record
        who = (record.pid, record.start_ticks) if record else (0, 0)
        groups.setdefault((*who, status.ipu.board), []).append(status)
    order: dict[tuple[int, int], int] = {}
    for pid, ticks, _ in groups:
        order.setdefault((pid, ticks), len(order))
    for key in sorted(groups, key=lambda key: order[key[0], key[1]]):
        yield groups[key]


def _process_cells(status: IpuStatus, widths: Sequence[int], *, first: bool) -> list[str]:
    sensors = sensor_texts(status)
    record = status.record
    who = (
        [NOT_AVAILABLE, "(no readable record)", NOT_AVAILABLE, NOT_AVAILABLE]
        if record is None
        else [
            str(record.pid),
            cut_right(record.command, widths[1]),
            duration(status.seconds_held),
            cut_right(record.user, widths[3]),
        ]
    )
    board = [sensors.board, sensors.power] if first else ["", ""]
    return [*who, str(status.ipu.id), clock_text(status.ipu), sensors.die, *board]


def _elsewhere(partition: Partition, held: Sequence[IpuStatus]) -> list[str]:
    merged = spans(ELSEWHERE_WIDTHS, (4, 2))
    title = f"IPUs in {partition.name} attached from other namespaces"
    lines = [
        rule(merged),
        row([cut_right(title, merged[0]), "Board"], merged),
        rule(ELSEWHERE_WIDTHS),
        row(("ID", "Application host", "Clock", "Temp", "Temp", "Power"), ELSEWHERE_WIDTHS),
        rule(ELSEWHERE_WIDTHS),
    ]
    for board in _by_process_and_board(held):
        for number, status in enumerate(board):
            sensors = sensor_texts(status)
            host = status.record.host if status.record else NOT_AVAILABLE
            cells = [
                str(status.ipu.id),
                cut_right(host, ELSEWHERE_WIDTHS[1]),
                clock_text(status.ipu),
                sensors.die,
                *((sensors.board, sensors.power) if number == 0 else ("", "")),
            ]
            lines.append(row(cells, ELSEWHERE_WIDTHS))
        lines.append(rule(ELSEWHERE_WIDTHS))
    return lines


def as_json(views: Sequence[View]) -> dict[str, Any]:
    """The real tool's nesting: cards with their IPUs, all values as texts."""
    cards: list[dict[str, Any]] = []
    for number, (partition, statuses) in enumerate(views):
        by_host: dict[str, dict[str, Any]] = {}
        for status in statuses:
            ipu = status.ipu
            card = by_host.setdefault(
                ipu.host,
                {
                    "Partition": partition.name,
                    "Active": str(number == 0).lower(),
                    "IPU-M": ipu.host,
                    "IPU-M SW": ipu.software_version,
                    "Server version": __version__,
                    "ICU FW": NOT_AVAILABLE,
                    "Type": ipu.board_type,
                    "ipus": [],
                },
            )
            card["ipus"].append(_ipu_json(partition, status))
        cards += by_host.values()
    return {"softipu": __version__, "cards": cards}


def _ipu_json(partition: Partition, status: IpuStatus) -> dict[str, str]:
    ipu = status.ipu
    values = {
        "ID": str(ipu.id),
        "IPU#": str(ipu.device_id),
        "PCIe ID": ipu.host if partition.interconnect == "pcie" else str(ipu.device_id),
        "Serial": ipu.serial,
        "Routing": partition.routing,
        "Clock": clock_text(ipu),
    }
    if not status.held:
        return values
    record, sensors = status.record, sensor_texts(status)
    values |= {
        "PID": str(record.pid) if record else NOT_AVAILABLE,
        "Command": record.command if record else NOT_AVAILABLE,
        "Time": duration(status.seconds_held) if record else NOT_AVAILABLE,
        "User": record.user if record else NOT_AVAILABLE,
        "Temp": sensors.die,
        "Board Temp": sensors.board,
        "Power": sensors.power,
        "Utilisation": f"{100 * status.utilisation:.2f}%",
    }
    if record and not status.local:
        values["Application host"] = record.host
    if status.monitored:
        values["Sensors"] = "modelled"
    return values


entry = cli.run(main)
