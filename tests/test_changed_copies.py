"""Who is warned that a task changes a copy of what a module has, which the module does not see."""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from harness import run_ranks
from scripted import define

from workpool.pool.checks import Checks

SETTINGS = """
import logging, threading
class Config:
    def __init__(self): self.tolerance, self.deep = 1, self
class Locked:
    def __init__(self): self.lock, self.tolerance = threading.Lock(), 1
class Mark: pass
config, locked, mark, table, log = Config(), Locked(), Mark(), {1: 1}, logging.getLogger("settings")
def evaluate(): return config.tolerance
"""

SCRIPT = """
import settings
from settings import Config, config, evaluate, locked, log, mark, table
own = Config()
def sets(x):
    config.tolerance = x
    return evaluate()
def deeper(x):
    config.deep.tolerance = x
    return settings.evaluate()
def indexes(x):
    table[x] = x
    return evaluate()
def calls(x):
    table.update(x)
    return evaluate()
def helps(x): return sets(x)
def prepares(x): config.tolerance = x
def of_the_module(x):
    settings.config.tolerance = x
    return evaluate()
def of_a_class(x):
    Config.limit = x
    return evaluate()
def of_what_goes_by_name(x):
    log.setLevel(x)
    locked.tolerance = x
    mark.tolerance = x
    return evaluate()
def of_the_script(x):
    own.tolerance = x
    return evaluate()
def of_its_own(x):
    other = Config()
    other.tolerance = x
    return evaluate()
def reads(x): return config.tolerance + table[x] + evaluate()
"""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    settings = types.ModuleType("settings")
    monkeypatch.setitem(sys.modules, "settings", settings)
    exec(SETTINGS, vars(settings))
    return define(SCRIPT)


def warned(look: Callable[[Checks], None]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        look(Checks(lambda number, comm: False, apart=False))
    return [str(each.message) for each in caught]


@pytest.mark.parametrize(
    ("name", "task", "changed"),
    [
        ("sets", "sets", "config"),
        ("deeper", "deeper", "config"),
        ("indexes", "indexes", "table"),
        ("calls", "calls", "table"),
        ("helps", "sets", "config"),
    ],
)
def test_a_task_that_changes_a_copy_is_named(
    script: Any, name: str, task: str, changed: str
) -> None:
    (text,) = warned(lambda checks: checks.look(getattr(script, name)))
    assert text.startswith(f"{task} changes {changed!r}, which is a copy of what module settings")
    assert f"write settings.{changed} for it" in text


def test_so_is_an_initializer_though_it_uses_nothing_else(script: Any) -> None:
    (text,) = warned(lambda checks: checks.prepared(script.prepares))
    assert text.startswith("prepares changes 'config'")
    assert not warned(lambda checks: checks.look(script.prepares))


@pytest.mark.parametrize(
    "name",
    ["of_the_module", "of_a_class", "of_what_goes_by_name", "of_the_script", "of_its_own", "reads"],
)
def test_others_are_not(script: Any, name: str) -> None:
    assert not warned(lambda checks: checks.look(getattr(script, name)))
    assert not warned(lambda checks: checks.prepared(getattr(script, name)))


@pytest.mark.mpi
@pytest.mark.either
def test_it_is_as_the_warning_says() -> None:
    said = run_ranks(
        2,
        """
        import linecache
        from linecache import cache, getline
        from workpool import WorkPool

        def copied(name):
            cache[name] = 5, None, ["text\\n"], name
            return getline(name, 1)

        def advised(name):
            linecache.cache[name] = 5, None, ["text\\n"], name
            return getline(name, 1)

        with WorkPool() as pool:
            print([pool.submit(task, "nowhere").result() for task in (copied, advised)])
        """,
    )
    assert said.stdout == "['', 'text\\n']\n"
    assert "copied changes 'cache', which is a copy of what module linecache has" in said.stderr
    assert said.stderr.count("Warning") == 1
