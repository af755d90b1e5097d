"""What a pool does with a journal: which calls are done, and writing down those that end.

::

    submit(fn, *args)                      map(fn, items)
      key of the call                        keys of all items of a segment
      Journal.find                           Journal.find
      there: the future is done              the missing ones are mapped
      else the task takes its key along      ...
    rows end -> store: their results in one transaction -> futures are resolved
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from ..caches import LruCache
from ..clock import monotonic
from ..errors import SHUT, ResourceError, UsageError
from ..interrupts import failures
from ..lazy import np
from ..serializer import Code, Kind, task_name, unpack_outcome
from ..serializer.classes import from_earlier_run
from ..system.streams import say
from ..tasks import Finished
from ..turns import Turn
from .journal import MOST_NBYTES, Entry, Found, Journal, Keys, Record, write_keys
from .keys import CallKeys

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Lists of results that are kept as they were restored.
_LISTS = 256
_LISTS_NBYTES = 8 << 20

#: How often a journal is written while tasks are submitted.
STORE_S = 10e-3

#: Results that are restored together.
_TOGETHER = 256


class Ledgers:
    """The journals of one pool.

    Parameters
    ----------
    setup : tuple
        The pool's initializer and its arguments: what tasks return may depend on them.
    opened, closed : callable
        Told of each journal, before it is opened and when it is open no more.
    path : str or Path, optional
        Of the one for all tasks.

    Attributes
    ----------
    default : Ledger or None
        The one for all tasks.
    used : bool
        Whether there ever was one.
    """

    def __init__(
        self,
        setup: tuple[Any, ...],
        opened: Callable[[], object],
        closed: Callable[[], object],
        path: Any = None,
    ) -> None:
        self._setup = setup
        self._opened = opened
        self._closed = closed
        self._by_path: dict[str, Ledger] = {}
        self.used = False
        self._over = False
        self._lock = threading.Lock()
        self._storing = threading.Lock()
        self._stored_s = 0.0
        self.default = None if path is None else self.open(path)

    def open(self, path: Any) -> Ledger:
        """Return the pool's hold on a journal, opened if it is not yet."""
        try:
            name = os.path.realpath(path)
        except TypeError as error:
            raise TypeError(f"journal={path!r}: give the name of a file") from error
        except FileNotFoundError as error:
            raise UsageError(
                f"journal={path!r}: the working directory was removed: give the whole path"
            ) from error
        with self._lock:
            found = self._by_path.get(name)
        if found is not None:
            return found
        self._opened()  # first: to read a large file takes a while
        made = False
        try:
            with self._lock:
                if self._over:
                    raise RuntimeError(SHUT)
                found = self._by_path.get(name)  # another thread may have been quicker
                if found is None:
                    self.used = True
                    found = self._by_path[name] = Ledger(path, self._setup)
                    made = True
        finally:
            if not made:
                self._closed()
        return found

    @property
    def due(self) -> bool:
        """Whether what has ended should be stored, although nobody waits for it."""
        return monotonic() - self._stored_s > STORE_S

    def store(self, waiting: Iterable[Finished]) -> None:
        """Write results into their journals, before anybody sees them: one transaction for each.

        What is not stored must not be seen: where that fails, as in a journal that is closed, the
        tasks fail.
        """
        if not self.used:
            return
        with self._storing:
            ended = [finished for finished in waiting if not finished.written]
            entries: dict[Ledger, list[Entry]] = {}
            for finished in ended:
                for task, kind, content in tuple(finished.outcomes):
                    if task.noted is not None:
                        found = entries.setdefault(task.noted.ledger, [])
                        found += _entries(task.noted, kind, content)
            failed: dict[Ledger, BaseException] = {}
            for ledger, found in entries.items():
                try:
                    if found:
                        ledger.journal.store(found)
                except failures() as error:  # no room on the disk, no memory: those tasks' matter
                    failed[ledger] = error
            for finished in ended:
                finished.failures = failed
                finished.written = True
            for ledger in entries:
                ledger.warn()
            self._stored_s = monotonic()

    def close(self) -> None:
        """Let others have the files."""
        with self._lock:
            self._over = True  # a map may be about to open one
            ledgers, self._by_path = self._by_path, {}
        for ledger in ledgers.values():
            ledger.journal.close()
            self._closed()

    def disown(self) -> None:
        """Leave the files to the process that this one was forked from."""
        for ledger in self._by_path.values():
            ledger.journal.disown()


class Noted(NamedTuple):
    """Where the results of a task are to be written: by the key of one, or those of a segment."""

    ledger: Ledger
    function: str
    keys: bytes | Keys


