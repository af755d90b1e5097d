"""Results in a file, so that the next run of the same script need not compute them again.

An SQLite database in WAL mode, for one job at a time::

    functions   number | name
    records     number | function | stored_s | listed | keys | checksum | value

A record is the result of one call, or the list of the results of several (`listed`), as it was
encoded by a worker; `keys` are those of the calls, one after another.  Whoever opens the file reads
all keys into sorted arrays, 36 bytes for each result; values are read when they are wanted.

What may be relied on:

* A transaction is there as a whole or not at all, whatever is killed and when.  It is not on the
  disk yet: a machine that loses its power may lose the last seconds (``synchronous=NORMAL``).
* A value is returned only if the checksum over its record fits: damaged records are not there.
* One job at a time has the file open for writing, by a lock on ``FILE.lock``, which the kernel
  gives back however the driver ends: processes that are forked from it let go of the lock.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..caches import LruCache
from ..errors import ResourceError, UsageError
from ..lazy import hashlib, np, sqlite3
from ..serializer.fingerprint import FINGERPRINT_NBYTES
from .file import beside, connect, failed, lock

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEY_NBYTES = FINGERPRINT_NBYTES

#: A value that is larger is not stored.  SQLite could hold four times as much, and would copy it.
MOST_NBYTES = 256 << 20

#: Records that are kept in memory: they are read to be checked, and then for their values.
_RECENT = 4096
_RECENT_NBYTES = 32 << 20

Keys: TypeAlias = "NDArray[np.uint64]"
"""Of shape (n, 2), each row 16 bytes."""


class Entry(NamedTuple):
    """What is to be stored."""

    function: str  # its name, for whoever looks at the file
    keys: bytes
    listed: bool
    value: Any  # bytes-like


class Record(NamedTuple):
    """What was stored."""

    keys: bytes
    listed: bool
    value: bytes


class Found(NamedTuple):
    """Where results are: records, and places in their lists; record -1 where there is none."""

    records: NDArray[np.int64]
    places: NDArray[np.int64]


class Journal:
    """A journal that this job has for itself.  Thread-safe.

    Parameters
    ----------
    path : str or Path
        Made if there is no such file.

    Raises
    ------
    UsageError
        If another job has it open, or the file is no journal, or one of another format.
    ResourceError
        If it is damaged, or cannot be written.

    Attributes
    ----------
    skipped : int
        Values that were too large to be stored.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fsdecode(path)
        named = os.path.basename(self.path)
        if not named or (os.path.exists(self.path) and not os.path.isfile(self.path)):
            raise UsageError(f"journal={self.path!r}: give the name of a file")
        self.skipped = 0
        # Reentrant for `release`, which the garbage collector calls at any time: while this thread
        # is in a statement, there is another reader, or the journal is not closed.
        self._mutex = threading.RLock()
        self._readers = 0
        self._closed = False
        self._recent: LruCache[Record] = LruCache(_RECENT, _RECENT_NBYTES)
        with ExitStack() as held:
            self._lock_fd = lock(self.path)
            held.callback(os.close, self._lock_fd)
            self._connection = connect(self.path)
            held.callback(self._connection.close)
            functions = self._ask("SELECT name, number FROM functions")
            self._functions: dict[str, int] = dict(functions)
            self._read_keys()
            # The program may go to another directory.
            files = os.path.abspath(self.path), beside(self.path, "-wal")
            self._files = {path: os.stat(path) for path in files if os.path.exists(path)}
            held.pop_all()  # nothing has failed: both stay open

    def __len__(self) -> int:
        return len(self._keys)

    def _read_keys(self) -> None:
        keys: list[Keys] = []
        records: list[int] = []
        counts: list[int] = []
        for number, content in self._ask("SELECT number, keys FROM records ORDER BY number"):
            if isinstance(content, bytes) and len(content) % KEY_NBYTES == 0:
                keys.append(read_keys(content))
                records.append(number)
                counts.append(len(keys[-1]))
        everything = np.concatenate([np.empty((0, 2), np.uint64), *keys])
        starts = np.cumsum([0, *counts])[:-1]
        # The latest of equal keys comes last: it was stored because those before it are damaged.
        order = np.argsort(everything[:, 0], kind="stable")
        self._keys = everything[order]
        self._firsts = np.ascontiguousarray(self._keys[:, 0])
        self._records = np.repeat(np.array(records, np.int64), counts)[order]
        places = np.arange(len(everything)) - np.repeat(starts, counts)
        self._places = places[order].astype(np.int32)

    def find(self, keys: Keys) -> Found:
        """Return where the results of calls are, as far as they are there and undamaged.

        Notes
        -----
        Cost: 1 us for each key, 20 us for each record, which is read to check it.
        """
        at = np.searchsorted(self._firsts, keys[:, 0], side="right") - 1
        found = at >= 0
        found[found] = (self._keys[at[found]] == keys[found]).all(axis=1)
        records = np.full(len(keys), -1, np.int64)
        places = np.zeros(len(keys), np.int64)
        records[found] = self._records[at[found]]
        places[found] = self._places[at[found]]
        order = np.argsort(records, kind="stable")
        order = order[records[order] >= 0]
        for of_one in np.split(order, np.flatnonzero(np.diff(records[order])) + 1):
            # What was read of all records may be damaged where the record itself is not.
            if len(of_one) and not self._holds(records[of_one[0]], places[of_one], keys[of_one]):
                records[of_one] = -1
        return Found(records, places)

    def find_one(self, key: bytes) -> tuple[int, Record, int] | None:
        """Return a record's number, the record, and the place of a call in it; None if not there.

        Notes
        -----
        Cost: 2 us; 20 us if it is there.
        """
        first = np.uint64(int.from_bytes(key[:8], "little"))
        at = int(self._firsts.searchsorted(first, "right")) - 1
        if at < 0 or self._firsts[at] != first:
            return None
        record = self.load(int(self._records[at]))
        place = int(self._places[at])
        start = place * KEY_NBYTES
        if record is None or record.keys[start : start + KEY_NBYTES] != key:
            return None
        return int(self._records[at]), record, place

    def _holds(self, number: int, places: NDArray[np.int64], keys: Keys) -> bool:
        """Return whether a record is undamaged, and has these keys at these places."""
        record = self.load(int(number))
        if record is None or len(record.keys) <= KEY_NBYTES * int(places.max()):
            return False
        return bool((read_keys(record.keys)[places] == keys).all())

    def load(self, number: int) -> Record | None:
        """Return a record, None if it is damaged."""
        record = self._recent.use(number)
        if record is not None:
            return record
        try:
            with self._mutex:
                row = self._connection.execute(
                    "SELECT listed, keys, checksum, value FROM records WHERE number = ?", (number,)
                ).fetchone()
        except sqlite3.Error:
            return None
        if row is None or not all(isinstance(part, bytes) for part in row[1:]):
            return None
        listed, keys, checksum, value = row
        if listed not in (0, 1) or checksum != _checksum(keys, bool(listed), value):
            return None
        record = Record(keys, bool(listed), value)
        with self._mutex:
            self._recent.keep(number, record, len(keys) + len(value))
        return record

    def store(self, entries: Iterable[Entry]) -> None:
        """Store results in one transaction.

        Raises
        ------
        ResourceError
            None of them is stored.

        Notes
        -----
        Cost: 40 us, and 5 us for each entry.
        """
        now = time.time()
        with self._mutex:
            if self._closed:
                raise ResourceError(
                    f"journal {self.path} is closed: its pool was shut down before this result "
                    "could be stored"
                )
            self._check_file()
            rows = []
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                for name, keys, listed, value in entries:
                    if len(value) > MOST_NBYTES:
                        self.skipped += 1
                        continue
                    checksum = _checksum(keys, listed, value)
                    rows.append((self._number(name), now, int(listed), keys, checksum, value))
                self._connection.executemany(
                    "INSERT INTO records (function, stored_s, listed, keys, checksum, value)"
                    " VALUES (?, ?, ?, ?, ?, ?)",
                    rows,
                )
                self._connection.execute("COMMIT")
            except BaseException as error:
                with suppress(sqlite3.Error):
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                self._functions.clear()  # those that were added are not there
                if isinstance(error, sqlite3.Error):
                    raise failed(self.path, "write", error) from error
                raise

    def _check_file(self) -> None:
        """See that its files are still there: SQLite would go on with one that has no name."""
        for path, stat in self._files.items():
            try:
                same = os.path.samestat(os.stat(path), stat)
            except FileNotFoundError:
                same = False
            except OSError:
                return  # to write will show what is wrong
            if not same:
                raise ResourceError(
                    f"journal {self.path} was removed or replaced ({path}) while it was in use: "
                    "results cannot be stored any more; start the script again, and leave the "
                    "file alone meanwhile"
                )

    def hold(self) -> None:
        """Keep values readable after the journal is closed, until `release`."""
        with self._mutex:
            self._readers += 1

    def release(self) -> None:
        """Undo one `hold`."""
        with self._mutex:
            self._readers -= 1
            if self._closed and not self._readers:
                self._connection.close()

    def close(self) -> None:
        """Let another job have the file."""
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            try:
                if not self._readers:
                    self._connection.close()
            finally:
                os.close(self._lock_fd)

    def disown(self) -> None:
        """Leave the file to the process that this one was forked from, and its lock to end with it.

        Once: to a fork of the fork the number is another file's.
        """
        held, self._lock_fd = self._lock_fd, -1
        if held >= 0:
            os.close(held)

    def _number(self, function: str) -> int:
        """Return the number of a function, which is added if it has none."""
        if function not in self._functions:
            name = (function,)
            self._connection.execute("INSERT OR IGNORE INTO functions (name) VALUES (?)", name)
            found = self._connection.execute("SELECT number FROM functions WHERE name = ?", name)
            self._functions[function] = found.fetchone()[0]
        return self._functions[function]

    def _ask(self, question: str) -> list[Any]:
        try:
            return self._connection.execute(question).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise failed(self.path, "read", error) from error


def read_keys(content: bytes) -> Keys:
    """Return keys as numbers."""
    return np.frombuffer(content, "<u8").astype(np.uint64).reshape(-1, 2)


def write_keys(keys: Keys) -> bytes:
    """Return keys as bytes."""
    return keys.astype("<u8").tobytes()


def _checksum(keys: bytes, listed: bool, value: Any) -> bytes:
    digest = hashlib.blake2b(b"%d %d " % (listed, len(keys)), digest_size=16)
    digest.update(keys)
    digest.update(value)
    return digest.digest()
