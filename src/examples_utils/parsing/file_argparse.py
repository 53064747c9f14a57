"""Configurations in a YAML file as defaults of an argparse parser."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from softipu.bench.runner.spec import read_yaml


def parse_yaml_config(args: Any, parser: argparse.ArgumentParser) -> Any:
    """`args` again, with the configuration `args.config` of `args.config_path` as defaults.

    The file's values pass through the parser, so that its types and choices hold for them too;
    what is on the command line wins.
    """
    if args.config is None:
        return args
    configurations = read_yaml(Path(args.config_path))
    if args.config not in configurations:
        known = ", ".join(map(str, configurations))
        raise ValueError(f"unknown config {args.config} in {args.config_path}; it has {known}")
    parser.set_defaults(**vars(parser.parse_args(_words(configurations[args.config]))))
    return parser.parse_args()


def _words(configuration: dict[str, Any]) -> list[str]:
    words = []
    for name, value in configuration.items():
        values = value if isinstance(value, list) else [value]
        words += [f"--{name}", *map(str, values)]
    return words
