"""Maps whose function, or one of whose items, cannot be sent."""

from __future__ import annotations

import pytest
from harness import run_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.either, pytest.mark.usefixtures("claim")]


def test_a_range_whose_function_could_not_be_sent_at_first_is_mapped_once() -> None:
    script = """
        from workpool import WorkPool

        class Late:
            def __init__(self):
                self.failed = False
            def __call__(self, n):
                return n
            def __reduce__(self):
                if not self.failed:
                    self.failed = True
                    raise MemoryError
                return Late, ()

        with WorkPool() as pool:
            for items in (range(1000), list(range(1000))):
                assert list(pool.map(Late(), items)) == list(range(1000))
    """
    run_ranks(2, script)


def test_a_function_that_cannot_be_sent_is_tried_a_few_times_only() -> None:
    script = """
        from workpool import SerializationError, WorkPool

        class Stays:
            tries = 0
            def __reduce__(self):
                Stays.tries += 1
                raise TypeError("stays here")
            def method(self, n):
                return n

        with WorkPool() as pool:
            for options in ({}, {"chunksize": 1}):
                results = pool.map(Stays().method, range(10_000), **options)
                try:
                    next(results)
                except SerializationError as error:
                    assert "stays here" in str(error)
                else:
                    raise AssertionError
            assert Stays.tries < 100, Stays.tries
    """
    run_ranks(2, script)


def test_an_item_of_a_chunk_that_cannot_be_sent_is_named_as_the_function_has_it() -> None:
    script = """
        from workpool import SerializationError, WorkPool

        with WorkPool() as pool:
            try:
                list(pool.starmap(pow, [(1, 2), (3, (i for i in ""))], chunksize=2))
            except SerializationError as error:
                assert "cannot pickle argument 2 of 2 of type generator" in str(error), error
            else:
                raise AssertionError
    """
    run_ranks(2, script)
