"""Who still lives: instances leave signs of life in the store that they met at.

One thread alone asks the store, which may be slow to answer or never do so: it counts a number up,
reads those of the others and the notes that they leave when they go. Everybody else looks at what
it found out, and notices when that does not change any more.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

BEAT_SECONDS = 0.5
#: A counter that did not move for so many beats belongs to a process that died a moment ago.
_MISSED_BEATS = 6
#: How long the end waits for a thread that is in the store: one that hears nothing takes longer.
_LEAVE_SECONDS = 5.0
#: How often instance 0 looks at its end whether the others have noticed.
_LAST_LOOKS_SECONDS = 0.05
#: Between two looks this process may itself have stood still (Ctrl-Z), which is nobody's silence.
_LONGEST_GAP_SECONDS = 2.0
_SOMEBODY_LEFT = "somebody left"

Note = Mapping[str, Any]


@dataclass(frozen=True)
class Departure:
    """Why an instance is not there any more."""

    instance: int | None  #: None: the launcher, which may hold the store in place of instance 0
    story: str

    def __str__(self) -> str:
        who = "The launcher" if self.instance is None else f"Instance {self.instance}"
        return f"{who} {self.story}"


@dataclass(frozen=True)
class Look:
    """What the store answered in one round of questions."""

    number: int = 0
    notes: Mapping[int, Note] = field(default_factory=dict)
    beats: Mapping[int, int] = field(default_factory=dict)  #: none until all instances have begun
    everyone_left: bool = False


class Watch:
    """For how many seconds counters stood still while somebody looked at them."""

    def __init__(self) -> None:
        self.unanswered = 0.0
        self.still: dict[int, float] = {}
        self._last: Look | None = None
        self._at = 0.0

    def see(self, look: Look) -> None:
        now = time.monotonic()
        passed = min(now - self._at, _LONGEST_GAP_SECONDS)
        last, self._at = self._last, now
        if last is not None and look.number == last.number:
            self.unanswered += passed
            return
        # While the store was silent for long nobody could leave a sign of life in it.
        passed = min(self.unanswered + passed, _LONGEST_GAP_SECONDS)
        for peer, beat in look.beats.items():
            stands = last is not None and last.beats.get(peer) == beat
            self.still[peer] = self.still.get(peer, 0.0) + passed if stands else 0.0
        self._last, self.unanswered = look, 0.0


class Pulse:
    """This instance's signs of life, and its eyes on those of the others."""

    def __init__(
        self,
        store: Any,
        index: int,
        count: int,
        *,
        launcher_holds: bool = False,
        cut: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store  # a client of its own, which only the thread asks
        self._index = index
        self._peers = [peer for peer in range(count) if peer != index]
        self._holder = None if launcher_holds else 0
        self._cut = cut
        self._beats = 0
        self._all_began = False
        self._note: str | None = None
        self._written = threading.Event()
        self._stopping = False
        self._wake = threading.Event()
        self._look = Look()
        self._broken = False
        #: The store does not answer: nothing is waited for any more.
        self._deaf = False
        #: What is known for good, once instance 0 has left and its store is no longer asked.
        self._last_word: Departure | None = None
        self._watch = Watch()
        self._watching = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="softipu-pulse", daemon=True)
        self._thread.start()

    # --- in the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._round()
                if self._last_word is not None:
                    return
                leaving = self._index == 0 and self._written.is_set()
                self._wake.wait(_LAST_LOOKS_SECONDS if leaving else BEAT_SECONDS)
                self._wake.clear()
        except RuntimeError:
            # Whoever holds the store is gone; the next collective finds that out and says so.
            self._broken = True
        finally:
            self._written.set()

    def _round(self) -> None:
        store, last = self._store, self._look
        self._beats += 1
        store.set(f"beat/{self._index}", str(self._beats))
        if self._note is not None and not self._written.is_set():
            store.set(f"left/{self._index}", self._note)
            store.set(_SOMEBODY_LEFT, "")
            self._written.set()
        notes = self._notes(last.notes)
        gone = self._index == 0 and self._written.is_set() and self._all_gone(notes)
        self._look = Look(last.number + 1, notes, self._others_beats(), gone)
        if self._index != 0 and 0 in notes:
            # It may take the store along once all have said that they know.
            self._last_word = self._blamed(notes) or Departure(0, str(notes[0]["story"]))
            store.set(f"parted/{self._index}", "")

    def _notes(self, known: Mapping[int, Note]) -> Mapping[int, Note]:
        store = self._store
        if len(known) == len(self._peers) or not store.check([_SOMEBODY_LEFT]):
            return known
        new = [peer for peer in self._peers if peer not in known and store.check([f"left/{peer}"])]
        return {**known, **{peer: json.loads(store.get(f"left/{peer}")) for peer in new}}

    def _all_gone(self, notes: Mapping[int, Note]) -> bool:
        return all(peer in notes or self._store.check([f"parted/{peer}"]) for peer in self._peers)

    def _others_beats(self) -> dict[int, int]:
        keys = [f"beat/{peer}" for peer in self._peers]
        # Asking for a counter that is not there yet would wait for it.
        self._all_began = self._all_began or (bool(keys) and self._store.check(keys))
        if not self._all_began:
            return {}
        return dict(zip(self._peers, map(int, self._store.multi_get(keys)), strict=True))

    # --- for everybody else; nothing here waits for the store without a limit -------------------

    def leave(self, story: str, blamed: int | None = None) -> None:
        """A note for the others: this instance takes no further part, and why."""
        if self._deaf:
            return
        if self._note is None:
            self._note = json.dumps({"story": story, "blamed": blamed})
        self._wake.set()
        self._deaf = not self._written.wait(_LEAVE_SECONDS)

    def stop(self) -> None:
        """From now on no thread is in the store: one that came back from it while the interpreter
        ends would be ended by Python in the middle of C++, which aborts the whole process."""
        self._stopping = True
        self._wake.set()
        self._thread.join(0.0 if self._deaf else _LEAVE_SECONDS)
        if self._thread.is_alive():
            self._cut()
            self._thread.join(_LEAVE_SECONDS)

    def everyone_left(self) -> bool:
        """Whether no other instance needs the store; True as well where nobody can tell."""
        return self._look.everyone_left or self._deaf or not self._thread.is_alive()

    def departed(self, silence: float, patience: float | None = None) -> Departure | None:
        """An instance that left, or gave no sign of life for so many seconds of watching.

        The store has `silence` to answer, other instances have `patience`, if that is less.
        """
        if self._last_word is not None:
            return self._last_word
        look = self._look
        found = self._blamed(look.notes) or next(
            (Departure(peer, str(note["story"])) for peer, note in look.notes.items()), None
        )
        if found is not None:
            return found
        if self._broken:
            return Departure(self._holder, "can't be reached (it holds what instances meet at)")
        with self._watching:
            self._watch.see(look)
            unanswered, still = self._watch.unanswered, dict(self._watch.still)
        if unanswered > silence:
            self._deaf = True
            return Departure(
                self._holder,
                f"can't be reached: what instances meet at, which it holds, has not answered for "
                f"{unanswered:.0f} s",
            )
        for peer, seconds in still.items():
            if seconds > (silence if patience is None else patience):
                return Departure(peer, f"has given no sign of life for {seconds:.0f} s")
        return None

    def just_died(self, silence: float) -> Departure | None:
        """The same after a connection broke: watches until a counter stands still."""
        patience = BEAT_SECONDS * _MISSED_BEATS
        self.forget()
        deadline = time.monotonic() + 3 * patience
        while time.monotonic() < deadline or self._watch.unanswered > patience:
            found = self.departed(silence, min(patience, silence))
            if found is not None:
                return found
            time.sleep(BEAT_SECONDS / 2)
        return None

    def _blamed(self, notes: Mapping[int, Note]) -> Departure | None:
        """What an instance that gave up blames is the root of it, not that instance."""
        for note in notes.values():
            if note["blamed"] is not None and note["blamed"] != self._index:
                return Departure(int(note["blamed"]), str(note["story"]))
        return None

    def forget(self) -> None:
        """Watching starts anew: what was seen before says nothing about the time since."""
        with self._watching:
            self._watch = Watch()
