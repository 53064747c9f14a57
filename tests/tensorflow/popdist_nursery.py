"""Starts instances of TensorFlow programs for tests: imports once, then forks for each job.

A job is a line of JSON on standard input; two lines answer it, one when its processes have started
and one when they have ended. What a program returns is in its instance's file.
"""

from __future__ import annotations

import faulthandler
import json
import os
import socket
import sys
import traceback
from pathlib import Path


def serve() -> None:
    import popdist_programs
    import torch.distributed  # noqa: F401  (each instance would load it else)

    tell({"ready": os.getpid()})
    for line in sys.stdin:
        job = json.loads(line)
        pids = start(popdist_programs, job)
        tell({"pids": pids})
        tell({"codes": [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]})


def start(programs, job) -> list[int]:
    port = free_port()
    pids = []
    for index in range(job["instances"]):
        pid = os.fork()
        if pid == 0:
            run(programs, job, index, port)
        pids.append(pid)
    return pids


def run(programs, job, index: int, port: int) -> None:
    folder = Path(job["folder"])
    code = 1
    try:
        output = os.open(folder / f"{index}.txt", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        faulthandler.dump_traceback_later(job.get("patience", 200))  # where one hangs
        os.environ.update(environment(job, index, port))
        result = getattr(programs, job["program"])(*job["arguments"])
        (folder / f"{index}.json").write_text(json.dumps(result))
        code = 0
    except BaseException:  # noqa: BLE001  (the test reads it)
        traceback.print_exc()
    import atexit

    atexit._run_exitfuncs()  # what an interpreter that ends would do
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def environment(job, index: int, port: int) -> dict[str, str]:
    """What poprun sets."""
    count, local = job["instances"], job["replicas"]
    values = {
        "RANK": index,
        "WORLD_SIZE": count,
        "LOCAL_RANK": index,
        "LOCAL_WORLD_SIZE": count,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "POPDIST_NUM_TOTAL_REPLICAS": count * local,
        "POPDIST_NUM_LOCAL_REPLICAS": local,
        "POPDIST_NUM_IPUS_PER_REPLICA": 1,
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": 1,
        "POPDIST_REPLICA_INDEX_OFFSET": index * local,
        "POPDIST_LOCAL_INSTANCE_INDEX": index,
        "SOFTIPU_HOME": job["home"],
        **job.get("variables", {}),
    }
    return {name: str(value) for name, value in values.items()}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def tell(answer) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
