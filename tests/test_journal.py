"""The file of a journal: what is stored is found, and damage is never a wrong result."""

from __future__ import annotations

import os
import random
import re
import sqlite3
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path

import pytest
from jobs import ROOT

from workpool.errors import ResourceError, UsageError
from workpool.journal.journal import Entry, Journal, read_keys
from workpool.journal.ledger import Ledger, Ledgers
from workpool.launch import cli


@cache
def key(number: int) -> bytes:
    return random.Random(number).randbytes(16)


@cache
def entry(number: int, listed: int = 0) -> Entry:
    """Return what is stored in these tests: the value tells the key."""
    keys = b"".join(key(number + i) for i in range(max(1, listed)))
    return Entry("f", keys, bool(listed), b"%d " % number * (1 + number % 500))


def right(journal: Journal, number: int, place: int = 0) -> bool:
    """Return whether a result is there; it must not be a wrong one."""
    places = journal.find(read_keys(key(number + place)))
    found = journal.find_one(key(number + place))
    if places.records[0] < 0:
        assert found is None
        return False
    record = journal.load(int(places.records[0]))
    assert record is not None
    assert found == (places.records[0], record, place)
    assert int(places.places[0]) == place
    assert record.value == entry(number).value
    return True


def kept(path: Path, *numbers: int) -> list[bool]:
    """Return which results are there when the journal is opened again."""
    journal = Journal(path)
    found = [right(journal, number) for number in numbers]
    journal.close()
    return found


