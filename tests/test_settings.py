"""Who is warned that a script sets something in a module which its tasks use."""

from __future__ import annotations

import functools
import linecache
import warnings

import pytest
from harness import run_ranks
from scripted import define

from workpool.pool.checks import Checks

IMPORTS = """
import decimal, sys
from decimal import Decimal, getcontext
import xml.dom as dom
from colorsys import (
    rgb_to_hsv, ONE_THIRD as third)
import numpy as np
class Mine: pass
mine, table = Mine(), {}
def decimals(): return Decimal(1) / 3
def calls(): return decimals()
def colours(): return third
def trees(): return dom.Node
def arrays(): return np.ones(3)
def modules(): return sys.path
def objects(): return mine
def nothing(): return 1
"""


def warned(statement: str, name: str, apart: bool = True, prepared: str = "") -> list[str]:
    script = define(IMPORTS)
    file = script.decimals.__globals__["__file__"] = f"<{statement}>"
    linecache.cache[file] = (0, None, [*IMPORTS.splitlines(True), f"{statement}\n"], file)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        checks = Checks(lambda number, comm: False, apart)
        if prepared:
            checks.prepared(getattr(script, prepared))
        for fn in (getattr(script, name), functools.partial(script.calls), script.decimals):
            checks.look(fn)
    return [str(each.message) for each in caught]


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("decimal.getcontext().prec = 50", "decimals"),
        ("getcontext().prec += 50", "calls"),
        ("decimal.setcontext(decimal.Context(50))", "decimals"),
        ("decimal.tables['x'] = 50", "decimals"),
    ],
)
def test_a_setting_is_told_once(statement: str, name: str) -> None:
    (text,) = warned(statement, name)
    assert text.startswith("decimals uses decimal, in which line 18 of the script sets something")
    assert f"`{statement}`" in text


@pytest.mark.parametrize(
    ("statement", "name", "package"),
    [
        ("dom.Node.name = 1", "trees", "xml"),
        ("rgb_to_hsv.enable_all(True)", "colours", "colorsys"),
        ("np.seterr(all='ignore')", "arrays", "numpy"),
    ],
)
def test_what_is_meant_is_the_package(statement: str, name: str, package: str) -> None:
    (text,) = warned(statement, name)
    assert f"{name} uses {package}, " in text


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("sys.x = 1", "modules"),  # the path and others are the workers' as well
        ("mine.x = 1", "objects"),
        ("table['x'] = 1", "nothing"),
        ("np.set_printoptions(precision=3)", "arrays"),
        ("np.options.display.width = 3", "arrays"),
        ("np.random.seed(0)", "arrays"),
        ("np.ones(3)", "arrays"),
        ("np.seterr(all='ignore')", "nothing"),
        ("def later(): np.seterr(all='ignore')", "arrays"),
        ("third.x = 1", "colours"),  # comes along as it is
        ("np == np.seterr = 1", "arrays"),  # no Python
    ],
)
def test_not_of_anything_else(statement: str, name: str) -> None:
    assert warned(statement, name) == []


def test_not_where_the_program_or_an_initializer_has_seen_to_it() -> None:
    statement = "decimal.getcontext().prec = 50"
    assert warned(statement, "decimals", apart=False) == []
    assert warned(statement, "decimals", prepared="nothing") == []


@pytest.mark.mpi
@pytest.mark.either
def test_the_line_that_submits_is_named() -> None:
    script = """
        import decimal
        from workpool import WorkPool

        decimal.getcontext().prec = 50

        def task():
            return decimal.Decimal(1) / 3

        with WorkPool() as pool:
            pool.submit(task).result()
    """
    said = run_ranks(2, script).stderr
    assert "driver.py:11: UserWarning: task uses decimal, in which line 5 of the script" in said
    assert run_ranks(1, script).stderr == ""
