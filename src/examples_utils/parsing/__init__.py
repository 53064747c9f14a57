"""Options from configuration files."""

from .file_argparse import parse_yaml_config

__all__ = ["parse_yaml_config"]
