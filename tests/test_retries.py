"""Tasks that are tried again: which failures count, how often, and what a kill makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from isolated import run

pytestmark = [pytest.mark.mpi, pytest.mark.either, pytest.mark.usefixtures("claim")]


def test_kill_ends_what_is_about_to_be_tried_again(tmp_path: Path) -> None:
    run(
        2,
        f"""
        def fail(path):
            open(path, "w").close()
            time.sleep(0.1)
            raise ValueError

        def late(task):
            alone(task)
            with driver._lock:  # nobody collects, and the attempt ends meanwhile
                time.sleep(0.5)

        view, path = pool.with_options(isolate=True, retries=9), {str(tmp_path / "begun")!r}
        view.submit(abs, 1).result()
        driver = pool._core.driver
        alone, driver.single_out = driver.single_out, late
        future = view.submit(fail, path)
        until_made(path)
        assert pool.kill(future)
        assert future.cancelled() or type(future.exception()) is TaskKilled
        """,
    )


def test_what_fails_is_tried_as_often_as_its_options_say(tmp_path: Path) -> None:
    run(
        3,
        f"""
        def works_at(path, number, error):
            with open(path, "a") as file:
                file.write("x")
            if os.path.getsize(path) < number:
                raise error("not yet")
            return os.path.getsize(path)

        def place(name):
            return os.path.join({str(tmp_path)!r}, name)

        thrice = pool.with_options(retries=2)
        assert thrice.submit(works_at, place("a"), 3, ValueError).result(30) == 3
        failure = error(thrice.submit(works_at, place("b"), 4, ValueError))
        assert failure.__cause__.attempts == 3 and "attempt 3" in str(failure.__cause__)
        assert os.path.getsize(place("b")) == 3
        picky = pool.with_options(retries=5, retry_on=(KeyError, OSError))
        assert type(error(picky.submit(works_at, place("c"), 2, ValueError))) is ValueError
        assert picky.submit(works_at, place("d"), 2, KeyError).result(30) == 2
        start = time.monotonic()
        late = pool.with_options(retries=2, retry_delay_s=0.2)
        assert late.submit(works_at, place("e"), 3, ValueError).result(30) == 3
        assert 0.4 < time.monotonic() - start < 20
        # What has ended well, and cannot be restored here, has been committed.
        class Stubborn:
            def __setstate__(self, state):
                raise ValueError("not here")
        def once(path, numbers):
            with open(path, "a") as file:
                file.write("x")
            numbers.add(1)
            stubborn = Stubborn()
            stubborn.x = 1
            return stubborn
        numbers = pool.accumulator()
        assert "not here" in str(thrice.submit(once, place("s"), numbers).exception(30))
        assert os.path.getsize(place("s")) == numbers.value() == 1
        late = pool.with_options(retries=1, retry_delay_s=60)
        waiting = late.submit(works_at, place("w"), 2, ValueError)
        until_made(place("w"))
        limit = time.monotonic() + 30
        while not waiting.cancel():  # its first attempt is not over yet
            assert time.monotonic() < limit
            time.sleep(0.002)
        assert waiting.cancelled()
        # Each attempt has a limit of its own; an array is sent as it was at the submission.
        sure = pool.with_options(retries=20, timeout_s=0.3)
        def slow_at_first(path, array):
            with open(path, "a") as file:
                file.write("x")
            if os.path.getsize(path) < 4:  # more often than a crash would be borne
                hang()
            return float(array.sum())
        ones = np.ones(100_000)
        future = sure.submit(slow_at_first, place("f"), ones)
        ones[:] = 0
        assert future.result(30) == 100_000
        assert list(thrice.map(add_one, range(100))) == list(range(1, 101))
        """,
    )


def test_what_brings_down_three_processes_is_not_tried_again() -> None:
    run(
        2,
        """
        future = pool.with_options(retries=100, isolate=True).submit(crash)
        failure = error(future)
        assert failure.__cause__.attempts == 3 and "no more tries" in str(failure)
        """,
    )


def test_what_counts_as_a_failure_may_raise() -> None:
    run(
        2,
        """
        class Meta(type):
            def __instancecheck__(cls, instance):
                raise RuntimeError("asked")
        class Odd(Exception, metaclass=Meta):
            pass
        failure = pool.with_options(retries=1, retry_on=(Odd,)).submit(int, "x").exception(30)
        assert str(failure) == "asked" and type(failure.__cause__) is ValueError
        """,
    )
