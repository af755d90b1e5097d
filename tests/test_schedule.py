"""Chunk sizes: every item once, in order, and each schedule as its paper has it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count, pairwise, permutations
from types import SimpleNamespace
from typing import Any

import pytest

from workpool.errors import UsageError
from workpool.layout import Items, Terms
from workpool.pool.mapping import cutter
from workpool.pool.mapping.cutter import Cutter
from workpool.pool.mapping.stretch import TIDY, Stretch
from workpool.pool.mapping.supply import Supply
from workpool.schedule import Schedule, chunk, tickets
from workpool.serializer import Blocks, encode_blocks
from workpool.serializer.code_cache import CodeCache
from workpool.tasks import Segment
from workpool.worker import ranges
from workpool.worker.ranges import GROWTH, Pace, TurnRun


def sizes(schedule: Schedule, items: int, workers: int) -> list[int]:
    chunks = [chunk(schedule, items, workers, i) for i in range(tickets(schedule, items, workers))]
    assert [item for one in chunks for item in one] == list(range(items))
    assert all(chunks)
    return [len(one) for one in chunks]


@pytest.mark.parametrize("schedule", [one for one in Schedule if one is not Schedule.ADAPTIVE])
@pytest.mark.parametrize("items", [0, 1, 2, 7, 100, 1001])
@pytest.mark.parametrize("workers", [1, 2, 8, 2000])
def test_every_item_is_in_one_chunk(schedule: Schedule, items: int, workers: int) -> None:
    assert sum(sizes(schedule, items, workers)) == items


def test_sizes() -> None:
    assert sizes(Schedule.STATIC, 10, 4) == [3, 3, 2, 2]
    assert sizes(Schedule.SELF, 3, 2) == [1, 1, 1]
    assert sizes(Schedule.GUIDED, 100, 4)[:4] == [25, 19, 14, 11]
    assert sizes(Schedule.GUIDED, 100, 4)[-3:] == [1, 1, 1]
    assert sizes(Schedule.FACTORING, 100, 2) == [25, 25, 13, 13, 6, 6, 3, 3, 2, 2, 1, 1]
    trapezoid = sizes(Schedule.TRAPEZOID, 1000, 4)
    assert trapezoid[0] == 125
    steps = {one - other for one, other in pairwise(trapezoid[:-1])}
    assert steps <= {8, 9}


def test_a_share_of_the_last_items_is_one_of_those_that_are_left_now() -> None:
    pace, looks = Pace(), list[int]()

    def look() -> int:
        looks.append(40)
        return 40

    assert pace.share("new", 10**9, 1000, 2, 0, look) == 1
    pace.measured("f", 100, 100e-6, 1e-6)
    chunk = pace.share("f", 10**9, 10**9, 2, 10**9, look)
    assert chunk > 1000
    assert not looks  # there is enough for everybody
    assert pace.share("f", 10**9, 1000, 2, chunk, look) == 40 // (2 * 2)
    assert looks


def test_what_takes_less_than_to_share_it_out_is_not_shared_where_all_of_it_is_short() -> None:
    pace = Pace()
    pace.measured("f", 100, 100e-6, 1e-6)
    assert pace.share("f", 200, 40, 2, 200, lambda: 40) == 50  # more than there are: all of them
    assert pace.share("f", 10**6, 40, 2, 200, lambda: 40) == 40 // (2 * 2)
    pace.measured("long", 1, 1e-3, 1e-6)
    assert pace.share("long", 8, 8, 2, 8, lambda: 8) == 8 // (2 * 2)


def turns(
    monkeypatch: pytest.MonkeyPatch, total: int, item_s: float, take_s: float, ready_s: float
) -> list[list[range]]:
    """Return the chunks of each turn of a worker that is alone, by what its steps take."""
    chunks, now_s = list[range](), [1.0]
    monkeypatch.setattr(ranges, "monotonic", lambda: now_s[0])
    encoded = encode_blocks(range(total), False)
    assert encoded is not None
    blocks = Blocks(encoded, lambda start, stop: encoded[start:stop])

    def take(count: int) -> range:
        now_s[0] += take_s
        first = chunks[-1].stop if chunks else 0
        chunks.append(range(first, min(first + count, total)))
        return chunks[-1]

    def get(code_id: int) -> Callable[[int], int]:
        now_s[0] += ready_s  # the function reads much, which is looked at, or restored anew
        return abs

    def call_items(function: Any, items: range, *_: bool, **__: bool) -> tuple[list[int], None]:
        now_s[0] += item_s * len(items)
        return [*map(function, items)], None

    runner: Any = SimpleNamespace(call_items=call_items)
    pool: Any = SimpleNamespace(callables=SimpleNamespace(get=get, restores=0))
    descriptor: Any = SimpleNamespace(items=Items(0, 0, total), code=SimpleNamespace(blob_id=1))
    terms = Terms(Schedule.ADAPTIVE, 1, last=False, first=0, total=total)
    pace, found = Pace(), list[list[range]]()
    while not chunks or chunks[-1]:
        before = len(chunks)
        TurnRun(runner, pool, pace, take, descriptor, terms, blocks).run()
        found.append(chunks[before:])
    return found


@pytest.mark.parametrize("ready_s", [5e-3, 0.3])
def test_what_a_chunk_takes_before_its_first_call_is_no_cost_of_its_items(
    monkeypatch: pytest.MonkeyPatch, ready_s: float
) -> None:
    found = turns(monkeypatch, 3000, 1e-7, 0, ready_s)
    assert sum(map(len, found)) < 20  # else there are as many as items


def test_a_turn_is_no_shorter_where_its_chunks_take_long_to_get(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each begins with one item: with the second chunk it would be over again and again."""
    found = turns(monkeypatch, 3000, 1e-3, 0.1, 0)
    assert len(found) < 20


