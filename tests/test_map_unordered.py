"""``map(unordered=True)``: the results as they are there, and in all else what ``map`` promises."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import run_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.either, pytest.mark.usefixtures("claim")]


@pytest.mark.parametrize("ranks", [1, 3])
def test_everything_comes_once(ranks: int) -> None:
    script = """
        from workpool import WorkPool

        def same(item):
            return item

        large = [bytes([n]) * 300_000 for n in range(40)]
        numbers = [float(n) for n in range(150_000)]  # more than one segment
        ways = {}, {"chunksize": 7}, {"buffersize": 100}, {"buffersize": 2000}
        with WorkPool() as pool:
            for way in (*ways, {"schedule": "static"}, {"schedule": "guided"}):
                for items in (range(0), [5], range(5, 3000, 7), [(1, 2)] * 70, large):
                    found = list(pool.map(same, items, unordered=True, **way))
                    assert sorted(found) == list(items), (way, len(items))
            assert sorted(pool.map(same, numbers, unordered=True)) == numbers
            window = pool.map(same, iter(numbers), buffersize=5000, unordered=True)
            assert sorted(window) == numbers
            pairs = [(n, 2) for n in range(100)]
            assert sorted(pool.starmap(pow, pairs, unordered=True)) == [n * n for n, _ in pairs]
            careful = pool.with_options(retries=1)
            assert sorted(careful.map(same, range(50), unordered=True)) == list(range(50))
    """
    run_ranks(ranks, script)


def test_one_that_takes_long_holds_up_no_other(tmp_path: Path) -> None:
    script = """
        import sys
        import time
        from pathlib import Path
        from workpool import WorkPool

        used = Path(sys.argv[1], "used")

        def wait(n):  # the first one: until all others are used
            while n == 0 and not used.exists():
                time.sleep(0.001)
            return n

        with WorkPool() as pool:
            for items, way in [
                (range(12), {}),
                (range(1000), {"schedule": "self"}),
                ([*range(9000)], {"schedule": "self", "buffersize": 4_000_000}),
                (range(30), {"buffersize": 4}),
                (range(30), {"chunksize": 1}),
            ]:
                used.unlink(missing_ok=True)
                results = pool.map(wait, items, unordered=True, **way)
                others = [next(results) for _ in items[1:]]
                assert sorted(others) == list(items[1:]), way
                used.touch()
                assert list(results) == [0]
    """
    run_ranks(3, script, str(tmp_path))


def test_a_buffer_is_a_bound_and_is_filled_again(tmp_path: Path) -> None:
    script = """
        import sys
        import time
        from itertools import islice
        from pathlib import Path
        from workpool import WorkPool

        used = Path(sys.argv[1], "used")
        taken = 0

        def texts():
            global taken
            while True:
                taken += 1
                yield taken, "x" * 1000  # windows of several segments

        def number(n, text):  # one of the first: until many others are used
            while n == 25 and not used.exists():
                time.sleep(0.001)
            return n

        with WorkPool() as pool:
            for buffersize in (7, 2000):
                used.unlink(missing_ok=True)
                taken, found = 0, []
                results = pool.starmap(number, texts(), buffersize=buffersize, unordered=True)
                for n in islice(results, 3000):
                    found.append(n)
                    assert taken <= len(found) + buffersize, (taken, len(found), buffersize)
                assert 25 not in found
                used.touch()
                assert 25 in results
                results.close()
    """
    run_ranks(3, script, str(tmp_path))


def test_what_fails_says_which_item_it_was_and_ends_the_map() -> None:
    script = """
        import pytest
        from workpool import WorkPool

        def inverse(n):
            return 1 / n

        with WorkPool() as pool:
            for before, after, way in [
                (5, 3, {}),
                (90_000, 1000, {}),
                (3000, 9000, {"buffersize": 2000}),
                (50, 20, {"buffersize": 10}),
            ]:
                found, items = [], [1] * before + [0] + [1] * after
                results = pool.map(inverse, items, unordered=True, **way)
                with pytest.raises(ZeroDivisionError) as raised:
                    found.extend(results)
                assert raised.value.__cause__.item == before, way
                assert list(results) == []
            with pytest.raises(TimeoutError):
                list(pool.map(pow, [2], [100], timeout=-1, unordered=True))
            for way in ({}, {"unordered": True}):  # more seconds than a lock can wait
                forever = float("inf")
                assert list(pool.map(pow, [2], [3], timeout=forever, chunksize=1, **way)) == [8]
            chunks = pool.map(inverse, [1, 0], chunksize=2, unordered=True)
            with pytest.raises(ZeroDivisionError) as raised:
                list(chunks)
            assert raised.value.__cause__.item is None
            assert list(pool.map(inverse, [2], unordered=True)) == [0.5]
    """
    run_ranks(3, script)


def test_what_is_not_used_is_not_run() -> None:
    script = """
        import time
        from workpool import WorkPool

        def rest(n):
            time.sleep(0.02 * (n > 0))
            return n

        with WorkPool() as pool:
            for way in ({}, {"chunksize": 1}):
                results = pool.map(rest, range(2000), unordered=True, **way)
                assert next(results) >= 0
                del results
        assert sum(stats.tasks for stats in pool.stats()) < 1000
    """
    run_ranks(3, script)


def test_a_callback_may_iterate() -> None:
    script = """
        import threading
        from workpool import WorkPool

        def add_up(future):
            for way in ({}, {"chunksize": 2}, {"buffersize": 2}):
                found.append(sum(pool.map(abs, range(5), unordered=True, **way)))
            ended.set()

        found, ended = [], threading.Event()
        with WorkPool() as pool:
            pool.submit(abs, -1).add_done_callback(add_up)
            assert ended.wait(30)
        assert found == [10, 10, 10]
    """
    run_ranks(3, script)


def test_a_journal_gives_what_it_has_first(tmp_path: Path) -> None:
    script = """
        import sys
        from pathlib import Path

        import pytest
        from workpool import WorkPool

        place = Path(sys.argv[1])

        def square(n):
            if n % 3:
                with open(place / "ran", "a") as file:
                    file.write(".")
            return n * n

        known = [n * n for n in range(0, 9000, 3)]
        with WorkPool(journal=place / "run.db") as pool:
            assert sorted(pool.map(square, range(0, 9000, 3), unordered=True)) == known
        with WorkPool(journal=place / "run.db") as pool:
            results = pool.map(square, [*range(9000)], unordered=True)
            assert sorted(next(results) for _ in known) == known
            assert sorted([*known, *results]) == [n * n for n in range(9000)]
        with WorkPool(journal=place / "run.db") as pool:
            assert sorted(pool.map(square, range(7), unordered=True)) == [0, 1, 4, 9, 16, 25, 36]
            with pytest.raises(ZeroDivisionError) as raised:
                list(pool.map(lambda n: 1 / (n - 4000), range(3000, 5000), unordered=True))
            assert raised.value.__cause__.item == 1000
            print((place / "ran").stat().st_size)
    """
    assert run_ranks(3, script, str(tmp_path)).stdout == "6000\n"
