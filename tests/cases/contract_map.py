"""``map``: its order, its errors, what it reads and when."""

from __future__ import annotations

import itertools
import operator
import sys
import threading
import time
import weakref
from concurrent.futures import TimeoutError as FutureTimeout

from runner import PATIENCE_S, SHARED, STDLIB_MAP, Skip, drain, hold, needs, only, raises, until

from __main__ import Level, Refused, alive, change_level, fail_at, read_level, same, touch


def case_map_keeps_the_order(pool):
    assert list(pool.map(same, range(200))) == list(range(200))


@needs(2)
def case_map_keeps_the_order_when_the_first_ends_last(pool, gate):
    mapped = pool.map(lambda n: n if n else hold(gate.place, value=n), range(20))
    done = pool.submit(same, 1)
    gate.wait_for(1)
    done.result()
    gate.open()
    assert list(mapped) == list(range(20))


def case_map_of_a_few_items_yields_each_when_it_is_done(pool, gate):
    place = gate.place

    def quick_but_for_two(n):
        return hold(place, value=n) if n == 2 else n

    for _ in range(2):  # the second time, it is known how quick it is
        assert list(pool.map(quick_but_for_two, [0, 1, 0])) == [0, 1, 0]
    mapped = pool.map(quick_but_for_two, [0, 1, 2])
    assert [next(mapped), next(mapped)] == [0, 1]
    gate.open()
    assert next(mapped) == 2


def case_map_lets_go_of_what_it_has_yielded(pool):
    for options in ({}, {"chunksize": 1}, {"chunksize": 4}):
        for value in pool.map(lambda n: {n}, range(10), **options):
            gone = weakref.ref(value)
            del value
            until(lambda gone=gone: gone() is None, "the value to be freed")


def case_map_with_several_iterables_of_uneven_length(pool):
    assert list(pool.map(pow, [2, 3, 4], [5, 6])) == [32, 729]
    assert list(pool.map(operator.add, itertools.count(), [1, 2])) == [1, 3]
    assert list(pool.map(lambda a, b, c: a + b + c, "abc", "defg", "hi")) == ["adh", "bei"]


@only("workpool", "ThreadPoolExecutor has no starmap")
def case_starmap(pool):
    pairs = [(2, 5), [3, 6], "45"]
    ways = ({}, {"chunksize": 1}, {"chunksize": 2}, {"buffersize": 2}, {"schedule": "static"})
    for options in ways:
        found = pool.starmap(lambda a, b: int(a) ** int(b), iter(pairs), **options)
        assert list(found) == [32, 729, 1024], options
        many = pool.starmap(divmod, zip(range(3000), itertools.repeat(7)), **options)
        assert list(many) == [divmod(n, 7) for n in range(3000)], options
    assert list(pool.starmap(dict, [(), ()])) == [{}, {}]
    assert list(pool.starmap(pow, [])) == []
    assert list(pool.with_options(retries=1).starmap(pow, [(2, 3)])) == [8]
    with raises(TypeError):
        pool.starmap(pow, [(1, 2), 3])
    with raises(TypeError):
        list(pool.starmap(pow, [(1, 2), (1, 2, 3, 4)]))


def case_map_over_nothing(pool):
    assert list(pool.map(same, [])) == []
    assert list(pool.map(pow, [1], [])) == []
    assert list(pool.map(same)) == []
    assert list(pool.map(same, [], chunksize=10)) == []


def case_map_of_what_cannot_be_called_fails_with_its_items(pool):
    for it in (3, None):
        assert list(pool.map(it, [])) == []
        for items in ([1], range(100)):
            with raises(TypeError) as caught:
                list(pool.map(it, items))
            assert str(caught[0]).endswith("object is not callable"), caught[0]


def case_map_with_chunks(pool):
    for chunksize in (1, 2, 7, 99, 100, 1000):
        assert list(pool.map(same, range(100), chunksize=chunksize)) == list(range(100))


