"""Items, results and functions of a map are as they were, whatever changes them afterwards."""

from __future__ import annotations

import pytest
from harness import run_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.either, pytest.mark.usefixtures("claim")]


@pytest.mark.parametrize("ranks", [1, 3])
def test_what_a_list_holds_is_not_copied_and_what_a_generator_reuses_is(ranks: int) -> None:
    script = """
        import time
        import numpy as np
        from workpool import WorkPool
        from workpool.system.copies import Copies

        one = np.zeros(100_000)
        copied = []
        copy = Copies.copy

        def counted(copies, content):
            copied.append(len(content))
            return copy(copies, content)

        def reused():
            for n in range(200):
                one[:] = n
                yield one

        def last(array):
            time.sleep(0.002)  # so that others are not worth waiting for
            return float(array[-1])

        with WorkPool(arena_nbytes=8 << 20) as pool:
            arrays = [np.full(100_000, float(n)) for n in range(200)]
            last_of = list(pool.map(last, arrays[:2]))
            Copies.copy = counted
            views = pool.with_options(retries=1, retry_on=KeyError), pool
            for view in views:
                assert list(view.map(last, arrays)) == list(range(200))
                assert list(view.map(last, np.array(arrays), chunksize=1)) == list(range(200))
                assert list(view.starmap(last, [(array,) for array in arrays])) == list(range(200))
            assert len(copied) * (pool.num_workers > 1) == 0, len(copied)
            assert list(pool.map(last, reused(), chunksize=1)) == list(range(200))
            assert copied
            journalled = pool.map(last, arrays, chunksize=1, journal="run.db")
            for array in arrays:
                array[:] = -1  # the results are for what was there
            assert list(journalled) == list(range(200))
    """
    run_ranks(ranks, script)


@pytest.mark.parametrize("ranks", [1, 3])
def test_results_are_as_they_were_when_their_call_returned(ranks: int) -> None:
    """A function may fill one workspace again and again, and return it, or a part of it."""
    script = """
        import dataclasses, decimal
        import numpy as np
        from workpool import WorkPool

        workspace = np.zeros((2, 1000))
        seen, state = [], {}

        def fill(n):
            workspace[0, :10] = n
            return workspace[0, :10]

        def fill_all(n):
            workspace[:] = n
            return workspace

        def note(n):
            seen[:] = [n]
            state["n"] = seen
            return seen, state

        class Solver:
            def __init__(self):
                self.u = [0]
            def step(self, n):
                self.u[0] = n
                return self.u

        @dataclasses.dataclass
        class State:
            n: int
            u: np.ndarray

        class Solution:
            def __init__(self):
                self.xp, self.u = np, np.zeros(3)  # a module, which no copy is made of

        solution = Solution()

        def solve(n):
            solution.u[:] = n
            return solution, lambda: solution.u[0]

        current, states = State(0, workspace), []

        def step(n):
            current.n = n
            current.u[0, 0] = n
            return current

        def grow(n):
            states[:] = [State(n, workspace[:1, :1])]
            workspace[0, 0] = n
            return states, lambda: n

        with WorkPool() as pool:
            for options in ({}, {"schedule": "static"}, {"chunksize": 50}):
                for n, value in enumerate(pool.map(step, range(500), **options)):
                    assert type(value) is State and value.n == value.u[0, 0] == n, (n, value)
                for n, (value, function) in enumerate(pool.map(solve, range(500), **options)):
                    assert value.u[0] == value.u[2] == function() == n, (n, value)
                for n, ((value,), function) in enumerate(pool.map(grow, range(500), **options)):
                    assert value.n == value.u[0, 0] == function() == n, (n, value)
                for n, value in enumerate(pool.map(fill, range(500), **options)):
                    assert value.shape == (10,) and (value == n).all(), (n, value)
                    value += 1  # and it is ours
                for n, value in enumerate(pool.map(fill_all, range(500), **options)):
                    assert value.shape == (2, 1000) and (value == n).all(), (n, value)
                    value += 1
                for n, value in enumerate(pool.map(note, range(500), **options)):
                    assert value == ([n], {"n": [n]}), (n, value)
                for n, value in enumerate(pool.map(Solver().step, range(500), **options)):
                    assert value == [n]
                for value in (np.float64(2), (1, 2.5), decimal.Decimal(3), ValueError):
                    found = list(pool.map(lambda _, value=value: value, range(500), **options))
                    assert {type(one) for one in found} == {type(value)}
                    assert str(found[:1] + found[-1:]) == str([value] * 2)
            assert (pool.reduce(fill, range(1000)) == 499_500).all()
            assert pool.reduce(note, range(1000), op=lambda a, b: max(a, b))[0] == [999]
    """
    run_ranks(ranks, script)


