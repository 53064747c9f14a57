"""What runs on each host: starts the instances, hands on their output, ends them.

Orders come on standard input, messages go to standard output, through ssh or a pipe. An agent whose
poprun is silent or gone ends its instances by itself: none is ever left alone.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any

from .. import __version__
from ..errors import HostRefused, InstanceProgramMissing, SoftIPUError
from . import environment, network, numa, processes, remains
from .processes import Command, Running, Stream
from .protocol import BEAT_SECONDS, MOST_UNTAKEN, Decoder, Garbled, Message, encode

#: What tidies up after an instance (a tracker of shared memory) ends by itself within this.
_TIDY_SECONDS = 2.0
_LOOK_SECONDS = 2.0


class Agent:
    def __init__(self, orders: int, messages: int) -> None:
        self._orders = orders
        self._messages = messages
        for descriptor in (orders, messages):
            os.set_blocking(descriptor, False)
        self._decoder = Decoder()
        self._pending = bytearray()
        self._untaken = 0  #: bytes of output that poprun has not printed yet
        self._selector = selectors.DefaultSelector()
        self._selector.register(orders, selectors.EVENT_READ)
        self._heard = time.monotonic()
        self._said = 0.0
        self._order: Message = {}
        self._store: Any = None
        self._running: list[Running] = []
        self._alive: set[int] = set()
        self._seen: set[int] = set()
        self._looked = 0.0
        self._deadline: float | None = None  #: of the grace, once instances are being ended
        self._killed = False
        self._orphaned = False
        self._paused = False

    def run(self) -> int:
        """Until all instances have ended and poprun knows it, or is gone."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGHUP, self._on_signal)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        remains.adopt_orphans()
        self._order = self._wait_for("order")
        if self._orphaned:
            return 1
        try:
            hello = self._prepare()
        except SoftIPUError as error:
            self._say({"refused": error.to_json()})
            self._flush(5.0)
            return 1
        self._heard = time.monotonic()  # importing PyTorch may have taken long
        self._say({"hello": hello})
        go = self._wait_for("go")
        if not self._orphaned and self._deadline is None:
            self._start(go)
        self._watch()
        self._tidy()
        self._say({"bye": True})
        self._flush(5.0)
        return 1 if self._orphaned else 0

    def _on_signal(self, number: int, frame: object) -> None:
        self._end_instances()

    # --- before the start -------------------------------------------------------------------

    def _prepare(self) -> Message:
        order = self._order
        for name in order["unset"]:
            os.environ.pop(name, None)
        try:
            os.chdir(order["directory"])
        except OSError as error:
            raise HostRefused(
                f"The working directory {order['directory']} cannot be entered: {error.strerror}."
            ) from None
        path = order["instances"][0]["environment"].get("PATH", os.environ.get("PATH", os.defpath))
        program = order["program"][0]
        if shutil.which(program, path=path) is None:
            is_script = program.endswith(".py") and os.path.exists(program)
            hint = f"It is a Python script: `poprun [options] python3 {program}`."
            raise InstanceProgramMissing(
                f"There is no program {program!a}.", remedy=hint if is_script else None
            )
        own = network.interfaces()
        wanted = order["networks"]
        chosen = network.choose(wanted, own) if wanted else None
        reached_at = _reached_at(os.environ) if order["remote"] else ""
        processes.elastic()
        return {
            "pid": os.getpid(),
            "name": socket.gethostname(),
            "version": __version__,
            "address": chosen.address if chosen else reached_at,
            "nodes": len(numa.nodes()),
        }

    def _open_store(self, address: str, bind: str, port: int) -> int:
        """The store in which instances find each other; a port that is taken is chosen again."""
        from datetime import timedelta

        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((bind, port))
            listener.listen(2048)
        except OSError as error:
            listener.close()
            if port:
                self._say({"note": f"Port {port} is taken ({error.strerror}); another is used"})
                return self._open_store(address, bind, 0)
            raise HostRefused(f"No port of {bind} can be used: {error.strerror}.") from None
        found = int(listener.getsockname()[1])
        descriptor = listener.detach()
        os.set_inheritable(descriptor, False)
        self._store = TCPStore(
            address,
            found,
            is_master=True,
            timeout=timedelta(seconds=30),
            wait_for_workers=False,
            master_listen_fd=descriptor,
        )
        return found

    def _start(self, go: Message) -> None:
        order = self._order
        nodes = numa.nodes()
        count = len(order["instances"])
        bound = numa.binding(count, nodes) if order["numa"] else [None] * count
        extra = environment.meeting(go["address"], go["port"])
        extra |= self._interface(go)
        defaults = {
            "OMP_NUM_THREADS": str(numa.threads(count, nodes, bool(order["numa"]))),
            "PYTHONUNBUFFERED": "1",  # what instances print comes when they print it
        }
        commands = []
        for entry, cpus in zip(order["instances"], bound, strict=True):
            merged = defaults | {k: v for k, v in os.environ.items() if k in defaults}
            merged |= extra | entry["environment"]
            commands.append(Command(entry["index"], tuple(order["program"]), merged, cpus))
        self._running = processes.start(commands)
        self._alive = {one.index for one in self._running}
        for one in self._running:
            self._selector.register(one.pidfd, selectors.EVENT_READ, one)
            for stream in one.streams:
                self._selector.register(stream.descriptor, selectors.EVENT_READ, stream)
        started = {str(one.index): [one.pid, one.start_ticks] for one in self._running}
        self._say({"started": started})

    def _interface(self, go: Message) -> dict[str, str]:
        """Which interface PyTorch's own process groups use; the user's choice wins."""
        known = network.interfaces()
        address = go["own"] or network.towards(go["address"]) or go["address"]
        found = network.with_address(address, known)
        names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
        if found is None:
            return {}
        return {name: found.name for name in names if name not in os.environ}

    # --- messages ---------------------------------------------------------------------------

    def _wait_for(self, kind: str) -> Message:
        """The next message of a kind; the store is opened in between when poprun asks for it."""
        while not self._orphaned and self._deadline is None:
            for message, _ in self._receive(BEAT_SECONDS):
                if kind in message:
                    found: Message = message[kind]
                    return found
                self._obey(message)
            self._beat()
        return {}

    def _obey(self, message: Message) -> None:
        if "stop" in message:
            self._end_instances(at_once=bool(message["stop"].get("at_once")))
        elif "store" in message:
            try:
                place = message["store"]
                port = self._open_store(place["address"], place["bind"], place["port"])
            except SoftIPUError as error:
                self._say({"refused": error.to_json()})
            else:
                self._say({"store": port})
        elif "taken" in message:
            self._untaken -= message["taken"]
        elif "signal" in message:
            for one in self._running:
                if one.index in self._alive:
                    one.signal(signal.Signals(message["signal"]))

    def _receive(self, timeout: float) -> list[tuple[Message, bytes]]:
        """Wait for anything to happen; messages that came, all else being dealt with."""
        self._ask_for_room()
        self._pause_or_go_on()
        got: list[tuple[Message, bytes]] = []
        for key, events in self._selector.select(timeout):
            if key.fd == self._messages and events & selectors.EVENT_WRITE:
                self._write()
            elif key.fd == self._orders:
                got += self._read_orders()
            elif isinstance(key.data, Stream):
                self._hand_on(key.data)
        return got

    def _read_orders(self) -> list[tuple[Message, bytes]]:
        try:
            data = os.read(self._orders, 1 << 16)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self._lose_poprun()
            return []
        self._heard = time.monotonic()
        try:
            return list(self._decoder.feed(data))
        except Garbled:
            self._lose_poprun()
            return []

    def _lose_poprun(self) -> None:
        """Nobody is there to tell: instances end, and what they still print is dropped."""
        if not self._orphaned:
            self._orphaned = True
            self._pending.clear()
            with contextlib.suppress(KeyError):
                self._selector.unregister(self._orders)
            self._end_instances()

    def _say(self, message: Message, payload: bytes = b"") -> None:
        if not self._orphaned:
            self._said = time.monotonic()
            self._untaken += len(payload)
            self._pending += encode(message, payload)
            self._write()

    def _write(self) -> None:
        try:
            while self._pending:
                del self._pending[: os.write(self._messages, self._pending[: 1 << 16])]
        except BlockingIOError:
            return
        except OSError:
            self._lose_poprun()

    def _flush(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._pending and not self._orphaned and time.monotonic() < deadline:
            self._receive(0.1)

    def _ask_for_room(self) -> None:
        """Wait for room to write only while something waits to be written."""
        wants = bool(self._pending) and not self._orphaned
        if wants == (self._messages in self._selector.get_map()):
            return
        if wants:
            self._selector.register(self._messages, selectors.EVENT_WRITE)
        else:
            self._selector.unregister(self._messages)

    def _beat(self) -> None:
        """Show that this host is alive, and notice when poprun is not."""
        now = time.monotonic()
        if now - self._said > BEAT_SECONDS:
            self._say({"beat": True})
        if now - self._heard > self._order.get("silence", 60.0):
            self._lose_poprun()

    # --- while instances run ------------------------------------------------------------------

    def _pause_or_go_on(self) -> None:
        """While poprun is slow to print what is there, instances have to wait, too."""
        pause = self._untaken > (MOST_UNTAKEN // 2 if self._paused else MOST_UNTAKEN)
        if pause == self._paused:
            return
        self._paused = pause
        for stream in (stream for one in self._running for stream in one.streams):
            if pause:
                self._selector.unregister(stream.descriptor)
            else:
                self._selector.register(stream.descriptor, selectors.EVENT_READ, stream)

    def _hand_on(self, stream: Stream) -> None:
        text, _ = stream.read()
        if text:
            self._say({"out": [stream.instance, stream.number]}, text)

    def _watch(self) -> None:
        """Stay until poprun says so: this host may keep the store that others still use."""
        while self._alive or self._deadline is None:
            for message, _ in self._receive(min(BEAT_SECONDS, 0.5)):
                self._obey(message)
            self._notice_ends()
            self._beat()
            self._press()
            now = time.monotonic()
            if now - self._looked > _LOOK_SECONDS:
                self._looked = now
                self._seen |= remains.descendants(os.getpid())

    def _notice_ends(self) -> None:
        ended = [
            (one, code)
            for one in self._running
            if one.index in self._alive and (code := one.ended()) is not None
        ]
        # Of two that ended at once, one that was killed is the cause and the other its victim.
        for one, code in sorted(ended, key=lambda pair: (pair[1] >= 0, pair[0].index)):
            self._alive.discard(one.index)
            self._selector.unregister(one.pidfd)
            os.close(one.pidfd)
            for stream in one.streams:
                for text in processes.drain(stream):
                    self._say({"out": [stream.instance, stream.number]}, text)
            self._say({"ended": [one.index, code]})

    def _end_instances(self, at_once: bool = False) -> None:
        if self._deadline is None:
            self._deadline = time.monotonic() + float(self._order.get("grace", 5.0))
            for one in self._running:
                one.signal(signal.SIGTERM)
        if at_once:
            self._deadline = time.monotonic()

    def _press(self) -> None:
        if self._deadline is None or self._killed or time.monotonic() < self._deadline:
            return
        self._killed = True
        for one in self._running:
            if one.index in self._alive:
                one.signal(signal.SIGKILL)

    def _tidy(self) -> None:
        """No process and no shared memory of an instance stays."""
        grace = min(2.0, float(self._order.get("grace", 5.0)))
        self._seen |= {one.pid for one in self._running}
        remains.end_descendants(_TIDY_SECONDS, grace, self._seen)
        for one in self._running:
            for stream in one.streams:
                with contextlib.suppress(KeyError):
                    self._selector.unregister(stream.descriptor)
                for text in processes.drain(stream):
                    self._say({"out": [stream.instance, stream.number]}, text)
                os.close(stream.descriptor)
        removed = remains.remove_shared_memory(self._seen)
        if removed:
            self._say(
                {"note": f"Removed {len(removed)} files that instances left in shared memory"}
            )


def _reached_at(environ: Mapping[str, str]) -> str:
    """The address of this host that ssh came to; nothing where no ssh brought us here.

    srun hands on the environment of the shell that it was called from, which somebody may have
    reached by ssh: that address is another host's.
    """
    # Of client and server, each with its port, the server's address.
    words = environ.get("SSH_CONNECTION", "").split()
    address = words[2] if len(words) == 4 else ""
    others_reach_it = address and not network.is_loopback(address) and network.is_own(address)
    return address if others_reach_it else ""


def main() -> int:
    # Instances and libraries must neither read our orders nor write between our messages.
    orders, messages = os.dup(0), os.dup(1)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return Agent(orders, messages).run()


if __name__ == "__main__":
    sys.exit(main())
