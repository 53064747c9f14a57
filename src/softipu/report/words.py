"""Summaries and comparisons as lines for a terminal. Numbers have units; nothing is computed."""

from __future__ import annotations

from typing import Any

from ..machine.result import Estimate
from .summary import shares, summarise


def summary_lines(estimate: Estimate) -> list[str]:
    facts = summarise(estimate)
    what = "training" if facts["training"] else "inference"
    ipus = f"{facts['ipus']} IPU{'' if facts['ipus'] == 1 else 's'}"
    replicas = f", {facts['replicas']} replicas" if facts["replicas"] > 1 else ""
    split = ", ".join(f"{cause} {share:.0%}" for cause, share in shares(estimate.cycles).items())
    rows = [
        ("throughput", f"{number(facts['throughput'])} samples/s"),
        ("latency", seconds(facts["latency_seconds"])),
        ("one call", f"{seconds(facts['seconds'])}, {facts['cycles']['total']:,.0f} cycles"),
        ("time", split),
        ("memory", _memory(facts["fullest"])),
    ]
    title = f"{printable(facts['name'])}: {what} on {facts['chip']['product']}, {ipus}{replicas}"
    lines = [title, *(f"  {name:<12}{text}" for name, text in rows)]
    lines += [f"  warning     {printable(text)}" for text in estimate.warnings]
    if estimate.unknown:
        listed = ", ".join(f"{printable(name)} ({n})" for name, n in estimate.unknown.items())
        lines.append(f"  no cost     {listed}")
    return lines + [f"  hint        {printable(hint.text)}" for hint in estimate.hints]


def _memory(fullest: dict[str, Any] | None) -> str:
    if fullest is None:
        return "no IPU is used"
    share = fullest["used"] / fullest["capacity"]
    verdict = "fits" if fullest["free"] >= 0 else f"{size(-fullest['free'])} too much"
    place = f"fullest tile of IPU {fullest['ipu']}"
    return (
        f"{size(fullest['used'])} of {size(fullest['capacity'])} ({share:.0%}), {place}: {verdict}"
    )


def comparison_lines(result: dict[str, Any], names: tuple[str, str]) -> list[str]:
    rows = [["", *(printable(name) for name in names), "change"]]
    for row in result["figures"]:
        rows.append(_row(row["name"], row, _text(row["unit"])))
    rows += [
        _row(row["name"], row, lambda value: f"{value:,.0f} cycles") for row in result["cycles"]
    ]
    for memory in result["memory"]:
        rows.append(_row(f"fullest tile, IPU {memory['ipu']}", memory["total"], size))
    rows += [
        [row["name"].replace("_", " "), str(row["first"]), str(row["second"]), "option"]
        for row in result["options"]
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    ]
    steps = result["steps"]
    lines.append(
        f"steps: {steps['matched']} in both, {steps['only_first']} only in {printable(names[0])}, "
        f"{steps['only_second']} only in {printable(names[1])}"
    )
    for row in steps["largest"][:5]:
        change = row["second"] - row["first"]
        lines.append(f"  {change:+,.0f} cycles  {printable(row['op'])} ({row['phase']})")
    return lines


def _row(name: str, row: dict[str, Any], text: Any) -> list[str]:
    if row["first"] == row["second"]:
        change = "same"
    elif row["ratio"] is None:
        change = "new"
    else:
        word = {True: " better", False: " worse", None: ""}[row["better"]]
        change = f"{row['ratio'] - 1:+.1%}{word}"
    return [name, text(row["first"]), text(row["second"]), change]


def _text(unit: str) -> Any:
    if unit == "s":
        return seconds
    if unit == "FLOP":
        return lambda value: f"{value / 1e9:,.1f} GFLOP"
    return lambda value: f"{number(value)} {unit}".rstrip()


def number(value: float) -> str:
    """Three digits that count, or all of a whole number."""
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def seconds(value: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(value) >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns" if value else "0 s"


def size(value: float) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(value) >= scale:
            return f"{value / scale:,.1f} {unit}"
    return f"{value:.0f} B"


def printable(text: str) -> str:
    """Files come from anywhere: none may steer the terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