@only("workpool", STDLIB_MAP)
def case_map_refuses_a_chunksize_below_one_at_the_call(pool):
    for chunksize in (0, -1):
        with raises(ValueError):
            pool.map(same, [1], chunksize=chunksize)
    with raises(TypeError):
        pool.map(same, [1], chunksize=1.5)


def case_map_reads_its_iterables_at_the_call(pool):
    read: list[int] = []
    mapped = pool.map(same, (read.append(n) or n for n in range(50)))  # type: ignore[func-returns-value]
    assert read == list(range(50))
    assert list(mapped) == read


def case_map_runs_though_nobody_iterates(pool, tmp):
    pool.map(touch, itertools.repeat(str(tmp)), [f"ran-{n}" for n in range(10)])
    until(lambda: len(list(tmp.glob("ran-*"))) == 10, "ten tasks")


def case_map_lets_the_error_of_its_iterable_out_at_the_call(pool):
    def broken():
        yield 1
        raise KeyError("broken")

    with raises(KeyError):
        pool.map(same, broken())
    alive(pool)


def case_map_with_an_exception_in_the_middle(pool):
    for chunksize in (1, 5):
        mapped = pool.map(fail_at, range(20), itertools.repeat(7), chunksize=chunksize)
        given: list[int] = []
        with raises(Refused) as caught:
            drain(mapped, given)
        assert caught[0].code == 7
        assert given == list(range(7)) or (chunksize == 5 and given == list(range(5)))
        assert list(mapped) == []
    alive(pool)


@only("workpool", SHARED)
def case_map_says_which_item_has_failed(pool):
    views = [pool, pool.with_options(retries=1)]
    for view in views:
        with raises(Refused) as caught:
            list(view.map(fail_at, range(2000), itertools.repeat(1203)))
        remote = caught[0].__cause__
        assert remote.item == 1203, remote
        assert str(remote).endswith(", item 1203 of its map"), remote
    with raises(Refused) as caught:
        list(pool.map(fail_at, range(20), itertools.repeat(7), chunksize=5))
    assert caught[0].__cause__.item is None
    assert pool.submit(fail_at, 7, 7).exception().__cause__.item is None


@only("workpool", SHARED)
def case_a_result_of_a_map_that_cannot_be_pickled_is_named_alone(pool):
    from workpool.errors import SerializationError

    for items in (range(1), range(100)):
        with raises(SerializationError) as caught:
            list(pool.map(lambda _: threading.Lock(), items))
        assert "which is of type _thread.lock" in str(caught[0]), caught[0]
        assert "of type list" not in str(caught[0].__cause__), caught[0].__cause__


def case_map_with_timeout(pool, gate):
    mapped = pool.map(lambda n: hold(gate.place, n) if n else n, range(3), timeout=0.2)
    given: list[int] = []
    with raises(FutureTimeout):
        drain(mapped, given)
    assert given in ([], [0])
    gate.open()
    alive(pool)
    assert list(pool.map(same, range(3), timeout=PATIENCE_S)) == [0, 1, 2]


def case_map_closed_early_drops_what_has_not_started(make, gate):
    pool = make()
    mapped = pool.map(lambda n: hold(gate.place, n) if n else n, range(500))
    start = time.monotonic()
    assert next(mapped) == 0
    assert time.monotonic() - start < PATIENCE_S, "a result waits for the next item"
    gate.wait_for(1)
    mapped.close()
    gate.open()
    pool.shutdown()
    assert len(gate.entered()) < 499


def case_map_of_many_small_tasks(pool):
    assert sum(pool.map(same, range(5000))) == sum(range(5000))
    assert sum(pool.map(same, range(50_000), chunksize=500)) == sum(range(50_000))


def case_two_maps_at_the_same_time(pool):
    first, second = pool.map(same, range(100)), pool.map(operator.neg, range(100))
    assert list(zip(first, second, strict=True)) == [(n, -n) for n in range(100)]


