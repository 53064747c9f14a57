"""An instance that says by which of its host's addresses it is connected to the others."""

import contextlib
import json
import os
import socket
from pathlib import Path

from softipu.instances import group


def main() -> None:
    master = int(os.environ["MASTER_PORT"])
    if os.environ["RANK"] == "0" and (address := os.environ.get("ADDRESS_FOR_INSTANCE_0")):
        os.environ["MASTER_ADDR"] = address
    if os.environ["RANK"] == "1" and (name := os.environ.get("INTERFACE_FOR_INSTANCE_1")):
        os.environ["GLOO_SOCKET_IFNAME"] = name
    together = group.current()
    together.barrier()
    mine = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            mine.add(os.readlink(path))
    found = set()
    for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        local, remote, state = words[1:4]
        ports = [int(place.partition(":")[2], 16) for place in (local, remote)]
        if state == "01" and master not in ports and f"socket:[{words[9]}]" in mine:
            found.add(socket.inet_ntoa(bytes.fromhex(local.partition(":")[0])[::-1]))
    together.barrier()
    print(json.dumps(sorted(found)), flush=True)


main()
