"""What clients send to a server, and what became of it: the data that processes hand each other."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

INPUT, OUTPUT = "input_0", "output_0"
#: What a client says when it is.
READY = "ready"
_TRAFFIC, _INPUTS, _EXPECTED = "traffic.json", "inputs.npy", "expected.npy"


class RequestType(Enum):
    """SYNC: one request at a time. ASYNC: many under way at once."""

    SYNC = 1
    ASYNC = 2


@dataclass(frozen=True)
class Requests:
    """Different requests, and the answer that each must get: the first dimension counts them."""

    inputs: Array
    expected: Array
    #: How far an answer may be off, as a part of the largest expected number.
    tolerance: float

    @property
    def size(self) -> int:
        """Samples of one request."""
        return int(self.inputs.shape[1])


@dataclass(frozen=True)
class Traffic:
    """How clients of one model behave."""

    address: str
    model: str
    request_type: RequestType = RequestType.SYNC
    #: Tensors go through system shared memory, and not through the connection.
    shared_memory: bool = False
    #: Seconds after which a request counts as lost.
    timeout: float = 300.0


@dataclass(frozen=True)
class Turn:
    """How long a client goes on: for so many requests, or for so many seconds."""

    requests: int | None = None
    seconds: float | None = None

    def numbers(self) -> Iterator[int]:
        """A number for each request, for as long as there is another to send."""
        end = None if self.seconds is None else time.monotonic() + self.seconds
        for number in itertools.count():
            if self.requests is not None and number >= self.requests:
                return
            if end is not None and time.monotonic() >= end:
                return
            yield number


@dataclass
class Record:
    """What one client saw in one turn. Times are of the clock that all processes share."""

    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    sent: int = 0
    wrong: int = 0
    #: Requests without any answer in time.
    lost: int = 0
    #: Requests that got an error, by its message.
    refused: dict[str, int] = field(default_factory=dict)
    #: The largest deviation, as a part of the largest expected number.
    worst: float = 0.0

    def answered(self, start: float, end: float, deviation: float, tolerance: float) -> None:
        self.starts.append(start)
        self.ends.append(end)
        # Written so that a deviation that is no number counts as wrong.
        self.wrong += not deviation <= tolerance
        self.worst = max(self.worst, deviation) if deviation == deviation else deviation

    def failed(self, message: str) -> None:
        self.refused[message] = self.refused.get(message, 0) + 1


def write(folder: Path, traffic: Traffic, requests: Requests) -> None:
    """Leaves all that client processes need in a folder."""
    import numpy as np

    body = asdict(traffic) | {"request_type": traffic.request_type.name}
    (folder / _TRAFFIC).write_text(json.dumps(body | {"tolerance": requests.tolerance}))
    np.save(folder / _INPUTS, requests.inputs)
    np.save(folder / _EXPECTED, requests.expected)


def read(folder: Path) -> tuple[Traffic, Requests]:
    import numpy as np

    body = json.loads((folder / _TRAFFIC).read_text())
    tolerance = body.pop("tolerance")
    body["request_type"] = RequestType[body["request_type"]]
    requests = Requests(np.load(folder / _INPUTS), np.load(folder / _EXPECTED), tolerance)
    return Traffic(**body), requests
