"""Bugs that are planted one by one into the real code are found, by the rules and by their harm.

``model.bugs`` and ``model.user_bugs`` have them.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from typing import Any

import pytest
from model import METHODS, SECOND, case, explore_tickets
from model.bugs import BUGS
from model.user_bugs import USER_BUGS

from workpool import protocol
from workpool.protocol import TRANSITIONS, State, Step
from workpool.repository import TAKERS, Claimant, PointerTaker, Publisher
from workpool.testing import Found

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

ALL = BUGS | USER_BUGS


def plant(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str, edits: list[tuple[str, str]]
) -> None:
    """Change the source of a method, and put the result in its place."""
    function = getattr(owner, method)
    source = textwrap.dedent(inspect.getsource(getattr(function, "fget", function)))
    for text, instead in edits:
        assert source.count(text) == 1, f"{method} has {source.count(text)} times {text!r}"
        source = source.replace(text, instead)
    found: dict[str, Any] = {}
    exec(compile(source, f"<{method}>", "exec"), vars(sys.modules[owner.__module__]), found)
    monkeypatch.setattr(owner, method, found[method])


def check_found(method: str, options: dict[str, Any], rule: str, harm: str | None) -> None:
    """Check that the explorer notices at once who breaks a rule, and what it would lead to."""
    with pytest.raises(Found, match=rule):
        case(method, eager=True, **options).run()
    if harm is None:
        return  # no rule was broken before it: a blind search would take the same way
    blind = case(method, eager=True, blind=True, **options)
    if harm:
        with pytest.raises(Found, match=harm):
            blind.run()
    else:
        blind.run()


@pytest.mark.parametrize(
    ("name", "method"), [(name, method) for name in ALL for method in ALL[name].methods]
)
def test_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, name: str, method: str) -> None:
    bug = ALL[name]
    plant(monkeypatch, bug.owner, bug.method, bug.edits)
    check_found(method, bug.options, bug.rule, bug.harm)


@pytest.mark.parametrize("method", METHODS)
def test_an_evicted_row_may_not_be_free_at_once(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    for state in (State.CLAIMED, State.WANTED, State.OFFERED):
        monkeypatch.setitem(TRANSITIONS, (state, Step.RECLAIM), State.FREE)
        monkeypatch.setitem(protocol._AFTER[Step.RECLAIM], int(state), int(State.FREE))
    options = {"tasks": 1, "suspicions": 1, "rows": 1}
    harm = "the outcome of task 0, ticket 1, owner 1 reads"
    check_found(method, options, "writes the outcome of row 0, FREE", harm)


LOST_HEAD = "if found == head:", "if True:"
PAST_TAIL = "if first < self._tail:", "if first <= self._tail:"

TICKET_BUGS = {
    "a lost head ignored": (PointerTaker, "take", LOST_HEAD, "a ticket was given twice"),
    "the head passes the tail": (PointerTaker, "take", PAST_TAIL, "beyond the tail"),
    "the head passes a row that nobody has claimed": (
        PointerTaker,
        "owed",
        ("self.head, self.first)", "self.head, self.first + 1)"),
        "HEAD is left at 4",
    ),
    "a row is passed with the one that was claimed": (
        PointerTaker,
        "pass_first",
        ("self.first += 1", "self.first += 2"),
        "of 3 tickets only",
    ),
    "the head is moved back": (
        PointerTaker,
        "owed",
        ("(layout.HEAD, self.head,", "(layout.HEAD, self._window.load(layout.HEAD),"),
        "HEAD goes from",
    ),
    "the head is never moved past rows that were claimed without tickets": (
        PointerTaker,
        "take",
        ("if end == head:", "if end == first:"),
        "HEAD is left at",
    ),
    "a ticket is dropped with that of the row that was claimed": (
        TAKERS["counter"],
        "pass_first",
        ("self._held[1:]", "self._held[2:]"),
        "of 4 tickets only",
    ),
}


@pytest.mark.parametrize("name", TICKET_BUGS)
def test_planted_bug_in_tickets_is_found(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    owner, step, edit, says = TICKET_BUGS[name]
    plant(monkeypatch, owner, step, [edit])
    with pytest.raises(Found, match=says):
        explore_tickets("pointer" if owner is PointerTaker else "counter")


HARMLESS = {
    "a lost head ignored": (PointerTaker, "take", LOST_HEAD, "pointer"),
    "the head passes the tail": (PointerTaker, "take", PAST_TAIL, "pointer"),
    "the ticket of a row not compared": (
        Claimant,
        "take",
        ("State.READY and self.geometry.ticket(number, word) == ticket", "State.READY"),
        "counter",
    ),
    "the tail not pushed when the first attempt is lost": (
        Publisher,
        "_push_tail",
        ("while tail != seen and tail < end:", "while False:"),
        "pointer",
    ),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_wrong_tickets_lose_nothing(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The row's word alone decides: who looks in the wrong place only finds less, and later."""
    owner, step, edit, method = HARMLESS[name]
    plant(monkeypatch, owner, step, [edit])
    case(method, 2, eager=True).run()
    case(method, eager=True, **SECOND).run()
