"""Who is warned that a task finds nothing of what an earlier one has kept in a global."""

from __future__ import annotations

import functools
import warnings

import pytest
from scripted import define

from workpool.pool.checks import Checks

SCRIPT = """
import functools
model = cache = late = given = None
class Loader:
    def load(self):
        global model
        model = model or 1
        return model
def get():
    global model
    if model is None:
        model = 1
    return model
def uses(x): return get() + x
def passes(x): return uses(x)
@functools.lru_cache
def cached(): return 1
def calls(x): return cached() + x
def assigns():
    global cache
    cache = 1
    return cache
def reads(): return cache
def made_by_the_driver():
    global given
    if given is None: given = 2
    return given
def none_yet():
    global nowhere
    try: return nowhere
    except NameError: nowhere = 1
given = 1
"""


def warned(fn):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        checks = Checks(lambda number, comm: False, apart=False)
        for _ in range(2):
            checks.look(fn)
    return [str(each.message).partition(" of the script")[0] for each in caught]


@pytest.mark.parametrize("name", ["get", "uses", "passes"])
def test_a_function_that_makes_a_global_once_is_named_once(name):
    script = define(SCRIPT)
    for fn in (getattr(script, name), functools.partial(getattr(script, name), 1)):
        assert warned(fn) == ["get makes the global 'model'"]


def test_so_is_a_method():
    assert warned(define(SCRIPT).Loader().load) == ["Loader.load makes the global 'model'"]


@pytest.mark.parametrize("name", ["calls", "assigns", "reads", "made_by_the_driver", "none_yet"])
def test_others_are_not(name):
    assert not warned(getattr(define(SCRIPT), name))
    assert not warned(abs)
