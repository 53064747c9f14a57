"""Which controller `vipu` talks to: options, variables and the configuration file, in that order.

Host, port and key are each taken from the first place that has them. Without a host anywhere, the
embedded system answers.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from .. import settings
from ..devices.embedded import EMBEDDED
from ..devices.remote import DEFAULT_PORT, RemoteController, parse_address
from ..errors import InvalidSetting
from .local import LocalController

SYSTEM_CONFIG = Path("/etc/vipu/vipu-cli.hcl")
_KEYS = ("api-host", "api-port", "api-access-key", "api-user-id")
_LINE = re.compile(r"""\s*([\w-]+)\s*[=:]\s*(?:"([^"]*)"|([^\s"#]+))\s*(?:(?:\#|//).*)?""")
_LARGEST_FILE = 1 << 16

Controller = RemoteController | LocalController


def connect(options: argparse.Namespace) -> Controller:
    """The server that the options and the environment name, or the embedded system."""
    config = _config(options.config)
    text = (
        options.api_host
        or settings.get("VIPU_CLI_API_HOST")
        or settings.get("IPUOF_VIPU_API_HOST")
        or config.get("api-host")
        or ("localhost" if options.api_port else None)
    )
    if text is None or text == EMBEDDED:
        return LocalController()
    host, own_port = parse_address(text)
    if options.api_port and own_port and options.api_port != own_port:
        raise InvalidSetting(f"{text} and --api-port {options.api_port} name different ports.")
    return RemoteController(
        host,
        options.api_port or own_port or _configured_port(config),
        timeout=options.timeout or settings.get("IPUOF_VIPU_API_TIMEOUT"),
        access_key=options.api_access_key
        or settings.get("SOFTIPU_VIPU_ACCESS_KEY")
        or config.get("api-access-key"),
    )


def _configured_port(config: dict[str, str]) -> int:
    for name in ("VIPU_CLI_API_PORT", "IPUOF_VIPU_API_PORT"):
        if settings.is_set(name):
            return int(settings.get(name))
    try:
        return settings.port_number(config.get("api-port", str(DEFAULT_PORT)))
    except ValueError as error:
        raise InvalidSetting(f"api-port {config['api-port']!a}: {error}.") from None


def _config(path: Path | None) -> dict[str, str]:
    if path is None and not SYSTEM_CONFIG.exists():
        return {}
    path = path or SYSTEM_CONFIG
    try:
        with path.open(encoding="utf-8") as stream:
            text = stream.read(_LARGEST_FILE)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise InvalidSetting(f"The configuration file {path} cannot be read: {reason}.") from None
    return parse_hcl(text, str(path))


def parse_hcl(text: str, where: str) -> dict[str, str]:
    """The flat part of HCL that `vipu` configuration files use: one `key = value` a line."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith(("#", "//")):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise InvalidSetting(
                f"{where}, line {number}: {line.strip()[:60]!a} is not of the form key = value."
            )
        key = match[1].replace("_", "-")
        if key in _KEYS:
            found[key] = match[2] if match[2] is not None else match[3]
        else:
            print(f"vipu: warning: {where}: {key} is not used here.", file=sys.stderr)
    return found
