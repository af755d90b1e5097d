"""Random numbers in tasks: what is each worker's own, and who is warned that all draw the same."""

from __future__ import annotations

import pytest
from harness import run_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.either, pytest.mark.usefixtures("claim")]


def test_tasks_that_would_all_draw_the_same_numbers_are_warned_of_once() -> None:
    script = """
        import functools
        import random
        import numpy as np
        from workpool import WorkPool

        rng, dice = np.random.default_rng(0), random.Random(0)

        def draws(n):
            return rng.random()

        def calls(n):
            return draws(n), dice.random()

        def seeds(n):
            dice.seed(n)
            return dice.random()

        def own(seed):
            return np.random.default_rng(seed).random()

        class Model:
            def __init__(self):
                self.rng = np.random.RandomState(0)

            def step(self, n):
                return self.rng.random()

            def still(self, n):
                return n

            def __call__(self, n):
                return self.rng.random()

        def given(scale, n, source):
            return scale * source.random()

        with WorkPool() as pool:
            for _ in range(2):
                model = Model()
                assert len({pool.submit(draws, n).result() for n in range(5)}) == 1
                for fn in (calls, functools.partial(draws), seeds, own, model.still, abs):
                    pool.submit(fn, 1).result()
                pool.submit(Model().step, 1).result()  # an object of its own
                list(pool.map(model.step, range(5000)))
                pool.submit(model.step, 1).result()
                list(pool.map(seeds, range(5000)))
                list(pool.map(own, np.random.SeedSequence(0).spawn(5)))
            for _ in range(3):
                pool.submit(model.step, 1).result()
            model = Model()
            for _ in range(3):
                pool.submit(model.step, 1).result()
            list(pool.map(Model(), range(5)))
            list(pool.map(functools.partial(given, 2.0, source=rng), range(5)))
            list(pool.map(functools.partial(np.random.Generator.random, rng), [1] * 5))
            pool.submit(functools.partial(given, 2.0, source=rng), 1).result()
    """
    one, _, two, _, *three = run_ranks(2, script).stderr.splitlines()  # and the script's lines
    assert "driver.py:41: UserWarning: each task of draws starts with 'rng' in the same" in one
    assert "driver.py:43: UserWarning: each task of calls starts with 'dice' and 'rng' in" in two
    assert "driver.py:45: UserWarning: each task of Model.step starts with self.rng in" in three[0]
    assert "driver.py:53: UserWarning: each task of Model.step starts with self.rng in" in three[2]
    told = [line.split("each task of ")[1] for line in three[4::2]]
    assert told[0].startswith("__main__.Model starts with self.rng in the same")
    assert told[1].startswith("partial(given) starts with 'source' in the same")
    assert told[2].startswith("partial(Generator.random) starts with argument 1 in the same")
    assert len(told) == 3


@pytest.mark.parametrize("ranks", [1, 3])
def test_what_random_and_numpy_draw_from_is_not_copied_with_a_function(ranks: int) -> None:
    script = """
        from random import gauss, random
        from types import SimpleNamespace
        import numpy as np
        from numpy.random import choice, rand
        from workpool import WorkPool

        distribution = SimpleNamespace(rng=np.random.mtrand._rand)  # those of scipy.stats have it
        normal = np.random.default_rng(0).normal

        def built_in(n):
            return random()

        def method(n):
            return gauss(0, 1)

        def of_numpy(n):
            return rand()

        def held(n):
            return distribution.rng.random()

        def seeded(n):
            np.random.seed(n)
            return int(choice(1_000_000))

        def copied(n):
            return normal()

        with WorkPool() as pool:
            for fn in (built_in, method, of_numpy, held):
                drawn = {future.result() for future in [pool.submit(fn, n) for n in range(9)]}
                drawn |= set(pool.map(fn, range(90), chunksize=1))
                assert len(drawn) == 99, (fn, len(drawn))
            assert pool.submit(seeded, 7).result() == np.random.RandomState(7).choice(1_000_000)
            assert len({pool.submit(copied, n).result() for n in range(5)}) == 1
            for fn in (random, gauss, rand):
                assert len({pool.submit(fn).result() for _ in range(9)}) == 9
            assert len(set(pool.map(gauss, [0] * 90, [1] * 90))) == 90
            assert len({pool.submit(normal).result() for n in range(5)}) == 1
            uncalled = np.random.default_rng(1)
            assert "not callable" in str(pool.submit(uncalled).exception())
    """
    warnings = [it for it in run_ranks(ranks, script).stderr.splitlines() if "Warning" in it]
    assert len(warnings) == 2
    assert "each task of copied starts with 'normal' in the same state" in warnings[0]
    assert "each task of Generator.normal starts with its generator in the" in warnings[1]
