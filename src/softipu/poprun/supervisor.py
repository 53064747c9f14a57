"""Starts an agent on each host, prints what instances print, and ends all when one fails.

Everything here is bounded in time: hosts must be ready, others must not fall silent, and what does
not end when it is told to is killed.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

from .. import __version__
from ..errors import (
    HostLost,
    HostRefused,
    HostUnreachable,
    InstanceCrashed,
    InstanceFailed,
    InstanceKilled,
    OutputFailed,
    RunTimedOut,
    SoftIPUError,
    from_json,
)
from . import network, remains, remote
from .job import Job
from .link import Event, Known, Link
from .log import Log
from .output import Printer
from .printing import Printing
from .protocol import BEAT_SECONDS, Message

#: What an agent needs to tidy up, besides the grace that instances get.
_TIDY_SECONDS = 12.0
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_HANDED_ON = (signal.SIGUSR1, signal.SIGUSR2)
#: What a program does to itself; other signals come from somebody else.
_CRASHES = (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV)
_POPRUN = -1  #: place of events that come from no host
_LOOK_SECONDS = 1.0
#: A reader of our output who takes nothing for so long is not waited for, once somebody wants the
#: end of it all.
_STUCK_SECONDS = 2.0


class Supervisor:
    def __init__(self, job: Job, printer: Printer, log: Log) -> None:
        self._job = job
        self._printer = printer
        self._log = log
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._links: list[Link] = []
        self._running = {one.index for one in job.topology.instances}
        self._pids: dict[int, int] = {}
        self._port: int | None = None
        self._stopping = False
        self.status = 0
        self.failure: SoftIPUError | None = None
        self.failed_instance: int | None = None
        self._finished = threading.Event()
        self._looked = 0.0
        self._hurried = False
        self._printing = Printing(self._tell_unprintable)
        printer.write = self._printing.outlet.write

    def run(self) -> int:
        """The exit status: that of the first failure, 128 + N for signal N, else 0."""
        started = time.monotonic()
        # What an agent leaves when it is killed becomes ours, and can be ended.
        before = frozenset(remains.descendants(os.getpid()))
        remains.adopt_orphans()
        with self._signals(), self._logging_in_order():
            try:
                self._start_agents()
                self._begin()
                limit = self._job.timeout
                deadline = None if limit is None else started + limit
                self._pump(lambda: not self._running, deadline, self._out_of_time)
            except SoftIPUError as error:
                self._fail(error, 1)
            finally:
                self._wind_down()
                left = set(self._pids.values())
                remains.end_descendants(2.0, 1.0, left, before)
                if all(self._job.local):
                    remains.remove_shared_memory(left)
                self._print_the_rest()
        return self.status

    # --- the start ------------------------------------------------------------------------------

    def _start_agents(self) -> None:
        job = self._job
        threading.Thread(target=self._show_life, daemon=True).start()
        for place, host in enumerate(job.topology.hosts):
            local = job.local[place]
            try:
                process = remote.start_here() if local else remote.start_there(job.shell, host)
            except OSError as error:
                raise HostUnreachable(
                    f"Host {host}: {job.shell.words[0]} cannot be started: {error.strerror}."
                ) from None
            if not local:
                self._log.debug(f"Running command: {' '.join(job.shell.command(host))}")
            link = Link(place, host, process, self._events, self._log, local=local)
            self._links.append(link)
            link.send({"order": job.order(place)})
        deadline = time.monotonic() + job.start_timeout
        self._pump(lambda: all(link.hello for link in self._links), deadline, self._not_ready)

    def _not_ready(self) -> SoftIPUError:
        silent = [link.host for link in self._links if link.hello is None]
        names = ", ".join(silent) or self._links[0].host
        return HostUnreachable(
            f"Host{'s' * (len(silent) > 1)} {names} did not get ready within "
            f"{self._job.start_timeout:g} s."
        )

    def _begin(self) -> None:
        """Let the first host open the store, and all start their instances."""
        if self.status:
            return
        address = self._meeting_place()
        literal = address.replace(".", "").isdigit() or ":" in address
        store = {"address": address, "bind": address if literal else "0.0.0.0"}
        self._links[0].send({"store": store | {"port": self._job.master_port}})
        deadline = time.monotonic() + self._job.start_timeout
        self._pump(lambda: self._port is not None, deadline, self._not_ready)
        if self._port is None:
            return
        self._log.debug(f"Instances meet at {address}:{self._port}")
        for link in self._links:
            own = link.hello["address"] if link.hello is not None else ""
            link.send({"go": {"address": address, "port": self._port, "own": own}})

    def _meeting_place(self) -> str:
        """An address of the first host that all others can reach."""
        first = self._links[0]
        assert first.hello is not None
        if all(self._job.local):
            return network.LOOPBACK
        if first.hello["address"]:
            return str(first.hello["address"])
        if not first.local:
            return first.host.rpartition("@")[2]
        other = next(link for link in self._links if not link.local)
        assert other.hello is not None
        towards = other.hello["address"] or other.host.rpartition("@")[2]
        return network.towards(towards) or first.host

    # --- events ---------------------------------------------------------------------------------

    def _pump(
        self,
        done: Callable[[], bool],
        deadline: float | None = None,
        too_late: Callable[[], SoftIPUError] | None = None,
    ) -> None:
        """Deal with events until `done`, a failure, or the deadline."""
        while not done() and (self._stopping or not self.status):
            now = time.monotonic()
            if deadline is not None and now > deadline:
                if too_late is not None:
                    error = too_late()
                    self._fail(error, 124 if isinstance(error, RunTimedOut) else 1)
                return
            if now - self._looked > _LOOK_SECONDS:
                self._looked = now
                self._look_for_silent_hosts()
            try:
                place, message, payload = self._events.get(timeout=0.2)
            except queue.Empty:
                continue
            if place == _POPRUN:
                assert message is not None
                self._on_own(message)
            elif message is None:
                self._on_end_of(self._links[place])
            else:
                self._on_message(self._links[place], message, payload)

    def _on_message(self, link: Link, message: Message, payload: bytes) -> None:
        if "out" in message:
            instance, number = message["out"]
            self._printing.do(partial(self._print, link, instance, number, payload))
        elif "ended" in message:
            self._on_instance_end(link, *message["ended"])
        elif "hello" in message:
            self._on_hello(link, message["hello"])
        elif "started" in message:
            for text, (pid, ticks) in message["started"].items():
                self._pids[int(text)] = pid
                link.instances[int(text)] = Known(pid, ticks)
                self._log.info(f"Instance {text} runs on {link.host} (PID {pid})")
        elif "store" in message:
            self._port = int(message["store"])
        elif "note" in message:
            self._log.warning(f"{link.host}: {message['note']}")
        elif "refused" in message:
            error = from_json(message["refused"]) or SoftIPUError(str(message["refused"]))
            error.what = f"Host {link.host}: {error.what}"
            self._fail(error, 1)
        elif "bye" in message:
            link.said_bye = True

    def _on_hello(self, link: Link, hello: Message) -> None:
        if hello["version"] != __version__:
            what = f"Host {link.host} has softipu {hello['version']}, this host {__version__}."
            self._fail(HostRefused(what, remedy="Install the same version on all hosts."), 1)
        link.hello = hello
        self._log.debug(f"Agent on {link.host} is ready (PID {hello['pid']})")
        if self._job.numa and hello["nodes"] < 2:
            self._log.info(f"{link.host} has one NUMA node: instances share its CPUs")

    def _on_instance_end(self, link: Link, instance: int, code: int) -> None:
        self._running.discard(instance)
        link.instances.pop(instance, None)
        self._printing.do(partial(self._printer.end_of, instance))
        pid = self._pids.get(instance, 0)
        level = self._log.debug if self._stopping else self._log.info
        level(f"Instance {instance} (PID {pid}) terminated with exit code {code}")
        if code == 0 or self._stopping:
            return
        who = f"Instance {instance} on host {link.host} (pid {pid})"
        others = len(self._job.topology.instances) - 1
        rest = f"; the other {others} were ended" if others else ""
        self.failed_instance = instance
        if code < 0:
            name = _signal_name(-code)
            what = f"{who} was killed by {name} (signal {-code}){rest}."
            failure = InstanceCrashed if -code in _CRASHES else InstanceKilled
            self._fail(failure(what), 128 - code)
        else:
            self._fail(InstanceFailed(f"{who} ended with exit code {code}{rest}."), code)

    def _on_end_of(self, link: Link) -> None:
        link.open = False
        if not link.said_bye and not self._stopping:
            self._fail(link.lost(), 1)

    def _on_own(self, message: Message) -> None:
        if "signal" in message:
            self._on_signal(message["signal"])
        else:
            self._on_unprintable(message["unprintable"])

    def _on_unprintable(self, error: OSError | SoftIPUError) -> None:
        if self.status:
            return
        if isinstance(error, BrokenPipeError):
            self.status = 128 + signal.SIGPIPE  # the reader of our output went away
        elif isinstance(error, SoftIPUError):
            self.failure, self.status = error, 1
        else:
            self.failure = OutputFailed(f"The output could not be written: {error.strerror}.")
            self.status = 1

    def _on_signal(self, number: int) -> None:
        if number in _HANDED_ON:
            self._send_all({"signal": number})
            return
        self._hurried = True
        if self._stopping:
            self._send_all({"stop": {"at_once": True}})
        else:
            self._log.info(f"Ending all instances: {_signal_name(number)} came")
            self._fail(None, 128 + number)

    def _look_for_silent_hosts(self) -> None:
        for link in self._links:
            if link.local or link.hello is None or not link.open:
                continue
            if link.silence > self._job.host_timeout:
                self._log.debug(f"Nothing from {link.host} for {link.silence:.1f} s")
                link.open = False
                self._fail(
                    HostLost(
                        f"The connection to host {link.host} is lost: nothing came from there for "
                        f"{self._job.host_timeout:g} s."
                    ),
                    1,
                )

    def _out_of_time(self) -> SoftIPUError:
        self._hurried = True
        names = ", ".join(map(str, sorted(self._running)))
        return RunTimedOut(
            f"The run took longer than {self._job.timeout:g} s; instances {names} were ended."
        )

    def _fail(self, error: SoftIPUError | None, status: int) -> None:
        """Only the first failure counts: what follows is mostly its consequence."""
        if self.status == 0 and not self._stopping:
            self.failure, self.status = error, status

    # --- the end --------------------------------------------------------------------------------

    def _wind_down(self) -> None:
        """End what still runs; afterwards no agent is left."""
        self._stopping = True
        deadline = time.monotonic() + self._job.grace + _TIDY_SECONDS
        for link in self._links:
            link.open = link.open and link.hello is not None  # it has nothing to end yet
        self._send_all({"stop": {}})
        self._pump(lambda: all(link.said_bye or not link.open for link in self._links), deadline)
        for link in self._links:
            if link.open or (link.local and link.hello is not None):
                link.close(deadline - time.monotonic())
            else:
                link.kill()  # nothing can be told to a host that is lost
                link.close(1.0)
        self._finished.set()

    def _print(self, link: Link, instance: int, number: int, text: bytes) -> None:
        try:
            self._printer.take(instance, number, text)
        finally:
            link.took(len(text))

    def _print_the_rest(self) -> None:
        """A slow reader gets all of it, however long that takes; who is in a hurry says so by a
        signal, and then waits for no reader who has stopped."""
        self._printing.do(self._printer.close)
        self._printing.end()
        while not self._printing.ended(0.2):
            self._note_own_events()
            if self._hurried and self._printing.outlet.stuck > _STUCK_SECONDS:
                self._printing.outlet.give_up()
        self._note_own_events()

    def _note_own_events(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                place, message, _ = self._events.get_nowait()
                if place != _POPRUN or message is None:
                    continue
                self._on_own(message)
                if not self.status and message.get("signal") in _ENDING:
                    self.status = 128 + message["signal"]

    def _tell_unprintable(self, error: OSError | SoftIPUError) -> None:
        self._events.put((_POPRUN, {"unprintable": error}, b""))

    def _send_all(self, message: Message) -> None:
        for link in self._links:
            if link.open:
                link.send(message)

    def _show_life(self) -> None:
        """Agents end their instances when they hear nothing; a slow host may block us for long."""
        while not self._finished.wait(BEAT_SECONDS):
            for link in list(self._links):
                if link.open and not link.local:
                    link.send({"beat": True})

    @contextlib.contextmanager
    def _logging_in_order(self) -> Iterator[None]:
        """Our own lines stand where they belong among those of the instances."""
        before, self._log.say = self._log.say, self._printing.say
        try:
            yield
        finally:
            outlet = self._printing.outlet
            # Nobody reads: nothing that is still to be said may wait for that.
            self._log.say = outlet.say if outlet.dropped else before
            if outlet.dropped:
                self._log.warning(f"Nobody read the output: {outlet.dropped} bytes were dropped")

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        def note(number: int, frame: object) -> None:
            self._events.put((_POPRUN, {"signal": number}, b""))

        old = {number: signal.signal(number, note) for number in (*_ENDING, *_HANDED_ON)}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
