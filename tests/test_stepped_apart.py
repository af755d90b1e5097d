"""Maps whose items, or chunks of a given size, are tasks of their own, step by step."""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from itertools import count, islice
from random import Random
from weakref import ref

import pytest
from stepped_pool import Endless, Make, die_once, drained, during, fail, note, ran

from workpool.errors import TaskLost
from workpool.pool.mapping.source import FEW

rng = Random(1)
orders = pytest.mark.parametrize("unordered", [False, True])


@orders
@pytest.mark.parametrize("chunksize", [1, 7])
@pytest.mark.parametrize("buffersize", [None, 1, 20])
def test_every_item_runs_once_though_a_worker_dies(
    make: Make, unordered: bool, chunksize: int, buffersize: int | None
) -> None:
    pool = make()
    during[25] = die_once(25)
    sizes = {"chunksize": chunksize, "buffersize": buffersize}
    found = list(pool.map(note, range(50), unordered=unordered, **sizes))  # type: ignore[arg-type]
    assert sorted(found) == list(range(50))
    assert unordered or found == list(range(50))
    assert set(ran) == set(range(50))
    assert ran[25] == 2


@orders
def test_a_buffer_is_a_bound(make: Make, unordered: bool) -> None:
    for chunksize, buffersize in (1, 10), (4, 10), (4, 1):
        pool, items, most = make(), Endless(), 0
        sizes = {"chunksize": chunksize, "buffersize": buffersize}
        results = pool.map(note, items, unordered=unordered, **sizes)  # type: ignore[arg-type]
        bound = -(-buffersize // chunksize) * chunksize
        assert items.taken == bound
        for used, _ in enumerate(islice(results, 40)):
            most = max(most, items.taken - used)
        assert most <= bound + chunksize  # whose results are just given
        results.close()


@orders
def test_an_exception_says_which_item_it_is_of(make: Make, unordered: bool) -> None:
    pool = make()
    during[25] = fail
    found, error = drained(pool.map(note, range(50), chunksize=1, unordered=unordered), KeyError)
    assert unordered or found == list(range(25))
    assert error.__cause__.item == 25
    found, error = drained(pool.map(note, range(50), chunksize=10, unordered=unordered), KeyError)
    assert unordered or found == list(range(20))
    assert error.__cause__.item is None


@pytest.mark.parametrize("several", [4, 50])
def test_an_item_is_tried_again_alone(make: Make, several: int) -> None:
    def fail_once() -> None:
        del during[3]
        fail()

    during[3] = fail_once
    fn = partial(note)  # which a map of a few items would otherwise share out
    assert [*make().with_options(retries=1).map(fn, range(several))] == [*range(several)]
    assert ran == {**dict.fromkeys(range(several), 1), 3: 2}


@orders
def test_it_ends_with_its_time(make: Make, unordered: bool) -> None:
    pool = make()
    pool.driver.step = bool  # the workers do nothing
    results = pool.map(note, count(), chunksize=1, buffersize=5, timeout=0.01, unordered=unordered)
    with pytest.raises(FutureTimeout):
        next(results)
    pool.driver.step = pool.step
    assert pool.submit(note, "later").result() == "later"
    assert set(ran) == {"later"}  # the others were cancelled


@orders
@pytest.mark.parametrize("told", [True, False])
def test_who_iterates_learns_what_was_lost(
    make: Make, monkeypatch: pytest.MonkeyPatch, unordered: bool, told: bool
) -> None:
    pool = make()
    pool.driver.step = bool
    results = pool.map(note, range(3), chunksize=1, unordered=unordered)
    for batch in tuple(pool.driver._rows.values()):
        pool.driver._published.withdraw(batch)
    pool.driver._backlog.tasks.clear()
    pool.driver.waits._patience_s = 0.01
    core, lose = pool._core, pool._core.lose
    monkeypatch.setattr(core, "lose", lose if told else lambda *_: None)  # another thread does
    assert drained(results, TaskLost)[0] == []
    assert core._pending == 0


def test_each_of_a_few_items_is_a_task_if_that_costs_little(make: Make) -> None:
    pool, few = make(), 2 * FEW
    for fn, items, alone in (
        (note, range(few), True),
        (note, [1] * few, True),
        (note, range(few + 1), False),
        (partial(note), range(few), False),  # which is pickled with each
    ):
        results = pool.map(fn, items)
        assert (pool._core._pending == len(items)) is alone
        assert list(results) == list(items)


@orders
def test_who_iterates_has_the_results_for_himself(make: Make, unordered: bool) -> None:
    results = make().map(set, [[n] for n in range(5)], chunksize=1, unordered=unordered)
    assert [result() for result in map(ref, results)] == [None] * 5


def of_a_module(item: int) -> float:
    return item * rng.random()


def test_one_generator_for_all_items_is_warned_of(make: Make) -> None:
    pool, draw = make(), Random(1).uniform
    assert list(pool.map(of_a_module, [0])) == [0], "what a module has is each worker's own"
    for call in (pool.map, pool.reduce):
        with pytest.warns(UserWarning, match="starts with its generator"):
            call(draw, [0, 1], [2, 3])