def test_what_is_stored_is_found(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    journal = Journal(path)
    assert len(journal) == 0
    assert not right(journal, 1)
    journal.store([entry(n) for n in range(50)])
    journal.store([entry(1000, listed=20)])
    journal.close()
    journal.close()
    with pytest.raises(ResourceError, match="closed"):
        journal.store([entry(1)])
    journal = Journal(path)
    assert len(journal) == 70
    assert all(right(journal, n) for n in range(50))
    assert all(right(journal, 1000, n) for n in range(20))
    assert not right(journal, 51)
    keys = read_keys(b"".join(key(n) for n in (3, 77, 4)))
    assert (journal.find(keys).records >= 0).tolist() == [True, False, True]
    journal.hold()
    journal.close()
    assert right(journal, 5)  # for those that read on
    Journal(path).close()
    journal.release()


def test_who_has_begun_to_read_reads_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workpool.journal.journal._RECENT", 1)
    first = Journal(tmp_path / "run.db")
    first.store([entry(n) for n in range(3)])
    first.close()
    ledger = Ledger(tmp_path / "run.db", (None, ()))
    journal = ledger.journal
    reader = ledger.reading(right(journal, n) for n in range(3))
    assert next(reader)
    journal.close()
    assert list(reader) == [True, True]
    assert not right(journal, 0), "nobody reads any more"


def test_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("workpool.journal.journal.MOST_NBYTES", 1000)
    ledger = Ledger(tmp_path / "run.db", (None, ()))
    journal = ledger.journal
    for stored in ([], [entry(1)], [entry(499)]):
        journal.store(stored)
        for _ in range(2):
            ledger.warn()
        assert capfd.readouterr().err.count("delivered but not stored") == (stored == [entry(499)])
    journal.close()
    assert journal.skipped == 1
    assert kept(tmp_path / "run.db", 1, 499) == [True, False]


def test_two_threads_open_one_for_a_pool(tmp_path: Path) -> None:
    counts = {"opened": 0, "closed": 0}
    both = threading.Barrier(2)

    def opened() -> None:
        counts["opened"] += 1
        both.wait(10)

    def closed() -> None:
        counts["closed"] += 1

    ledgers = Ledgers((None, ()), opened, closed)
    found: list[Ledger] = []
    threads = [
        threading.Thread(target=lambda: found.append(ledgers.open(tmp_path / "j"))) for _ in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    first, second = found
    assert first is second is not None
    assert counts == {"opened": 2, "closed": 1}
    ledgers.close()
    assert counts == {"opened": 2, "closed": 2}
    Journal(tmp_path / "j").close()  # nobody has it any more
    both.reset()
    both.wait = lambda timeout: 0  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="after shutdown"):
        ledgers.open(tmp_path / "another")
    assert counts == {"opened": 3, "closed": 3}


def test_a_name_without_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(UsageError, match=r"journal='run.db': the working directory was removed"):
        Ledgers((None, ()), dict, dict, "run.db")
    Ledgers((None, ()), dict, dict, tmp_path / "run.db").close()


@pytest.mark.parametrize(
    "name", [":memory:", "file:run.db?mode=memory", "file:%41.db", "a b#c?.db", "-\udcff\n'\".db"]
)
def test_any_name_is_that_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    journal = Journal(name)
    journal.store([entry(1)])
    journal.close()
    assert all(kept(Path(name), 1))
    assert sorted(os.listdir()) == sorted([name, f"{name}.lock"])


def test_what_is_no_journal_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    foreign = tmp_path / "text"
    foreign.write_text("something else" * 100)
    with pytest.raises(UsageError, match="is not a journal"):
        Journal(foreign)
    assert foreign.read_text() == "something else" * 100
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE mine (a)")
    connection.close()
    before = other.read_bytes()
    with pytest.raises(UsageError, match="is not a journal"):
        Journal(other)
    assert other.read_bytes() == before
    newer = tmp_path / "newer.db"
    Journal(newer).close()
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 7")
    connection.close()
    with pytest.raises(UsageError, match="format version 7, this workpool writes 1"):
        Journal(newer)
    with pytest.raises(ResourceError, match="No such file or directory"):
        Journal(tmp_path / "missing" / "run.db")
    os.mkfifo(tmp_path / "pipe")
    # SQLite would take the first for a file that nobody sees, and the last for one without a slash,
    # which the next run could not read.
    for name in ("", tmp_path, tmp_path / "pipe", os.devnull, f"{tmp_path}/new.db/"):
        with pytest.raises(UsageError, match="give the name of a file"):
            Journal(name)
    assert not list(tmp_path.glob(".*"))
    if os.geteuid():
        tmp_path.chmod(0o500)
        with pytest.raises(ResourceError, match="can be written"):
            Journal(tmp_path / "new.db")


def test_a_file_that_was_only_begun(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    path.touch()
    Journal(path).close()
    begun = tmp_path / "begun.db"
    connection = sqlite3.connect(begun)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    journal = Journal(begun)
    journal.store([entry(1)])
    journal.close()
    journal = Journal(begun)
    assert right(journal, 1)
    journal.close()


def test_no_room(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    journal = Journal(path)
    journal.store([entry(1)])
    pages = journal._connection.execute("PRAGMA page_count").fetchone()[0]
    journal._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(ResourceError, match=r"cannot write journal .*run\.db: .*full; see that"):
        journal.store([Entry("new", entry(499)[1], False, bytes(100_000))])
    journal._connection.execute("PRAGMA max_page_count = 100000")
    journal.store([Entry("new", key(5), False, entry(5).value)])
    journal.close()
    assert kept(path, 1, 5, 499) == [True, True, False]
    with sqlite3.connect(path) as connection:
        names = "SELECT name FROM records JOIN functions ON function = functions.number"
        assert connection.execute(names).fetchall() == [("f",), ("new",)]
    connection.close()


def test_damage_is_never_a_wrong_result(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    journal = Journal(path)
    for n in range(0, 300, 10):
        journal.store([entry(k) for k in range(n, n + 10)])
    journal.store([entry(1000 + 50 * n, listed=50) for n in range(10)])
    journal.close()
    whole = path.read_bytes()
    chance = random.Random(4)
    opened = found = missing = 0
    said: list[str] = []
    for trial in range(150):
        content = bytearray(whole)
        if trial % 10 == 9:
            del content[chance.randrange(len(content)) :]
        for _ in range(chance.choice([1, 3, 30, 300])):
            if content:
                content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        for name in ("-wal", "-shm"):
            path.with_name(path.name + name).unlink(missing_ok=True)
        try:
            journal = Journal(path)
        except (UsageError, ResourceError) as error:
            said.append(str(error))
            continue
        opened += 1
        there = [right(journal, n) for n in range(300)]
        there += [right(journal, 1000 + 50 * n, i) for n in range(10) for i in range(0, 50, 7)]
        found += sum(there)
        missing += len(there) - sum(there)
        try:  # and what is missing can be stored again
            journal.store([entry(n) for n in range(300) if not there[n]])
        except ResourceError as error:
            said.append(str(error))
        journal.close()
    assert all(str(path) in text for text in said)
    assert opened > 30
    assert found > missing > 100


def test_a_program_may_go_to_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    journal = Journal("run.db")
    monkeypatch.chdir("/")
    journal.store([entry(1)])
    journal.close()
    assert all(kept(tmp_path / "run.db", 1))


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("name", ["run.db", "run.db-wal"])
def test_a_file_that_is_taken_away_takes_no_more_results(
    tmp_path: Path, name: str, replaced: bool
) -> None:
    path = tmp_path / name
    journal = Journal(tmp_path / "run.db")
    journal.store([entry(1)])
    path.unlink()
    if replaced:
        path.write_bytes(b"")
    with pytest.raises(ResourceError, match="was removed or replaced"):
        journal.store([entry(2)])
    journal.close()


def test_what_was_damaged_and_done_again(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    journal = Journal(path)
    journal.store([entry(n) for n in range(5)])
    journal.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE records SET value = x'00' WHERE number = 3")
    connection.close()
    journal = Journal(path)
    assert [right(journal, n) for n in range(5)] == [True, True, False, True, True]
    journal.store([entry(2)])
    journal.close()
    assert all(kept(path, *range(5)))
    journal = Journal(path)
    journal._connection.execute("DELETE FROM records WHERE number = 1")  # as if it were damaged
    assert [right(journal, n) for n in range(5)] == [False, True, True, True, True]
    journal.close()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.db"
    journal = Journal(path)
    journal.store([entry(n) for n in range(5)])
    journal.store([Entry("__main__.sim", entry(100, listed=20).keys, True, bytes(3000))])
    assert cli.main(["journal", str(path)]) == 0
    out = capsys.readouterr().out
    assert "format version 1" in out
    assert re.search(rf"open +by process {os.getpid()} on ", out)
    assert re.search(r"results +25, 3,030 bytes", out)
    assert re.search(r"__main__\.sim +20 +3,000 ", out)
    assert time.strftime("%Y-%m-") in out
    journal.close()
    copy = tmp_path / "copy.db"  # without the lock
    copy.write_bytes(path.read_bytes())
    for each in (path, copy):
        assert cli.main(["journal", str(each)]) == 0
        assert re.search(r"open +by nobody", capsys.readouterr().out)
    copy.unlink()
    assert sorted(os.listdir(tmp_path)) == ["run.db", "run.db.lock"]
    Journal(tmp_path / "new.db").close()
    assert cli.main(["journal", str(tmp_path / "new.db")]) == 0
    assert re.search(r"results +0, 0 bytes", capsys.readouterr().out)
    (tmp_path / "text").write_text("text")
    for name, said in (
        ("text", "that a pool has as journal="),
        ("none", "no such file"),
        (".", "not a file"),
    ):
        assert cli.main(["journal", str(tmp_path / name)]) == 2
        assert said in capsys.readouterr().err


def test_what_the_command_shows_stands_below_its_heads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.db"
    journal = Journal(path)
    journal.store([entry(0)])  # of a function with a short name
    journal.close()
    assert cli.main(["journal", str(path)]) == 0
    heads, row = capsys.readouterr().out.splitlines()[-2:]
    assert heads.index("first") == row.index(time.strftime("%Y-"))


def test_nobody_reads_what_the_command_shows(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    Journal(path).close()
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as stdout:
        words = [sys.executable, "-m", "workpool.launch.cli", "journal", str(path)]
        shown = subprocess.run(words, cwd=ROOT, stdout=stdout, stderr=subprocess.PIPE, timeout=60)
    assert (shown.returncode, shown.stderr) == (0, b"")
