"""What most items of a map are given crosses once, and each call has a copy of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product, repeat
from typing import Any, NamedTuple

import numpy as np
import pytest
from stepped_pool import Make, die_once, drained, during, note, ran

from workpool import SerializationError
from workpool.pool.mapping import cutter, supply
from workpool.serializer import repeats

N = 100
FLOATS = [n * 1.5 for n in range(10_000)]
WORDS = {f"key {n}": f"the value of {n}" for n in range(4000)}


class Table:
    """Counts how often it is pickled, and how often it was changed."""

    pickled = 0

    def __init__(self) -> None:
        self.words = {n: str(n) for n in range(100)}
        self.numbers = np.zeros(10_000)
        self.changes = 0

    def __getstate__(self) -> object:
        Table.pickled += 1
        return vars(self)

    def change(self) -> int:
        self.changes += 1
        self.numbers += 1
        self.words.popitem()
        return self.changes + int(self.numbers.sum()) + len(self.words)


CHANGED = 1 + 10_000 + 99


class Pair(NamedTuple):
    first: Any
    second: Any


@pytest.fixture(autouse=True)
def times(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have it noted how many rests the items of each map had that went this way."""
    found: list[int] = []
    encode = repeats.encode_rests

    def counted(*args: Any, **options: Any) -> Any:
        encoded = encode(*args, **options)
        if encoded is not None:
            found.append(len(encoded))
        return encoded

    monkeypatch.setattr(cutter, "encode_rests", counted)
    Table.pickled = 0
    return found


@pytest.fixture(name="make")
def make_with_room(make: Make) -> Make:
    """Have pools whose arena has room for what crosses: here nobody passes pieces on."""
    return partial(make, arena_nbytes=1 << 25)


def change(n: int, table: Table) -> tuple[int, int]:
    return n, table.change()


@pytest.mark.parametrize("schedule", ["adaptive", "self", "guided"])
@pytest.mark.parametrize("unordered", [False, True])
@pytest.mark.parametrize("longest", [64, 1 << 16])
def test_it_is_pickled_once_and_no_call_sees_what_another_has_changed(
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
    times: list[int],
    schedule: str,
    unordered: bool,
    longest: int,
) -> None:
    for module in (cutter, supply):
        monkeypatch.setattr(module, "SEGMENT_ITEMS", longest)
    pool, table = make(), Table()
    how: Any = {"schedule": schedule, "unordered": unordered}
    found = pool.map(change, range(N), repeat(table), **how)
    assert Table.pickled <= 2  # once with the first items, to see how large they are
    assert sorted(found) == [(n, CHANGED) for n in range(N)]
    given = [(n, table) for n in range(N)]
    assert sorted(pool.starmap(change, given, **how)) == [(n, CHANGED) for n in range(N)]
    assert times == [1, 1]
    assert table.changes == 0


def grown(n: int, it: Any) -> Any:
    """Change something, if it can be changed, and say what it is then."""
    if type(it) is list:
        it.append(n)
    elif type(it) is dict:
        it[n] = it.pop("key 0")
    elif type(it) is bytearray:
        it[:] = bytes(1)
    return n, type(it), len(it)


@pytest.mark.parametrize(
    "it",
    [
        FLOATS,
        WORDS,
        tuple(FLOATS),
        "x" * 100_000,
        bytes(100_000),
        bytearray(100_000),
        [{"a": n} for n in range(10_000)],
        {str(n) if n else "key 0": [n] for n in range(10_000)},
        frozenset(FLOATS),
        [FLOATS] * 20,
    ],
    ids=lambda it: type(it).__name__,
)
def test_plain_data(make: Make, times: list[int], it: Any) -> None:
    content = repr(it)
    wanted = [grown(n, it.copy() if type(it) in (list, dict, bytearray) else it) for n in range(N)]
    assert list(make().map(grown, range(N), repeat(it))) == wanted
    assert times == [1]
    assert repr(it) == content


def filled(n: int, array: Any, other: Any) -> tuple[float, bool, bool]:
    seen, same = float(array[0]), array is other
    if array.flags.writeable:
        array[:] = n + 1
    return seen, array.flags.writeable, same