@pytest.mark.parametrize("ranks", [1, 3])
def test_results_are_as_they_were_although_the_end_of_an_item_ends_them(ranks: int) -> None:
    """An array in shared memory that is attached to by an item is there as long as the item is."""
    script = """
        from workpool import WorkPool

        class Workspace:
            def __init__(self, n):
                self.found = [n]
            def __del__(self):
                self.found.clear()

        def use(workspace):
            return workspace.found

        with WorkPool() as pool:
            for options in ({}, {"schedule": "self"}, {"chunksize": 1}, {"chunksize": 5}):
                found = pool.map(use, [Workspace(n) for n in range(100)], **options)
                assert list(found) == [[n] for n in range(100)]
                found = pool.starmap(use, [(Workspace(n),) for n in range(100)], **options)
                assert list(found) == [[n] for n in range(100)]
    """
    run_ranks(ranks, script)


@pytest.mark.parametrize("ranks", [1, 3])
def test_large_arrays_are_as_they_were_although_the_end_of_an_argument_ends_them(
    ranks: int,
) -> None:
    """They may lie in memory that an argument frees; and nothing refers to it for longer."""
    script = """
        import numpy as np
        from workpool import WorkPool

        class Workspace:
            def __init__(self, n):
                self.array = np.full(10_000, n)
            def __del__(self):
                self.array[:] = -1

        def use(workspace):
            return workspace.array

        def begin():
            global memory, room
            memory, room = bytearray(10_000), np.zeros(10_000)

        def fill(n):
            room[:] = n
            return room

        def grow(n):
            memory.extend(bytes(8))  # raises BufferError where somebody refers to it
            return np.frombuffer(memory, "u1")

        with WorkPool(initializer=begin) as pool:
            spaces = [Workspace(n) for n in range(60)]
            for one in (pool, pool.with_options(isolate=True)):
                found = [one.submit(use, each) for each in spaces]
                assert [set(each.result()) for each in found] == [{n} for n in range(60)]
                for future in [one.submit(grow, n) for n in range(60)]:
                    assert not future.result().any()
            for options in ({}, {"schedule": "self"}, {"chunksize": 1}, {"chunksize": 5}):
                found = list(pool.map(use, spaces, **options))
                assert [set(each) for each in found] == [{n} for n in range(60)], options
                found = list(pool.starmap(use, [(each,) for each in spaces], **options))
                assert [set(each) for each in found] == [{n} for n in range(60)], options
                assert not any(map(np.any, pool.map(grow, range(60), **options)))
                found = list(pool.map(fill, range(60), **options))
                assert [set(each) for each in found] == [{n} for n in range(60)], options
    """
    run_ranks(ranks, script)


def test_a_result_is_as_it_was_although_no_other_is_of_its_block() -> None:
    """Items that are sent with their function, in blocks of 256: two workers share out 510."""
    script = """
        import random  # has a global that is one for all that is sent
        from workpool import WorkPool

        class Box: pass

        box = Box()

        def note(item):
            seen = vars(random).setdefault("seen", [])
            seen.append(item is box)
            return len(seen), seen

        with WorkPool() as pool:
            for n, seen in pool.map(note, [box] * 510, schedule="static"):
                assert seen == [True] * n
    """
    run_ranks(3, script)


def test_what_a_map_calls_is_as_it_was_when_the_map_began() -> None:
    script = """
        import time
        from workpool import WorkPool
        from workpool.pool.mapping import cutter, supply

        class Adder:
            def add(self, n):
                time.sleep(2e-5)
                return n + self.more

        def plus(n):
            time.sleep(2e-5)
            return n + step + table[0]

        cutter.SEGMENT_ITEMS = supply.SEGMENT_ITEMS = cutter.FIRST_ITEMS = 512
        adder, items = Adder(), [float(n) for n in range(5_000)]
        with WorkPool() as pool:
            for _ in range(3):
                adder.more, step, table = 1, 1, [0]
                for fn in (adder.add, plus, lambda n: n + step):
                    adder.more, step, table[0] = 1, 1, 0
                    found = []
                    for value in pool.map(fn, items):
                        found.append(value)
                        adder.more, step, table[0] = 7, 7, 7
                    assert found == [n + 1 for n in items], fn
    """
    run_ranks(3, script)


def test_a_few_items_do_not_copy_their_function() -> None:
    script = """
        from workpool import WorkPool

        class Numbers(list):
            def __getitem__(self, at):
                return super().__getitem__(int(at))

        class Model:
            pickled = 0
            def __reduce__(self):
                Model.pickled += 1
                return Model, ()
            def predict(self, n):
                return n + 1

        model = Model()
        with WorkPool() as pool:
            assert list(pool.map(model.predict, range(8))) == list(range(1, 9))
            assert Model.pickled <= 2, Model.pickled
            assert next(pool.map(abs, range(10**20), buffersize=100)) == 0
            assert list(pool.map(abs, Numbers([-1, -2]))) == [1, 2]
        with WorkPool(max_pending=1) as pool:
            assert list(pool.map(abs, range(-8, 0), timeout=30)) == list(range(8, 0, -1))
    """
    run_ranks(2, script)
