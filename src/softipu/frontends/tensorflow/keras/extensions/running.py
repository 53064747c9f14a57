"""What a model is doing in this thread: several may fit, evaluate or predict with it at a time."""

from __future__ import annotations

import threading
from typing import Any


class Running(threading.local):
    """Of one model, in one thread. Copies of the model begin with nothing."""

    def __init__(self) -> None:
        #: `fit`, `evaluate` or `predict`; within others, the innermost.
        self.name: str | None = None
        #: Callbacks that are told of each step while the IPUs go on.
        self.stepwise: Any = None
        #: Of its data, once they are made.
        self.steps: int | None = None
        #: Of the data that `fit` has made for `evaluate`.
        self.validation_steps: int | None = None

    def __reduce__(self) -> tuple[type[Running], tuple[()]]:
        return type(self), ()


#: Held while a model's number of callers changes, and with it who sees its functions.
CALLERS = threading.Lock()
