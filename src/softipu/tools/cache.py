"""`softipu cache`: what a cache of compiled executables holds, and how to clean it up.

It shows what containers say about themselves; what is in them, only front ends understand.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from typing import Any

from .. import settings
from ..devices.usage import duration
from ..errors import NotInCache, SoftIPUError
from ..executable import Container, Entry, Removed, Store, read
from . import cli
from .table import cut_right, fitted, row, rule

ACTIONS = ("list", "show", "clear", "prune")
HEADS = ("Key", "Name", "Made by", "Size", "Last used", "State")
WIDTHS = (14, 12, 10, 10, 11, 8)
LONGEST_NAME = 40
SHORT_KEY = 12
EPILOG = """\
list:      all entries, the most recently used first (the default)
show KEY:  one entry, with every checksum compared
clear:     remove all that no process uses
prune:     remove damaged entries, then the least recently used until the size is kept"""


def parser() -> cli.Parser:
    result = cli.Parser(
        prog="softipu cache",
        description="Show or clean up a cache of compiled executables.",
        epilog=EPILOG,
    )
    add = result.add_argument
    add("action", nargs="?", choices=ACTIONS, default="list", help="list, show, clear or prune")
    add("key", nargs="?", metavar="KEY", help="with show: a key, or how just one of them begins")
    add("--dir", metavar="D", help="the cache directory (default: $POPTORCH_CACHE_DIR)")
    kept = "with prune: the size to keep, for example 500MB (default: $SOFTIPU_CACHE_SIZE)"
    add("--max-size", type=_size, metavar="SIZE", help=kept)
    add("-j", "--json", action="store_true", help="print JSON")
    return result


def _size(text: str) -> int:
    try:
        return settings.size_in_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser()
    options = arguments.parse_args(argv)
    if (options.key is not None) != (options.action == "show"):
        arguments.error("show, and only show, takes a KEY")
    if options.max_size is not None and options.action != "prune":
        arguments.error("--max-size belongs to prune")
    if options.dir == "" or (options.dir is None and not settings.is_set("POPTORCH_CACHE_DIR")):
        arguments.error("no cache directory: give --dir D, or set POPTORCH_CACHE_DIR")
    store = Store(settings.get("POPTORCH_CACHE_DIR") if options.dir is None else options.dir)
    if options.action == "list":
        _print_list(store, options.json)
    elif options.action == "show":
        _print_one(store, options.key, options.json)
    elif options.action == "clear":
        _print_removed(store, store.clear(), options.json)
    else:
        _print_removed(store, store.prune(options.max_size), options.json)
    return 0


def _print_list(store: Store, as_json: bool) -> None:
    entries = [*store.entries(), *store.damaged()]
    listed = [describe(store, entry) for entry in entries]
    total = sum(entry.size for entry in entries)
    if as_json:
        body = {"directory": str(store.directory), "bytes": total, "limit": store.max_bytes}
        print(json.dumps(body | {"entries": listed}, indent=2))
        return
    if listed:
        rows = [_cells(one) for one in listed]
        widths = fitted(WIDTHS, [HEADS, *rows])
        lines = [rule(widths), row(HEADS, widths), rule(widths)]
        print("\n".join([*lines, *(row(cells, widths) for cells in rows), rule(widths)]))
    count = f"{len(listed)} executable{'' if len(listed) == 1 else 's'}"
    print(f"{store.directory}: {count}, {size_text(total)} of {size_text(store.max_bytes)}")


def describe(store: Store, entry: Entry) -> dict[str, Any]:
    """What is known of an entry without reading all of it."""
    result: dict[str, Any] = {"key": entry.key, "bytes": entry.size, "last_used": entry.used_at}
    try:
        with read(entry.path) as container:
            result |= _facts(container)
        state = "in use" if store.is_locked(entry.key) else "ok"
    except SoftIPUError as error:
        result |= {"name": None, "producer": None, "softipu_version": None, "error": error.what}
        state = "damaged"
    return result | {"state": "damaged" if entry.damaged else state}


def _facts(container: Container) -> dict[str, Any]:
    name = container.meta.get("name")
    return {
        "name": _printable(name) if isinstance(name, str) else None,
        "producer": container.producer.name,
        "softipu_version": container.softipu_version,
    }


def _printable(text: str) -> str:
    """Files come from anywhere: none may steer the terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _cells(one: dict[str, Any]) -> list[str]:
    return [
        one["key"][:SHORT_KEY],
        cut_right(one["name"] or "-", LONGEST_NAME),
        one["producer"] or "-",
        size_text(one["bytes"]),
        duration(max(0.0, time.time() - one["last_used"])),
        one["state"],
    ]


def size_text(size: int) -> str:
    value, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if unit == "B" or value >= 99.95 else f"{value:.3g} {unit}"


def _print_one(store: Store, prefix: str, as_json: bool) -> None:
    entry = _find(store, prefix)
    with read(entry.path) as container:
        container.verify()
        body = {"key": entry.key, "path": str(entry.path), "bytes": entry.size}
        body |= _facts(container)
        body |= {"producer_format": container.producer.version, "last_used": entry.used_at}
        blobs = [
            {"name": blob.name, "bytes": blob.size, "sha256": blob.sha256}
            for blob in container.blobs.values()
        ]
        if as_json:
            print(json.dumps(body | {"meta": container.meta, "blobs": blobs}, indent=2))
            return
        body["last_used"] = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.used_at))
        for key, value in body.items():
            print(f"{key.replace('_', ' ')}: {'-' if value is None else value}")
        print("parts (all intact):")
        for blob in container.blobs.values():
            print(f"  {blob.name}: {size_text(blob.size)}, sha256 {blob.sha256}")
        print(f"metadata: {json.dumps(container.meta, indent=2)}")


def _find(store: Store, prefix: str) -> Entry:
    found = [entry for entry in store.entries() if prefix and entry.key.startswith(prefix)]
    if not found:
        raise NotInCache(f"{store.directory} has no executable whose key begins with {prefix!a}.")
    if len(found) > 1:
        raise NotInCache(
            f"{len(found)} keys in {store.directory} begin with {prefix!a}.",
            cause="The beginning of a key must name just one.",
        )
    return found[0]


def _print_removed(store: Store, removed: Removed, as_json: bool) -> None:
    left = store.entries()
    if as_json:
        body = {"removed": removed.entries, "removed_bytes": removed.size}
        print(json.dumps(body | {"in_use": removed.in_use, "left": len(left)}, indent=2))
        return
    plural = "" if removed.entries == 1 else "s"
    text = f"Removed {removed.entries} executable{plural} ({size_text(removed.size)})"
    kept = f", {removed.in_use} kept since a process uses them" if removed.in_use else ""
    print(f"{text}{kept}; {len(left)} left in {store.directory}")


entry = cli.run(main)