@pytest.mark.parametrize("writeable", [False, True])
def test_arrays(make: Make, times: list[int], writeable: bool) -> None:
    array = np.full(100_000, 7.0)
    array.flags.writeable = writeable
    found = make().map(filled, range(N), repeat(array), repeat(array))
    assert list(found) == [(7.0, writeable, True)] * N
    other = np.full(100_000, 7.0)
    assert list(make().map(filled, range(N), repeat(array), repeat(other)))[-1][2] is False
    assert times == [1, 1]


def test_results_may_be_what_was_given(make: Make, times: list[int]) -> None:
    for n, found in enumerate(make().map(Pair, range(N), repeat(FLOATS))):
        assert found == (n, FLOATS)
    assert list(make().map(list.copy, [FLOATS] * N)) == [FLOATS] * N
    assert times == [1, 1]


def pair_of(args: tuple[int, Table]) -> tuple[int, int]:
    return change(*args)


def change_all(n: int, *tables: Table) -> list[int]:
    return [n, *(table.change() for table in tables)]


def test_several_of_them_in_any_place(make: Make, times: list[int]) -> None:
    pool, one, two = make(), Table(), Table()
    assert list(pool.map(pair_of, [(n, one) for n in range(N)])) == [(n, CHANGED) for n in range(N)]
    assert list(pool.map(Table.change, [one] * N)) == [CHANGED] * N
    given = product(range(N), [one, two])
    assert list(pool.starmap(change, given)) == [(n, CHANGED) for n in range(N) for _ in "12"]
    mixed = [(n, one, two) if n % 3 else (n, two) if n % 2 else (n,) for n in range(1, N)]
    wanted = [[args[0]] + [CHANGED] * (len(args) - 1) for args in mixed]
    assert list(pool.starmap(change_all, mixed)) == wanted
    assert times == [1, 1, 2, 3]


def other_first(n: int, table: Any) -> tuple[int, int]:
    return n, len(table)


def test_an_item_may_have_another_one(make: Make, times: list[int]) -> None:
    items = [(n, FLOATS[:n] if n in (0, 5, 70) else FLOATS) for n in range(N)]
    assert list(make().starmap(other_first, items)) == [(n, len(it)) for n, it in items]
    assert times == [2]  # there is one of none


def add(own: Any, table: Table, more: Any = None) -> Any:
    if type(own) is list:
        own.append(len(own))
    return own, table.change(), more


@pytest.mark.parametrize("kind", [lambda n: [n], lambda n: ([n], {"a": n}), lambda n: np.arange(n)])
def test_small_plain_data_of_its_own_stays_with_its_item(
    make: Make, times: list[int], kind: Callable[[int], Any]
) -> None:
    items = list(map(kind, range(N)))
    before = repr(items)
    wanted = [add(kind(n), Table(), "more") for n in range(N)]
    found = list(make().map(add, items, repeat(Table()), repeat("more")))
    assert repr(found) == repr(wanted)
    assert times == [1]
    assert repr(items) == before


def holds(own: Any, table: dict[str, Any]) -> list[str]:
    return [key for key, value in table.items() if value is own or value is own[0]]


def test_what_an_item_has_of_it_is_one_thing(make: Make, times: list[int]) -> None:
    pool, table = make(), {f"key {n}": [n] * 300 for n in range(200)}
    for items in (list(table.values()), [(it,) for it in table.values()]):
        assert list(pool.map(holds, items, repeat(table))) == [[key] for key in table]
    rows = {f"key {n}": np.arange(300.0) for n in range(200)}
    assert list(pool.map(holds, rows.values(), repeat(rows))) == [[key] for key in rows]
    assert not times


class Node:
    def __init__(self, table: Table) -> None:
        self.table = table


def is_its(node: Node, table: Table) -> bool:
    return node.table is table


def test_what_is_more_than_plain_data_goes_with_its_item(make: Make, times: list[int]) -> None:
    table = Table()
    assert all(make().map(is_its, [Node(table) for _ in range(N)], repeat(table)))
    assert not times


