"""What most items of a map are given crosses once, between processes."""

from __future__ import annotations

import pytest
from harness import run_ranks
from surviving import deaths, end, survive

pytestmark = [pytest.mark.mpi, pytest.mark.either]


@pytest.mark.parametrize("ranks", [1, 3])
def test_definitions_of_the_script_and_little_room(ranks: int) -> None:
    script = """
        import sys
        from itertools import repeat
        import numpy as np
        from workpool import WorkPool

        class Table:
            def __init__(self):
                self.array, self.changes = np.zeros(400_000), 0
            def __getstate__(self):
                sys.pickled += 1  # not what a function of the script reads
                return vars(self)

        class Sub(Table):
            pass

        read = [0.0] * 50_000

        def change(n, table):
            table.changes += 1
            table.array += 1
            return n, type(table) is Sub and isinstance(table, Table), table.changes, table.array[5]

        def number(n, table):
            table.changes += 1
            return n, table.changes

        count = 0

        def counted(n, table):
            global count
            count += 1
            return count, isinstance(table, Table)

        def same(n, it):
            return it is read

        def inside(own, table):
            return own is table["own"]

        for options in ({}, {"arena_nbytes": 1 << 20}):
            with WorkPool(**options) as pool:
                sys.pickled = 0
                assert list(pool.map(change, range(200), repeat(Sub()))) == [
                    (n, True, 1, 1) for n in range(200)
                ]
                assert list(pool.map(number, range(200), repeat(Sub()))) == [
                    (n, 1) for n in range(200)
                ]
                assert list(pool.map(counted, range(200), repeat(Sub()))) == [(1, True)] * 200
                assert sys.pickled < 18, sys.pickled
                assert all(pool.map(same, range(100), repeat(read)))
                table = {"own": [1], "much": [0.0] * 50_000}
                owns = [table["own"], *([n] for n in range(99))]
                assert list(pool.map(inside, owns, repeat(table))) == [True] + [False] * 99
    """
    run_ranks(ranks, script)


def test_a_worker_is_killed() -> None:
    text = """
from itertools import repeat
def change(n, table):
    table.append(n)
    if n == 150 and not os.path.exists("killed"):
        open("killed", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return len(table), table[-1]

with WorkPool() as pool:
    found = list(pool.map(change, range(300), repeat([1.5] * 50_000)))
    print(found == [(50_001, n) for n in range(300)])
"""
    with survive(text) as started:
        ended = end(started)
    assert (ended.status, "True\n" in ended.out) == (0, True), ended
    assert len(deaths(ended)) == 1