def has_buffersize(pool):
    return hasattr(pool, "accumulator") or sys.version_info >= (3, 14)


def case_map_with_buffersize_keeps_the_order(pool):
    if not has_buffersize(pool):
        raise Skip(STDLIB_MAP)
    for buffersize in (1, 2, 7, 1000):
        assert list(pool.map(same, range(100), buffersize=buffersize)) == list(range(100))
        for chunksize in (2, 5):
            chunks = pool.map(same, range(12), chunksize=chunksize, buffersize=buffersize)
            assert list(chunks) == list(range(12))
    assert list(pool.map(same, [], buffersize=2)) == []


def case_map_goes_on_after_a_shutdown_that_does_not_wait(make):
    for wait in (False, True):
        pool = make()
        mapped = pool.map(lambda n: time.sleep(1e-4) or n, range(2_000))
        pool.shutdown(wait=wait)
        assert list(mapped) == list(range(2_000))


def case_map_with_buffersize_submits_nothing_after_shutdown(make):
    for buffersize in (4, 2000):
        with make() as pool:
            if not has_buffersize(pool):
                raise Skip(STDLIB_MAP)
            mapped = pool.map(same, range(20_000), buffersize=buffersize)
            assert next(mapped) == 0
        with raises(RuntimeError):
            list(mapped)


def case_map_with_buffersize_reads_no_further_ahead(pool):
    if not has_buffersize(pool):
        raise Skip(STDLIB_MAP)
    for buffersize in (1, 4, 16):
        read: list[int] = []
        numbers = (read.append(n) or n for n in itertools.count())  # type: ignore[func-returns-value]
        mapped = pool.map(same, numbers, buffersize=buffersize)
        assert len(read) <= buffersize
        for n in range(40):
            assert next(mapped) == n
            assert len(read) <= n + 1 + buffersize
        mapped.close()
    alive(pool)


def case_map_refuses_a_wrong_buffersize_at_the_call(pool):
    if not has_buffersize(pool):
        raise Skip(STDLIB_MAP)
    for buffersize in (0, -1):
        with raises(ValueError) as caught:
            pool.map(same, [1], buffersize=buffersize)
        assert "buffersize must be None or > 0" in str(caught[0])
    for buffersize in (1.5, "2"):
        with raises(TypeError) as caught:
            pool.map(same, [1], buffersize=buffersize)
        assert "buffersize must be an integer or None" in str(caught[0])


@only("workpool", "others take whatever is given")
def case_map_refuses_a_wrong_timeout_and_a_wrong_order_at_the_call(pool):
    for options in ({"timeout": "5"}, {"timeout": float("nan")}, {"unordered": "no"}):
        ((name, value),) = options.items()
        with raises(ValueError) as caught:
            pool.map(same, [1], **options)
        assert f"{name}={value!r}: give " in str(caught[0])
    assert list(pool.map(same, [1], timeout=2**31, unordered=1)) == [1]


@only("workpool", "threads share their objects")
def case_map_items_see_what_the_function_changes(pool):
    pairs = [(read_level, n) for n in range(100)]
    assert list(pool.starmap(change_level, pairs)) == list(range(100))
    assert list(pool.map(lambda n: change_level(read_level, n), range(100))) == list(range(100))


@needs(2)
@only("workpool", "threads share their objects")
def case_map_objects_see_what_the_function_changes(pool):
    plain = [(int, 0)] * 600  # which have nothing in common with the function
    pairs = plain + [(Level(), n) for n in range(300)]
    expected = [0] * 600 + list(range(300))
    assert list(pool.starmap(change_level, pairs)) == expected
    assert list(pool.starmap(change_level, iter(pairs), buffersize=1024)) == expected
    assert pool.reduce(change_level, *zip(*pairs, strict=True)) == sum(expected)