def buffers() -> Iterator[Any]:
    one = np.zeros(10_000)
    for n in range(1100):
        one[:] = n
        yield one


def first_of(array: Any, _: object = None) -> float:
    return float(array[0])


def test_an_array_that_is_filled_again_for_each_item_is_what_it_was(
    make: Make, times: list[int]
) -> None:
    pool = make()
    # All are taken before the first is pickled, a window, or one by one.
    assert list(pool.map(first_of, buffers())) == [1099] * 1100
    assert times == [1]
    last = [n // 256 * 256 + 255 if n < 256 else n for n in range(1024)]
    found = pool.map(first_of, buffers(), repeat(0), buffersize=1024)
    assert [next(found) for _ in range(1024)] == last
    found.close()  # type: ignore[attr-defined]
    assert list(pool.map(first_of, buffers(), range(40), chunksize=1)) == list(range(40))
    assert times == [1]


def test_what_is_changed_after_the_call_is_as_it_was(
    make: Make, monkeypatch: pytest.MonkeyPatch, times: list[int]
) -> None:
    for module in (cutter, supply):
        monkeypatch.setattr(module, "SEGMENT_ITEMS", 64)
    pool, table, items = make(), [0] * 50_000, [[n] for n in range(1000)]
    found = pool.map(both, items, repeat(table))
    table[:] = [1] * 10
    for it in items:
        it.clear()
    assert list(found) == [(n, 50_000) for n in range(1000)]
    assert times == [1]


def both(own: list[int], table: list[int]) -> tuple[int, int]:
    return own[0], len(table)


class Stays:
    def __reduce__(self) -> Any:
        raise TypeError("stays here")


class Comes:
    """Cannot be restored."""

    def __init__(self) -> None:
        self.much = dict(WORDS)

    def __setstate__(self, state: object) -> None:
        raise OSError("not here")


def test_what_cannot_be_pickled_fails_as_in_a_call(make: Make, times: list[int]) -> None:
    pool = make()
    _, wanted = drained(pool.map(other_first, [0], repeat([*FLOATS, Stays()])), SerializationError)
    found, error = drained(
        pool.map(other_first, range(N), repeat([*FLOATS, Stays()])), SerializationError
    )
    assert (found, str(error)) == ([], str(wanted))
    assert "stays here" in str(error)
    assert not times


def test_what_cannot_be_restored_fails_the_item(make: Make, times: list[int]) -> None:
    found, error = drained(make().map(other_first, range(N), repeat(Comes())), SerializationError)
    assert found == []
    assert "not here" in str(error)
    assert times == [1]


def test_what_an_item_raises_names_it(make: Make, times: list[int]) -> None:
    items = [(7, FLOATS)] * 50 + [("7", FLOATS)] + [(7, FLOATS)] * 49
    found, error = drained(make().starmap(index_of, items), IndexError)
    assert found == [10.5] * 50
    assert "item 50 of its map" in str(error.__cause__)
    assert times == [1]


def index_of(n: Any, table: list[float]) -> float:
    if type(n) is str:
        raise IndexError(n)
    return table[n]


def noted(n: int, table: Table) -> tuple[int, int]:
    return note(n), table.change()


def test_a_worker_dies(make: Make, times: list[int]) -> None:
    pool = make(3)
    during.update({n: die_once(n) for n in (0, 60)})
    assert list(pool.map(noted, range(N), repeat(Table()))) == [(n, CHANGED) for n in range(N)]
    assert (ran[0], ran[60]) == (2, 2)
    assert len(pool.members.dead) == 2
    assert times == [1]


def test_a_journal_finds_each_call(make: Make, times: list[int], tmp_path: Any) -> None:
    found = []
    for _ in range(2):
        pool = make(journal=tmp_path / "run.db")
        found += pool.map(noted, range(N), repeat(Table()))
        pool.shutdown()
    assert found == [(n, CHANGED) for n in range(N)] * 2
    assert set(ran.values()) == {1}
    assert not times
