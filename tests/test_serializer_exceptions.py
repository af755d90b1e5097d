"""Exceptions come back as themselves."""

from __future__ import annotations

import asyncio
import copyreg
import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
from outcomes import carried, raised, remote_text

from workpool.errors import SerializationError


class Plain(Exception):
    pass


class Required(Exception):
    def __init__(self, code, *, detail):
        super().__init__(f"code {code}")
        self.code = code
        self.detail = detail


class NoSuperInit(Exception):
    def __init__(self, a, b):
        self.a, self.b = a, b


class Slotted(Exception):
    __slots__ = ("__private", "code", "unset")

    def __init__(self, code):
        self.code = code
        self.__private = code + 1

    def __str__(self):
        return f"{self.code} {self.__private}"


class OwnReduce(Exception):
    def __init__(self, a, b):
        super().__init__(a)
        self.a, self.b = a, b

    def __reduce__(self):
        return OwnReduce, (self.a, self.b)


class OwnReduceEx(Exception):
    def __init__(self, a, b):
        super().__init__(a)
        self.a, self.b = a, b

    def __reduce_ex__(self, protocol):
        return OwnReduceEx, (self.a, self.b), {"protocol": protocol}


class Registered(Exception):
    pass


copyreg.pickle(Registered, lambda exc: (Registered, (*exc.args, "by copyreg")))


class Simplifies(Exception):
    def __reduce__(self):
        return RuntimeError, (f"simply {self.args[0]}",)


class Bare(Exception):
    """Leaves its args out of its pickle, and cannot do without: as those of beartype."""

    def __str__(self):
        return str(self.args[0])

    def __reduce__(self):
        return Bare.__new__, (Bare,), vars(self)


class Reworded(UnicodeDecodeError):
    """Has args that the C constructor refuses, so that only pickle's own way restores it."""

    def __init__(self, reason):
        super().__init__("utf-8", b"x", 0, 1, reason)
        self.args = (reason,)


class OwnSetstate(Exception):
    def __setstate__(self, state):
        self.was_set = True
        super().__setstate__(state)


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    code: int
    detail: str


class OwnNew(Exception):
    def __new__(cls, a, b):
        return super().__new__(cls, a, b)

    def __init__(self, a, b):
        super().__init__(a, b)


class Exiting(SystemExit):
    def __init__(self, name, code):
        super().__init__(code)
        self.name = name


class FileTrouble(OSError):
    def __init__(self, path):
        super().__init__(2, "no such thing", path)
        self.path = path


class Base(BaseException):
    pass


class TwoBases(KeyError, AttributeError):
    pass


EXCEPTIONS = [
    ValueError("plain"),
    ValueError(),
    KeyError("key"),
    ZeroDivisionError("division by zero"),
    Plain("a", 1, None),
    Required(5, detail=[1, 2]),
    NoSuperInit(1, b=2),
    Slotted(6),
    OwnReduce(1, 2),
    Bare("says more"),
    Frozen(1, detail="d"),
    OwnNew(1, 2),
    Reworded("why"),
    Base("base"),
    TwoBases("x"),
    SystemExit(3),
    SystemExit("message"),
    Exiting("name", 4),
    KeyboardInterrupt(),
    GeneratorExit(),
    StopIteration("value"),
    asyncio.CancelledError("gone"),
    OSError(2, "no such file", "name"),
    FileNotFoundError(2, "no such file", "a", None, "b"),
    FileTrouble("/some/path"),
    ImportError("no module", name="m", path="p"),
    ModuleNotFoundError("no module", name="m"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    SyntaxError("bad", ("file", 1, 2, "text")),
    json.JSONDecodeError("bad", "doc", 1),
    subprocess.CalledProcessError(3, ["cmd"], b"out", b"err"),
    np.exceptions.AxisError(3, 2) if hasattr(np, "exceptions") else ValueError(),
    np.linalg.LinAlgError("singular"),
    SerializationError("workpool's own"),
]


@pytest.mark.parametrize("exc", EXCEPTIONS, ids=lambda exc: type(exc).__name__)
def test_exceptions_come_back_as_themselves(exc):
    arrived = carried(raised(exc))
    assert type(arrived) is type(exc)
    assert arrived.args == exc.args
    assert str(arrived) == str(exc)
    assert vars(arrived) == vars(exc)
    for name in ("code", "errno", "filename", "filename2", "name", "path", "start", "lineno"):
        assert getattr(arrived, name, None) == getattr(exc, name, None)
    assert remote_text(arrived).endswith("\n### task simulate, worker rank 3 on node17")
    cause = arrived.__cause__
    assert (cause.task, cause.rank, cause.host) == ("simulate", 3, "node17")
    assert arrived.__suppress_context__


def test_a_setstate_of_the_class_is_used():
    exc = OwnSetstate("x")
    exc.more = 1
    arrived = carried(exc)
    assert arrived.was_set
    assert arrived.more == 1


def test_what_a_class_says_about_its_pickling_is_followed():
    assert carried(OwnReduceEx(1, 2)).protocol == 5
    assert carried(Registered(1)).args == (1, "by copyreg")
    simple = carried(raised(Simplifies("it failed")))
    assert type(simple) is RuntimeError
    assert str(simple) == "simply it failed"
    assert "Simplifies: it failed" in remote_text(simple)


def test_attributes_and_notes_survive():
    exc = Plain("x")
    exc.table = {"a": np.arange(3)}
    exc.__dict__["__notes__"] = ["seed 5"]
    arrived = carried(exc)
    assert arrived.table["a"].tolist() == [0, 1, 2]
    assert arrived.__notes__ == ["seed 5"]


def test_an_exception_may_refer_to_itself():
    exc = Plain("x")
    exc.me = exc
    arrived = carried(exc)
    assert arrived.me is arrived


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups are Python 3.11")
def test_groups_keep_their_members():
    group = ExceptionGroup("several", [ValueError(1), Required(2, detail=0), Frozen(3, "d")])  # noqa: F821
    arrived = carried(raised(group))
    assert type(arrived) is type(group)
    assert arrived.message == "several"
    assert [type(e) for e in arrived.exceptions] == [ValueError, Required, Frozen]
    assert arrived.exceptions[1].code == 2
    assert "several (3 sub-exceptions)" in remote_text(arrived)