class Ledger:
    """One journal as one pool uses it.  Thread-safe.

    Parameters
    ----------
    path : str or Path
    setup : tuple
        As for `Ledgers`.
    """

    def __init__(self, path: Any, setup: tuple[Any, ...]) -> None:
        self.keys = CallKeys(setup)
        self.journal = Journal(path)
        self._lock = threading.Lock()
        self._lists: LruCache[list[Any]] = LruCache(_LISTS, _LISTS_NBYTES)
        self._warned = False

    def result(self, key: bytes, fn: Callable[..., Any]) -> tuple[Any, BaseException | None] | None:
        """Return the outcome of a call that is done, None if it is not."""
        found = self.journal.find_one(key)
        if found is None:
            return None
        number, record, place = found
        try:
            return self._listed(number, fn, record)[place], None
        except failures() as error:
            return None, error

    def plan(
        self, fn: Callable[..., Any], code: Code | None, items: Sequence[Any], several: bool
    ) -> Plan:
        """Return which of some items are done.

        Raises
        ------
        UsageError, SerializationError
            As for ``CallKeys.of_call``.
        """
        keys = self.keys.of_items(fn, code, items, several)
        return Plan(self, fn, keys, self.journal.find(keys))

    def reading(self, results: Iterator[Any]) -> Iterator[Any]:
        """Return an iterator that may go on when the journal is closed."""

        def read() -> Iterator[Any]:
            try:
                yield from results
            finally:
                release()

        self.journal.hold()
        reader = read()
        release = weakref.finalize(reader, self.journal.release)
        release.atexit = False
        return reader

    def values(self, found: Found, fn: Callable[..., Any]) -> list[Any]:
        """Return results that are there."""
        values: list[Any] = []
        last = -1
        for number, place in zip(found.records.tolist(), found.places.tolist(), strict=True):
            if number != last:  # a large list is restored once for all that are wanted of it
                listed, last = self._listed(number, fn), number
            values.append(listed[place])
        return values

    def _listed(
        self, number: int, fn: Callable[..., Any], record: Record | None = None
    ) -> list[Any]:
        """Return the results in a record, which is read unless it is given."""
        listed = self._lists.use(number)
        if listed is not None:
            return listed
        record = record or self.journal.load(number)
        if record is None:
            raise ResourceError(
                f"journal {self.journal.path} cannot be read any more (record {number}): "
                "see that its file system works, and start the script again"
            )
        with from_earlier_run():
            value, error = unpack_outcome(Kind.VALUE, record.value, fn)
        if error is not None:
            raise error
        if not record.listed:
            return [value]
        with self._lock:
            self._lists.keep(number, value, len(record.value))
        return value  # type: ignore[no-any-return]

    def warn(self) -> None:
        """Say once that there are results too large to be stored."""
        if self.journal.skipped and not self._warned:
            self._warned = True
            # Not by `warnings`: a filter may make an error of it, in whichever thread this is.
            say(
                f"journal {self.journal.path}: more than {MOST_NBYTES:,} bytes, of one result or "
                "of those of one chunk of a map, are delivered but not stored, and will be "
                "computed again; have tasks write files and return their names, or smaller chunks"
            )


def _entries(noted: Noted, kind: int, content: Any) -> Iterator[Entry]:
    """Yield what a task's outcome has for the journal: nothing if it raised."""
    if kind == Kind.VALUE:
        assert isinstance(noted.keys, bytes)
        yield Entry(noted.function, noted.keys, False, content)
    elif kind == Kind.TURN:
        for part in Turn.decode(content).parts:
            if part.total:
                assert not isinstance(noted.keys, bytes)
                keys = noted.keys[part.start : part.start + part.total]
                yield Entry(noted.function, write_keys(keys), True, part.encoded)


class Plan:
    """Which of some items are done, and where their results are."""

    def __init__(self, ledger: Ledger, fn: Callable[..., Any], keys: Keys, found: Found) -> None:
        self._ledger = ledger
        self._fn = fn
        self._found = found
        self._done = found.records >= 0
        self.total = len(self._done)
        self.noted = Noted(ledger, name_of(fn), keys[~self._done])

    def missing(self, items: Sequence[Any]) -> Sequence[Any]:
        """Return those of the items that are not done."""
        if not self._done.any():
            return items
        return [items[i] for i in np.flatnonzero(~self._done).tolist()]

    def place(self, at: int) -> int:
        """Return which one of all items one of the missing ones is."""
        return int(np.flatnonzero(~self._done)[at])

    def stored(self) -> Iterator[list[Any]]:
        """Yield the results of the items that are done, in lists."""
        done = np.flatnonzero(self._done)
        for at in range(0, len(done), _TOGETHER):
            yield self._values(done[at : at + _TOGETHER])

    def merged(self, computed: Iterator[list[Any]]) -> Iterator[list[Any]]:
        """Yield all results in order, in lists; `computed` are those of the missing items."""
        if not self._done.any():
            yield from computed
            return
        values: deque[Any] = deque()  # computed, and not yielded yet
        turns = np.flatnonzero(np.diff(self._done)) + 1
        bounds = [0, *turns.tolist(), len(self._done)]
        for start, stop in pairwise(bounds):
            if not self._done[start]:
                for _ in range(start, stop):
                    if not values:
                        values.extend(next(computed))
                    yield [values.popleft()]
                continue
            for at in range(start, stop, _TOGETHER):
                yield self._values(np.arange(at, min(stop, at + _TOGETHER)))

    def _values(self, items: NDArray[np.int64]) -> list[Any]:
        found = Found(self._found.records[items], self._found.places[items])
        return self._ledger.values(found, self._fn)


def name_of(fn: Callable[..., Any]) -> str:
    """Return the name of a function for whoever looks at a journal."""
    module = getattr(fn, "__module__", None)
    return f"{module}.{task_name(fn)}" if isinstance(module, str) else task_name(fn)
