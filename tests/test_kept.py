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

FILLS = """
import collections, types
table, rows, count, full = {}, [], collections.Counter(), {1: 1}
state = types.SimpleNamespace(model=None, name="x")
class Model:
    one = None
    limit = 3
    @classmethod
    def get(cls):
        if cls.one is None:
            cls.one = 1
        return cls.one
    @staticmethod
    def named():
        Model.one = Model.one or 1
    @property
    def item(self):
        return self.found()
    def found(self):
        if 1 not in table:
            table[1] = 1
        self.own = table[1]
    def not_called(self): rows.append(1)
    def limits(self): Model.limit = 4
class Made:
    def __init__(self): table["x"] = len(table)
class Called:
    def __call__(self): return self.step()
    def step(self): return count or count.update("x")
model, called = Model(), Called()
def by_class(): return Model.get()
def by_name(): return Model.named()
def by_object(): return model.item
def by_index(k):
    if k not in table: table[k] = [k for k in range(3)]
    return table[k]
def by_default(k): return table.setdefault(k, 1)
def by_append(x):
    if not rows: rows.append(x)
def by_count(x):
    count[x] += 1
    return count.total()
def memo(function):
    found = {}
    def call(x):
        if x not in found: found[x] = function(x)
        return found[x]
    return call
by_closure = memo(abs)
def sink(x): rows.append(x)
def counts(x): count[x] += 1
def sets_only(x):
    state.model = x
    return state
def by_attribute():
    if not hasattr(by_attribute, "model"): by_attribute.model = 1
def by_space():
    state.model = state.model or 1
def makes(): return Made()
def local(x):
    if x in table: return 0
    own = {}
    own[x] = table.get(x)
    return own
def is_full(x): full[x] = 1
def renames(): state.name = "y"
def limits(): return model.limits()
def not_its_own(): return model
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


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("by_class", "Model.get sets cls.one"),
        ("by_name", "Model.named sets Model.one"),
        ("by_object", "Model.found fills 'table'"),
        ("by_index", "by_index fills 'table'"),
        ("by_default", "by_default fills 'table'"),
        ("by_append", "by_append fills 'rows'"),
        ("by_count", "by_count fills 'count'"),
        ("by_closure", "memo.<locals>.call fills 'found'"),
        ("by_attribute", "by_attribute sets by_attribute.model"),
        ("by_space", "by_space sets state.model"),
        ("makes", "Made.__init__ fills 'table'"),
        ("called", "Called.step fills 'count'"),
    ],
)
def test_a_function_that_fills_or_sets_what_is_empty_is_named_once(name, text):
    assert warned(getattr(define(FILLS), name)) == [text]


@pytest.mark.parametrize(
    "name", ["local", "is_full", "renames", "limits", "not_its_own", "sink", "counts", "sets_only"]
)
def test_others_are_not_either(name):
    assert not warned(getattr(define(FILLS), name))


def test_what_a_bound_method_calls_is_looked_at():
    script = define(FILLS)
    assert warned(script.model.found) == ["Model.found fills 'table'"]
    assert warned(script.Model.get) == ["Model.get sets cls.one"]
    assert warned(script.called) == ["Called.step fills 'count'"]