def test_an_adaptive_chunk_lasts_longer_where_it_takes_longer_to_get() -> None:
    pace = Pace()
    item_s, quick_s, slow_s = 1e-4, 2e-6, 5e-5

    def chunks(take_s: float, ready_s: float = 0.0) -> int:
        for _ in range(40):
            pace.measured("f", 10, 10 * item_s, take_s, ready_s)
        return pace.count("f", 10**6, 10**6)

    assert pace.count("f", 10**6, 0) == pace.count("f", 10**6, 5) == 1, "nothing is known of it"
    assert chunks(quick_s) == 20  # 2 ms
    assert pace.count("f", 10**6, 2) == 2 * GROWTH
    assert pace.count("f", 7, 100) == 7
    assert pace.turn_s("f") == pytest.approx(8e-3)
    pace.measured("f", 10, 10 * item_s, 1.0)  # somebody else had the core
    assert pace.count("f", 10**6, 10**6) <= 25
    assert chunks(slow_s) == pytest.approx(200, abs=2)  # 400 times as long
    assert pace.turn_s("f") == pytest.approx(80e-3, rel=0.02)
    assert chunks(1.0) in (499, 500)  # never longer than 50 ms
    assert chunks(quick_s, 1e-2) in (499, 500)
    assert chunks(quick_s, 0.3) == pytest.approx(3000, abs=5)  # but as long as it takes to be ready
    assert chunks(quick_s) == 20
    pace.measured("g", 10, 10 * item_s, quick_s, 0.3)  # which was fetched as well, this once
    assert pace.count("g", 10**6, 10**6) == 20


def test_functions_of_long_ago_are_forgotten() -> None:
    pace, functions = Pace(), range(3 * Pace.MOST)
    for function in functions:
        pace.measured(function, 1, 1e-3, 1e-6)
    known = [function for function in functions if pace.turn_s(function)]
    assert 0 < len(known) <= Pace.MOST
    assert known[-1] == functions[-1]


def stretch_of(items: int) -> Stretch:
    terms = Terms(Schedule.SELF, 2, True, 0, items)
    return Stretch(Segment(1, b"", items, terms), items, None, None, items, True)


def test_what_was_reported_is_not_missing_however_it_is_noted() -> None:
    items = 3 * TIDY
    stretch = stretch_of(items)
    stretch.cover([(0, 2 * TIDY)])
    for item in range(TIDY):
        stretch.cover([(item, item + 1)])
    assert len(stretch.covered) < TIDY
    assert stretch.missing() == [range(2 * TIDY, items)]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_window_is_used_up_with_the_last_of_its_stretches(order: tuple[int, ...]) -> None:
    supply = Supply(None, None, None, None)  # type: ignore[arg-type]
    windows = [[stretch_of(1) for _ in range(3)] for _ in range(3)]
    for window in windows:
        for stretch in window:
            stretch.last = stretch is window[-1]
        supply.stretches += window
    for window in windows[1], windows[0], windows[2]:
        used = [supply.use_up(window[i]) for i in order]
        assert used == [False, False, True]
    assert not supply.stretches


def test_spans_that_do_not_meet_stay_when_they_are_joined() -> None:
    items = 4 * TIDY
    stretch = stretch_of(items)
    for item in range(0, items, 2):
        stretch.cover([(item, item + 1)])
    assert stretch.missing() == [range(item, item + 1) for item in range(1, items, 2)]


def test_deaths_count_where_the_same_items_are_missing() -> None:
    stretch = stretch_of(100)
    assert stretch.count_death([range(10), range(20, 30)]) == 1
    assert stretch.count_death([range(5, 25)]) == 2
    assert stretch.count_death([range(25, 30)]) == 1  # those before are there by now
    assert stretch.count_death([range(20, 25)]) == 1
    assert stretch.count_death([range(25, 30)]) == 1
    assert stretch.count_death([range(29, 31)]) == 2
    assert stretch.count_death([range(30, 40), range(50, 60)]) == 3
    assert stretch.count_death([]) == 0  # who has died had none of them


