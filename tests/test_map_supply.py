"""The items of a map on their way: pickled as workers come near them, and no more of them kept."""

from __future__ import annotations

import pytest
from harness import run_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.either, pytest.mark.usefixtures("claim")]


def test_a_large_buffer_is_a_bound() -> None:
    script = """
        from itertools import islice
        from workpool import WorkPool

        taken = 0

        def numbers():
            global taken
            while True:
                taken += 1
                yield taken

        with WorkPool() as pool:
            results = pool.map(abs, numbers(), buffersize=1_000_000)
            for _ in range(6):
                count = sum(1 for _ in islice(results, 100_000))
            print(taken <= 600_000 + 1_000_000)
    """
    assert run_ranks(3, script).stdout == "True\n"


def test_a_long_map_keeps_nothing_of_what_was_used() -> None:
    script = """
        import time
        from workpool import WorkPool, tasks

        alive = set()

        class Task(tasks.Task):
            __slots__ = ()

            def __init__(self, *args, **options):
                super().__init__(*args, **options)
                alive.add(id(self))

            def __del__(self):
                alive.discard(id(self))

        with WorkPool() as pool:
            pool.map.__globals__["Core"].take_turn.__globals__["Task"] = Task
            most = 0
            for n in pool.map(lambda n: time.sleep(0.001), range(3_000)):
                most = max(most, len(alive))
            print(0 < most <= 16)
    """
    assert run_ranks(3, script).stdout == "True\n"


def test_a_map_that_is_left_keeps_no_results() -> None:
    script = """
        import gc
        import time
        from workpool import WorkPool
        from workpool.turns import Part

        def content(n):
            return n.to_bytes(4, "big") * 25_000

        with WorkPool() as pool:
            gc.collect()
            gc.disable()
            for _ in range(3):
                results = pool.map(content, range(300))
                next(results)
                time.sleep(0.3)  # others come
                del results
            assert pool.submit(abs, -1).result() == 1
            end = time.monotonic() + 20
            while any(type(it) is Part for it in gc.get_objects()):  # the last are being dropped
                assert time.monotonic() < end
                time.sleep(0.01)
    """
    run_ranks(3, script)


def test_a_buffer_is_not_filled_after_shutdown() -> None:
    script = """
        import itertools
        from workpool import WorkPool

        def same(item):
            return item

        with WorkPool(rows=64) as pool:
            endless = pool.map(same, itertools.count(), buffersize=2048)
            found = [next(endless) for _ in range(3)]
            ends = pool.map(same, iter(range(2000)), buffersize=2048)
        with WorkPool(rows=128) as other:  # in a table of its own: that of the first is closed
            assert other.submit(same, 1).result() == 1
            try:
                for value in endless:
                    found.append(value)
            except RuntimeError as error:
                assert "after shutdown" in str(error), error
            assert found == list(range(2048)), len(found)
            assert list(ends) == list(range(2000))
    """
    run_ranks(3, script)


def test_what_cannot_be_pickled_fails_in_its_place_of_a_buffer() -> None:
    script = """
        import itertools, threading, time
        from workpool import WorkPool
        from workpool.job import entry
        from workpool.errors import SerializationError

        def first(item, *others):
            return item

        def items(bad):
            for n in range(20_000):
                yield threading.Lock() if n == bad else n

        def drain(mapped):
            found = []
            try:
                for value in mapped:
                    found.append(value)
            except SerializationError as error:
                return found, str(error)
            raise AssertionError("no error")

        with WorkPool() as pool:
            message = drain(pool.map(first, items(0)))[1]
            assert "argument 1 of 1 of type _thread.lock" in message, message
            # In the first window, in another one that is sent at once, in one that is sent later.
            for bad in (0, 700, 1024, 3000, 9000, 19_999):
                found, error = drain(pool.map(first, items(bad), buffersize=4096))
                assert found == list(range(bad)) and error == message, (bad, len(found), error)
                two = pool.map(first, range(20_000), items(bad), buffersize=4096)
                found, error = drain(two)
                assert found == list(range(bad)), (bad, len(found))
                assert "argument 2 of 2 of type _thread.lock" in error, error
            assert list(pool.map(first, iter(range(9000)), buffersize=4096)) == list(range(9000))
            pool.shutdown()
            end = time.monotonic() + 20
            while any(driver.outstanding for driver in entry.current().tables.drivers):
                assert time.monotonic() < end  # whoever resolved the last may have it in hand still
    """
    run_ranks(3, script)


