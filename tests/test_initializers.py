"""What an initializer makes: whom it is for, and for how long."""

from __future__ import annotations

import pytest
from harness import run_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.either, pytest.mark.usefixtures("claim")]


def test_what_an_initializer_sets_all_functions_of_the_script_see() -> None:
    script = """
        import functools
        from workpool import WorkPool

        model, cache, other = None, {}, {"level": 1}

        class Config:
            level = 1
            def describe(self):
                return f"{model} {cache} {self.level}"

        config = Config()

        def logged(function):
            @functools.wraps(function)
            def call(*args):
                return function(*args)
            return call

        @logged
        def setup(value):
            global model
            model = value
            cache["model"] = value
            return other["level"], config.level

        class Simulation:
            def run(self, n):
                return model + n, cache["model"]
            def __call__(self):
                return model

        @functools.lru_cache
        def remembered(n):
            return model * n

        @logged
        def read():
            return model, other["level"]

        def minimize(objective, start):
            return objective(start)

        for value in (10, 20):
            with WorkPool(initializer=setup, initargs=(value,)) as pool:
                for isolate in (False, True):
                    view = pool.with_options(isolate=isolate)
                    for _ in range(3):
                        assert view.submit(Simulation().run, 1).result() == (value + 1, value)
                        assert view.submit(Simulation()).result() == value
                        assert view.submit(remembered, 2).result() == 2 * value
                        assert view.submit(read).result() == (value, other["level"])
                        assert view.submit(lambda: config.level).result() == config.level
                        other["level"] += 1  # the initializer only reads it
                        config.level += 1
                    objective = functools.partial(minimize, Simulation().run)
                    assert list(view.map(objective, (0, 3))) == [(value, value), (value + 3, value)]
                    assert list(view.map(minimize, [remembered] * 2, (0, 3))) == [0, 3 * value]
                total = pool.reduce(remembered, range(100), op="sum")
                assert total == value * 4950
        with WorkPool() as pool:
            assert pool.submit(read).result() == (None, other["level"])
        assert model is None and not cache
    """
    run_ranks(2, script)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("isolate", [False, True])
def test_what_an_initializer_has_made_goes_with_its_pool(ranks: int, isolate: bool) -> None:
    script = f"""
        import gc
        import workpool
        from workpool import WorkPool

        data = None

        def setup():
            global data
            data = bytearray(64 << 20)

        def used():
            assert len(data) == 64 << 20
            with open("/proc/self/status") as file:
                return int(file.read().partition("RssAnon:")[2].split(None, 1)[0]) >> 10

        def main(pool):
            return pool.with_options(isolate={isolate}).submit(used).result()

        def once():
            gc.collect()  # whole jobs, where this process is one
            if {ranks} == 1:
                return workpool.run(main, initializer=setup)
            with WorkPool(initializer=setup) as pool:
                return main(pool)

        first, *others, last = [once() for _ in range(6)]
        assert last < first + 96, (first, *others, last)
    """
    run_ranks(ranks, script)