def test_names() -> None:
    assert Schedule.named("guided") is Schedule.GUIDED
    for wrong in ("dynamic", "", None):
        with pytest.raises(UsageError, match="adaptive"):
            Schedule.named(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds", "sizes"),
    [
        (1e-8, [4096, 65_536, 65_536]),  # numbers
        (1e-6, [4096, 10_000, 10_000, 10_000]),  # objects
        (1e-3, [4096, 256, 256, 256]),  # their own methods pickle them
    ],
)
def test_workers_have_something_soon_and_go_on_while_the_next_items_are_pickled(
    monkeypatch: pytest.MonkeyPatch, seconds: float, sizes: list[int]
) -> None:
    def clock() -> float:
        return seconds * encoded

    def encode(items: Any, *args: Any, **kwargs: Any) -> bytes:
        nonlocal encoded
        encoded += len(items)
        return b""

    encoded = 0
    monkeypatch.setattr(cutter, "monotonic", clock)
    monkeypatch.setattr(cutter, "encode_blocks", encode)
    cutting = Cutter(count().__next__, 2, len, CodeCache(), Schedule.ADAPTIVE)
    uncut, found = cutting.begin([None] * 200_000), []
    while not uncut.ended:
        found += cutting.cut(uncut, large=False) or []
    assert sum(stretch.items for stretch in found) == 200_000
    assert [stretch.items for stretch in found[: len(sizes)]] == pytest.approx(sizes, rel=1e-3)
    assert [stretch.last for stretch in found] == [False] * (len(found) - 1) + [True]
    assert cutting.begin([None] * 200_000, first=False).size == 65_536, "nobody waits for these"


@pytest.mark.parametrize("nbytes", [10, 10_000])  # where 256 have no room in a block
def test_each_worker_finds_items_however_slowly_they_are_pickled(
    monkeypatch: pytest.MonkeyPatch, nbytes: int
) -> None:
    monkeypatch.setattr(cutter, "monotonic", count().__next__)  # each look at it is a second later
    workers = 100
    cutting = Cutter(count().__next__, workers, len, CodeCache(), Schedule.ADAPTIVE)
    uncut, found = cutting.begin([bytes(nbytes + n % 2) for n in range(5000)]), []
    while not uncut.ended:
        found += cutting.cut(uncut, large=False) or []
    sizes = [stretch.items for stretch in found[:-1]]
    assert set(sizes) == ({4096, 4 * workers} if nbytes == 10 else {4 * workers})


class Counted:
    """An item that counts how often it is pickled."""

    times = 0

    def __init__(self, nbytes: int) -> None:
        self.content = bytes(nbytes)

    def __reduce__(self) -> tuple[Any, ...]:
        Counted.times += 1
        return bytes, (self.content,)


@pytest.mark.parametrize("fn", [len, partial(len)])
@pytest.mark.parametrize("nbytes", [10, 1000, 10_000, 20_000])
def test_large_items_are_not_encoded_again_and_again_to_see_how_large_they_are(
    monkeypatch: pytest.MonkeyPatch, nbytes: int, fn: Any
) -> None:
    monkeypatch.setattr(Counted, "times", 0)
    items = [Counted(nbytes) for _ in range(600)]
    cutting = Cutter(count().__next__, 2, fn, CodeCache(), Schedule.ADAPTIVE)
    uncut, found = cutting.begin(items), list[Any]()
    while not uncut.ended:
        cut = cutting.cut(uncut, large=False)
        if cut is None:
            break
        found += cut
    assert (found == []) == (nbytes > 16_000), "better sent one by one"
    assert Counted.times <= cutter.LEAST_BLOCK + sum(stretch.items for stretch in found)


@pytest.mark.parametrize("schedule", [Schedule.ADAPTIVE, Schedule.GUIDED])
@pytest.mark.parametrize("nbytes", [10, 1000, 10_000, 20_000])
def test_larger_items_are_fewer_in_a_block_and_in_a_segment(
    monkeypatch: pytest.MonkeyPatch, schedule: Schedule, nbytes: int
) -> None:
    monkeypatch.setattr(cutter, "SEGMENT_ITEMS", 4096)
    items = [bytes([n % 256]) * nbytes + bytes([n // 256]) for n in range(600)]
    cutting = Cutter(count().__next__, 2, partial(len), CodeCache(), schedule)
    found = cutting.cut(cutting.begin(items), large=False)
    if nbytes > 16_000 or (nbytes > 1000 and schedule is not Schedule.ADAPTIVE):
        assert found is None, "better sent one by one"
        found = cutting.cut(cutting.begin(items), large=True)
    assert found is not None
    restored: list[Any] = []
    for stretch in found:
        (segment,) = stretch.segments
        content, fetched = segment.content, []

        def fetch(start: int, stop: int, content: Any = content, fetched: Any = fetched) -> bytes:
            fetched.append(stop - start)
            return bytes(content[start:stop])

        blocks = Blocks(content[: Blocks.LEAST], fetch)
        for at in range(stretch.items):
            restored += [item for _, some in blocks.pieces(range(at, at + 1)) for item in some]
        assert max(fetched, default=0) <= max(1 << 16, nbytes + 100)
    assert restored == items