@pytest.mark.parametrize("ranks", [1, 3])
def test_items_of_a_long_list_are_pickled_as_workers_come_near_them(ranks: int) -> None:
    """So that they are not there twice, and the first are computed while others are pickled."""
    script = """
        import threading, time
        from workpool import WorkPool
        from workpool.pool.mapping import cutter, supply

        class Item:
            pickled = 0

            def __init__(self, n):
                self.n = n

            def __reduce__(self):
                Item.pickled += 1
                return int, (self.n,)

        def slowly(n):
            time.sleep(2e-5)
            return n

        cutter.SEGMENT_ITEMS = supply.SEGMENT_ITEMS = cutter.FIRST_ITEMS = 512
        items = [Item(n) for n in range(6_000)]
        with WorkPool() as pool:
            ahead, most = [], 0
            mapped = pool.map(slowly, items)
            twice = cutter.LEAST_BLOCK  # to see how large they are
            assert Item.pickled <= 1024 + twice, Item.pickled
            for at, n in enumerate(mapped):
                assert n == at
                ahead.append(Item.pickled - at)
            assert max(ahead) < 4_000, max(ahead)
            assert Item.pickled == len(items) + twice
            # Nobody iterates.
            unread = pool.map(slowly, items)
            deadline = time.monotonic() + 60
            while Item.pickled < 2 * len(items):
                assert time.monotonic() < deadline, Item.pickled
                time.sleep(0.01)
            assert list(unread) == list(range(6_000))
            many = [pool.map(slowly, items) for _ in range(2)]
            total = pool.reduce(slowly, items)
            assert total == sum(range(6_000)), total
            left = pool.map(slowly, items)
            del left
            late = pool.map(slowly, items)
        for mapped in (*many, late):
            assert list(mapped) == list(range(6_000))
    """
    run_ranks(ranks, script)


@pytest.mark.parametrize("nbytes", [10, 1000, 8000])
def test_no_more_items_are_taken_than_the_buffer_holds_however_large_they_are(nbytes: int) -> None:
    script = f"""
        from workpool import WorkPool

        def items():
            global taken
            for taken in range(1, 30_001):
                yield bytes({nbytes})

        with WorkPool() as pool:
            most = 0
            for used, length in enumerate(pool.map(len, items(), buffersize=4096)):
                most = max(most, taken - used)
                assert length == {nbytes}
            assert used == 29_999
            assert 2000 < most <= 4096, most
    """
    run_ranks(3, script)


def test_what_cannot_be_pickled_late_in_a_list_fails_in_its_place() -> None:
    script = """
        import itertools, threading
        from workpool import WorkPool
        from workpool.errors import SerializationError
        from workpool.pool.mapping import cutter, supply

        def first(item, *others):
            return item

        cutter.SEGMENT_ITEMS = supply.SEGMENT_ITEMS = cutter.FIRST_ITEMS = 512
        with WorkPool() as pool:
            for bad in (511, 512, 700, 1500, 9_999):
                items = [threading.Lock() if n == bad else n for n in range(10_000)]
                for mapped in (pool.map(first, items), pool.map(first, range(10_000), items)):
                    found = []
                    try:
                        for value in mapped:
                            found.append(value)
                        raise AssertionError(bad)
                    except SerializationError as error:
                        assert found == list(range(bad)), (bad, len(found))
                        assert "of type _thread.lock" in str(error), error
                try:
                    pool.reduce(first, items)
                    raise AssertionError(bad)
                except SerializationError as error:
                    assert "cannot pickle" in str(error), error
            assert list(pool.map(first, range(1000))) == list(range(1000))
    """
    run_ranks(3, script)


def test_items_that_find_no_room_in_the_arena_travel_once() -> None:
    script = """
        import time
        from workpool import WorkPool
        from workpool.job import entry

        def supplied(pool):
            \"\"\"Return a list that gets the length of each piece of a stream.\"\"\"
            (driver,) = entry.current().tables.drivers
            store, found = driver._store, []
            supply = store.supply
            def count(*args):
                piece = supply(*args)
                if piece is not None and piece.position < piece.total_nbytes:
                    found.append(piece.extent.nbytes)
                return piece
            store.supply = count
            return found

        def length(text):
            limit = time.perf_counter() + 50e-6
            while time.perf_counter() < limit:
                pass
            return len(text)

        texts = [f"{n:0200}" for n in range(10_000)]
        with WorkPool(arena_nbytes=1 << 20) as pool:  # not for half of them
            pieces = supplied(pool)
            for schedule in ("adaptive", "guided"):
                assert list(pool.map(length, texts, schedule=schedule)) == [200] * 10_000
                nbytes = sum(pieces)
                assert 2_000_000 <= nbytes < 4_500_000, (schedule, nbytes)  # once to each worker
                pieces.clear()
        numbers = [10**40 + n for n in range(500_000)]  # many segments
        with WorkPool(arena_nbytes=32 << 20) as pool:  # for two of them at the same time
            pieces = supplied(pool)
            assert list(pool.map(abs, numbers)) == numbers
            assert sum(pieces) < 5_000_000, sum(pieces)  # of more than 9 million
    """
    run_ranks(3, script)
