"""The V-IPU tools: `vipu`, `vipu-admin` and `vipu-server`, over softipu.devices.controller."""
