"""The file of a journal: who may open it, whether it is one, and what is wrong when it is not.

The lock is on ``FILE.lock`` and not on the file: those that SQLite takes there come and go, and
others may read while a job writes.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..clock import monotonic, sleep
from ..errors import ResourceError, UsageError
from ..lazy import sqlite3

FORMAT = 1

#: How long to wait for the lock: somebody who only looks has it for a moment.
_WAIT_S = 0.5

_APPLICATION = 0x776B706C  # "wkpl"

#: What SQLite says of a file that is damaged.
_DAMAGE = ("malformed", "not a database", "no such table", "no such column", "encrypted")
#: What to do about a file that is no journal, for those who write and for those who only look.
_ANOTHER = "give the name of a new file"
_THE_ONE = "give the file that a pool has as journal="

_MAGIC = b"SQLite format 3\0"
_SCHEMA = f"""
BEGIN IMMEDIATE;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {FORMAT};
CREATE TABLE functions (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE records (
    number INTEGER PRIMARY KEY,
    function INTEGER NOT NULL,
    stored_s REAL NOT NULL,
    listed INTEGER NOT NULL,
    keys BLOB NOT NULL,
    checksum BLOB NOT NULL,
    value BLOB NOT NULL
);
COMMIT;
"""


def _me() -> str:
    """Return what a lock says of this process."""
    return f"process {os.getpid()} on {os.uname().nodename}"


def lock(path: str) -> int:
    """Return a descriptor that holds the lock of a journal."""
    name = beside(path, ".lock")
    try:
        held = os.open(name, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise ResourceError(
            f"cannot open journal {path}: {error.strerror} ({name}); "
            "give a file in a directory that exists and can be written"
        ) from error
    try:
        if not _take(held):
            raise UsageError(f"journal {path} is in use by {_use(_holder(held))}")
        os.ftruncate(held, 0)
        os.pwrite(held, os.fsencode(_me()), 0)  # the name of a host need not be text
    except BaseException as error:
        os.close(held)
        if not isinstance(error, OSError):
            raise
        raise ResourceError(
            f"cannot lock journal {path}: {error.strerror} ({name}); "
            "give a file on a file system with locks and with room"
        ) from error
    return held


def _take(held: int) -> bool:
    """Return whether the lock could be taken."""
    give_up = monotonic() + _WAIT_S
    while True:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if monotonic() > give_up:
                return False
            sleep(_WAIT_S / 10)


def _holder(held: int) -> str:
    return os.fsdecode(os.pread(held, 200, 0)) or "another process"


def _use(who: str) -> str:
    """Return who uses a journal, and what to do about it."""
    if who != _me():
        return f"{who}: wait for its end, or give each job a journal of its own"
    return (
        "a pool of this program, until that is shut down, or nothing refers to it, and its "
        "tasks have ended: pool.shutdown(cancel_futures=True) gives up those that wait"
    )


def holder(path: str) -> str | None:
    """Return who has a journal open, None if nobody has."""
    try:
        held = os.open(beside(path, ".lock"), os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _holder(held)
    finally:
        os.close(held)
    return None


def connect(path: str) -> sqlite3.Connection:
    """Return a connection to a journal that is one, made if the file is new."""
    # Some names without a directory are no files to SQLite: ":memory:", and "file:..." if it is
    # built to take them for URIs.
    whole, options = os.path.abspath(path), {"isolation_level": None, "check_same_thread": False}
    with _opened(path, _ANOTHER, whole, **options) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        if not _tables(connection):
            connection.executescript(_SCHEMA)
        connection.execute("BEGIN IMMEDIATE")  # now is the time to see that it can be written
        connection.execute("ROLLBACK")
        return connection


def inspect(path: str) -> sqlite3.Connection:
    """Return a connection that only reads a journal, whoever has it open.

    Raises
    ------
    UsageError, ResourceError
        As for `Journal`.
    """
    from pathlib import Path  # much for a rank, and it is not a rank that asks

    # To read while another writes, or after one was killed, takes files beside the journal.
    mode = "mode=ro" if os.path.exists(beside(path, "-wal")) else "immutable=1"
    uri = f"{Path(path).absolute().as_uri()}?{mode}"
    with _opened(path, _THE_ONE, uri, uri=True) as connection:
        if not _tables(connection):
            raise UsageError(f"{path} is empty: nothing was ever stored in it")
        return connection


@contextmanager
def _opened(path: str, remedy: str, name: str, **options: Any) -> Iterator[sqlite3.Connection]:
    """Give a connection to a journal, if it is one; it is closed where something fails."""
    _look(path, remedy)
    try:
        connection = sqlite3.connect(name, **options)
        try:
            _check(connection, path, remedy)
            yield connection
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise failed(path, "open", error) from error


def beside(path: str, suffix: str) -> str:
    """Return the name of a file beside a journal: the same by whatever name that is known."""
    return os.path.realpath(path) + suffix


def _tables(connection: sqlite3.Connection) -> int:
    found: int = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return found


def _look(path: str, remedy: str) -> None:
    """See that a file begins as one of SQLite does, if there is anything in it."""
    try:
        with open(path, "rb") as file:
            begins = file.read(len(_MAGIC))
    except FileNotFoundError:
        return
    except OSError as error:
        raise ResourceError(f"cannot read journal {path}: {error.strerror}") from error
    if begins and begins != _MAGIC:
        raise UsageError(f"{path} is not a journal of workpool: {remedy}")


def _check(connection: sqlite3.Connection, path: str, remedy: str) -> None:
    """See that a database is a journal of this format.

    Raises
    ------
    UsageError
        If it is not.
    """
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application == 0 and not _tables(connection):
        return  # its maker was killed before there was anything in it
    if application != _APPLICATION:
        raise UsageError(f"{path} is not a journal of workpool: {remedy}")
    if version != FORMAT:
        raise UsageError(
            f"journal {path} has format version {version}, this workpool writes {FORMAT}: go on "
            "with the version that wrote it, or give the name of a new file"
        )


def failed(path: str, what: str, error: Exception) -> ResourceError:
    """Return the error that says what is wrong with a journal and what to do."""
    text = str(error)
    if "full" in text or "disk I/O" in text:
        remedy = "see that its file system works and has room, and start the script again"
    elif "readonly" in text or "unable to open" in text:
        remedy = "its file and directory must be writable, and files left to open (ulimit -n)"
    elif "locked" in text or "busy" in text:
        remedy = "end the program that has it open with SQLite"
    elif isinstance(error, UnicodeDecodeError) or any(sign in text for sign in _DAMAGE):
        remedy = (
            "it is damaged: remove it and begin anew, or save what can be saved by "
            f"`sqlite3 {path} .recover`"
        )
    else:
        remedy = "SQLite says no more than that"
    return ResourceError(f"cannot {what} journal {path}: {text}; {remedy}")
