"""Who still lives: instances leave signs of life in the store that they met at.

A thread counts a number up for as long as the process runs. Others watch whether it still moves;
an instance that ends by itself, or gives up because of another one, leaves a note.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

BEAT_SECONDS = 0.5
#: A counter that did not move for so many beats belongs to a process that died a moment ago.
_MISSED_BEATS = 6
#: How long the end waits for a thread that is in the store: one that hears nothing takes longer.
_LEAVE_SECONDS = 5.0


@dataclass(frozen=True)
class Departure:
    """Why an instance is not there any more."""

    instance: int
    story: str


class Pulse:
    """This instance's signs of life, and its eyes on those of the others."""

    def __init__(self, store: Any, index: int, count: int) -> None:
        # A client of its own: one that waits for a key would hold up the thread.
        self._store = store
        self._over = False
        self._index = index
        self._peers = [peer for peer in range(count) if peer != index]
        self._lock = threading.Lock()
        self._seen: dict[int, tuple[int, float]] = {}
        self._stopping = threading.Event()
        self._beats = 0
        #: What is known for good, once instance 0 has left and its store is no longer asked.
        self._last_word: Departure | None = None
        self._beat()
        self._thread = threading.Thread(target=self._run, name="softipu-pulse", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(BEAT_SECONDS):
            try:
                self._beat()
                note = self._note(0) if self._index != 0 else None
                if note is not None:
                    self._part(note)
                    return
            except RuntimeError:
                # Whoever holds the store is gone; the next collective finds that out and says so.
                return

    @contextlib.contextmanager
    def _asked(self) -> Iterator[Any]:
        """The store, for one thread at a time; after the end for none."""
        with self._lock:
            if self._over:
                raise RuntimeError("this instance has left")
            yield self._store

    def _beat(self) -> None:
        self._beats += 1
        with self._asked() as store:
            store.set(f"beat/{self._index}", str(self._beats))

    def _part(self, note: dict[str, Any]) -> None:
        """Instance 0 has left: tell it that it may take the store along."""
        found = self._noted() or Departure(0, str(note["story"]))
        with self._asked() as store:
            store.set(f"parted/{self._index}", "")
            self._last_word = found

    def leave(self, story: str, blamed: int | None = None) -> None:
        """A note for the others: this instance takes no further part, and why."""
        with contextlib.suppress(RuntimeError), self._asked() as store:
            if self._last_word is None:
                note = json.dumps({"story": story, "blamed": blamed})
                store.set(f"left/{self._index}", note)

    def stop(self) -> None:
        """From now on no thread is in the store: one that came back from it while the interpreter
        ends would be ended by Python in the middle of C++, which aborts the whole process."""
        self._stopping.set()
        entered = self._lock.acquire(timeout=_LEAVE_SECONDS)
        self._over = True
        if entered:
            self._lock.release()

    def everyone_left(self) -> bool:
        """Whether no other instance needs the store; True as well where nobody can tell."""
        try:
            with self._asked() as store:
                return all(
                    store.check([f"left/{peer}"]) or store.check([f"parted/{peer}"])
                    for peer in self._peers
                )
        except RuntimeError:
            return True

    def departed(self, silence: float) -> Departure | None:
        """An instance that left, or gave no sign of life for so many seconds of watching."""
        if self._last_word is not None:
            return self._last_word
        try:
            return self._noted() or self._silent(silence)
        except RuntimeError:
            if self._over:
                return None
            return Departure(0, "can't be reached (it holds what instances meet at)")

    def just_died(self) -> Departure | None:
        """The same after a connection broke: watches until a counter stands still."""
        patience = BEAT_SECONDS * _MISSED_BEATS
        self._seen.clear()
        deadline = time.monotonic() + 3 * patience
        while time.monotonic() < deadline:
            found = self.departed(patience)
            if found is not None:
                return found
            time.sleep(BEAT_SECONDS / 2)
        return None

    def _noted(self) -> Departure | None:
        notes = {peer: note for peer in self._peers if (note := self._note(peer)) is not None}
        for note in notes.values():
            # What an instance that gave up blames is the root of it, not that instance.
            if note["blamed"] is not None and note["blamed"] != self._index:
                return Departure(int(note["blamed"]), str(note["story"]))
        return next((Departure(peer, str(note["story"])) for peer, note in notes.items()), None)

    def _note(self, peer: int) -> dict[str, Any] | None:
        key = f"left/{peer}"
        with self._asked() as store:
            if not store.check([key]):
                return None
            note: dict[str, Any] = json.loads(store.get(key))
            return note

    def _silent(self, silence: float) -> Departure | None:
        with self._asked() as store:
            beats = [int(store.get(f"beat/{peer}")) for peer in self._peers]
        now = time.monotonic()
        for peer, beat in zip(self._peers, beats, strict=True):
            known, since = self._seen.get(peer, (-1, now))
            if known != beat:
                self._seen[peer] = (beat, now)
            elif now - since > silence:
                return Departure(peer, f"has given no sign of life for {now - since:.0f} s")
        return None

    def forget(self) -> None:
        """Watching starts anew: what was seen before says nothing about the time since."""
        self._seen.clear()
