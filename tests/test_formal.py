"""The protocol as a model for Spin: in step with the code, true in every interleaving.

    formal/*.pml    the model; ``descriptor.pml`` says what it checks and what it leaves out
    CASES           every interleaving of each is searched; together they take every step there is
    BUGS            what somebody could get wrong, planted in the model one by one

Where ``model`` takes the real code through its interleavings, here the protocol is written down a
second time, apart from the code: small enough to be read, and for several mishaps in one case (two
deaths, a kill, an evicted row that is freed).  It needs ``spin`` and a C compiler
(Debian: apt install spin gcc).

Prior art: G. Holzmann, The SPIN Model Checker, 2003.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

from workpool.protocol import TRANSITIONS, State, Step

MODEL = Path(__file__).parent / "formal"
TABLE = (MODEL / "protocol.pml").read_text()

MEMORY_MIB = 1000
DEPTH = 20_000  # of the longest run, in steps of the model: a longer one is an error
LIMIT_S = 150


def has_spin() -> bool:
    """Return whether Spin is here, and a C compiler; what PyPI calls spin is another program."""
    if not (shutil.which("spin") and shutil.which("cc")):
        return False
    done = subprocess.run(["spin", "-V"], stdout=subprocess.PIPE, timeout=LIMIT_S)
    return done.stdout.startswith(b"Spin Version")


checked = [
    pytest.mark.model,
    pytest.mark.skipif(
        not has_spin(),
        reason="no spin, or no cc, on PATH (Debian: apt install spin gcc)",
    ),
]


class Case(NamedTuple):
    """A case whose every interleaving is searched."""

    options: str  # of case.pml
    least: int  # thousand states, some two thirds of what there are: it must not shrink unnoticed


CASES = {
    "three tasks": Case("TASKS=3 ROWS=2", 160),
    "both workers die": Case("CRASHES=2", 50),
    "one is evicted, one dies": Case("SUSPICIONS=1 CRASHES=1", 110),
    "contributions": Case("CONTRIBUTES=1 SUSPICIONS=1 CRASHES=1", 200),
    "contributions, three tasks": Case("CONTRIBUTES=1 TASKS=3 SUSPICIONS=1 CRASHES=1", 570),
    "pieces": Case("PIECES=1 SUSPICIONS=1 CRASHES=1", 380),
    "cancelled and killed": Case("CANCELS=1 KILLS=1 CRASHES=1", 220),
    "batch, one is evicted": Case("BATCH=2 ROWS=2 RECALLS=1 SUSPICIONS=1", 380),
    "batch, one dies": Case("BATCH=2 ROWS=2 RECALLS=1 CRASHES=1", 420),
    "strides, one is evicted": Case("BATCH=2 STRIDES=1 ROWS=2 RECALLS=1 SUSPICIONS=1", 1320),
    "strides, one dies": Case("BATCH=2 STRIDES=1 ROWS=2 RECALLS=1 CRASHES=1", 1210),
    "two submitters": Case("SECOND=1", 15),
    "two submitters, one is taken for dead": Case("SECOND=1 ROWS=2 HASTY=1", 420),
    "two submitters, one dies": Case("SECOND=1 ROWS=2 CRASHES=1", 240),
    "three workers, two die": Case("WORKERS=3 TASKS=1 CRASHES=2", 400),
}


class Bug(NamedTuple):
    """A planted bug, and a case that shows it."""

    case: str
    rule: str  # what is found when every step is checked
    harm: str = ""  # what is found when only consequences count, if it is something else


BUGS = {
    # Nothing is published before the flush that completes it.
    "PUBLISH_UNFLUSHED": Bug("three tasks", "another descriptor"),
    "REQUEST_UNFLUSHED": Bug("pieces", "another request"),
    "ANSWER_UNFLUSHED": Bug("pieces", "another answer"),
    "TASK_UNFLUSHED": Bug("batch, one is evicted", "another first outcome"),
    "OUTCOME_UNFLUSHED": Bug("three tasks", "another outcome"),
    "CONTRIBUTION_UNFLUSHED": Bug("contributions", "DONE before it is counted"),
    "CONTRIBUTION_FIRST": Bug("contributions", "a task counts twice"),
    "DESCRIPTOR_FIRST": Bug("three tasks", "another descriptor"),
    # Each compare-and-swap compares with the word that its caller holds, and its answer counts.
    "RESERVE_IGNORED": Bug("two submitters", "not its descriptor", "another descriptor"),
    "PUBLISH_IGNORED": Bug("two submitters, one is taken for dead", "a task is lost"),
    "CLAIM_IGNORED": Bug("three tasks", "an attempt runs twice"),
    "CANCEL_IGNORED": Bug("cancelled and killed", "a row is left"),
    "RECLAIM_IGNORED": Bug("one is evicted, one dies", "a task is lost"),
    "EVICTION_IGNORED": Bug("one is evicted, one dies", "a task is lost"),
    "NEXT_FRESH": Bug("batch, one is evicted", "no next after a recall", "another task ran"),
    "COMPLETE_FRESH": Bug("one is evicted, one dies", "no such step", "a task is lost"),
    "RECLAIM_FRESH": Bug("one is evicted, one dies", "no such step", "a task is lost"),
    "RECLAIM_COMMITTED": Bug("contributions", "no such step", "a task counts twice"),
    "RECALL_FORGETFUL": Bug("batch, one is evicted", "another task ran"),
    "GIVE_BACK_UNFLUSHED": Bug("strides, one is evicted", "another first outcome"),
    "GIVE_BACK_FRESH": Bug("strides, one is evicted", "no such step", "a row is left"),
    # A row is used anew when nothing of its former owner can land any more.
    "FREED_AT_ONCE": Bug("one is evicted, one dies", "not its step", "another outcome"),
    "LET_GO_UNFLUSHED": Bug("one is evicted, one dies", "not its record", "another outcome"),
    "BURIED_EARLY": Bug("both workers die", "not its step", "another outcome"),
}


# --- in step with the code ----------------------------------------------------------------------


def edges() -> list[tuple[str, str, str]]:
    """Return the model's table: names of a state, a step, and the state that it leads to."""
    return re.findall(r"^ +EDGE\((\w+), +(\w+), +(\w+)\)", TABLE, re.MULTILINE)


def numbers(text: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"^#define (\w+) +(\d+)\b", text, re.M)}


def test_the_model_has_the_table_of_the_protocol() -> None:
    assert len(edges()) == TABLE.count("EDGE(") - 1, "a line of the table is not understood"
    ours = {(a.name, step.name, b.name) for (a, step), b in TRANSITIONS.items()}
    assert sorted(edges()) == sorted(ours)


def test_the_model_has_the_states_and_steps_of_the_protocol() -> None:
    found = numbers(TABLE)
    assert found.pop("STEPS") == len(Step)
    assert {name: found.pop(name) for name in State.__members__} == State.__members__
    assert sorted(found) == sorted(step.name for step in Step)
    assert sorted(found.values()) == list(range(len(Step)))


def test_every_bug_of_the_model_is_planted() -> None:
    case = (MODEL / "case.pml").read_text()
    names = numbers(case[case.index("bugs to plant") :])
    assert sorted(names) == sorted(BUGS)
    assert sorted(names.values()) == list(range(1, 1 + len(BUGS)))
    model = "".join(path.read_text() for path in MODEL.glob("*.pml") if path.name != "case.pml")
    used = case[case.index("#if BUG") :] + model
    assert not [name for name in BUGS if name not in used]


# --- every interleaving -------------------------------------------------------------------------


class Search(NamedTuple):
    """What a search has found."""

    said: str
    states: int
    broken: str  # the property, empty if none was
    steps: frozenset[tuple[int, int, int]]  # that were taken


def call(place: Path, *command: str, blind: bool = False) -> str:
    """Run a command in a directory, and return all that it says."""
    return subprocess.run(
        command,
        cwd=place,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LIMIT_S,
        env=os.environ | {"LC_ALL": "C", "BLIND": str(int(blind))},
    ).stdout


def make(place: Path, options: str, cycles: bool = False) -> None:
    """Make the program ``a.out`` that searches a case; ``{blind}`` asks it when it runs."""
    given = [f"-D{option}" for option in options.split()]
    said = call(place, "spin", "-Pcc -E -x c", *given, "-a", str(MODEL / "descriptor.pml"))
    # Optimized it would take longer to compile than it saves.
    flags = [
        "-O0",
        "-w",
        "-Dblind=(*getenv(\"BLIND\")=='1')",
        "-DNOREDUCE",
        f"-DMEMLIM={MEMORY_MIB}",
    ]
    flags += ["-DNP"] if cycles else ["-DSAFETY", "-DPRINTF"]
    said += call(place, "cc", *flags, "pan.c")
    assert (place / "a.out").exists(), said


def run(place: Path, cycles: bool = False, blind: bool = False) -> Search:
    """Search every interleaving, or, with `cycles`, for runs that do not end."""
    said = call(place, "./a.out", f"-m{DEPTH}", *(["-l"] if cycles else []), blind=blind)
    # What is not exhaustive says nothing: too little memory, too small a depth.
    stored = re.search(r"(\d+) states, stored", said)
    errors = re.search(r"errors: (\d+)", said)
    assert stored is not None, said
    assert errors is not None, said
    assert "pan: reached" not in said, said
    assert "too small" not in said, said
    named = re.search(r"^broken: (.+)$", said, re.MULTILINE)
    other = re.search(r"^pan:1: (.+)$", said, re.MULTILINE)
    assert bool(other) == (errors[1] != "0"), said
    broken = named[1] if named else other[1] if other else ""
    assert broken or "Search not completed" not in said, said
    steps = re.findall(r"^ *step (\d+) (\d+) (\d+)$", said, re.MULTILINE)
    taken = frozenset((int(a), int(step), int(b)) for a, step, b in steps)
    return Search(said, int(stored[1]), broken, taken)


@cache
def search(options: str) -> Search:
    """Search every interleaving of a case, once."""
    with TemporaryDirectory() as place:
        make(Path(place), options)
        return run(Path(place))


class TestSearch:
    pytestmark = checked

    @pytest.mark.parametrize("name", CASES)
    def test_every_interleaving(self, name: str) -> None:
        found = search(CASES[name].options)
        assert not found.broken, found.said
        assert found.states >= 1000 * CASES[name].least, found.said

    def test_every_step_is_taken(self) -> None:
        number = numbers(TABLE)
        table = {(number[a], number[step], number[b]) for a, step, b in edges()}
        assert table == frozenset().union(*(search(case.options).steps for case in CASES.values()))

    @pytest.mark.parametrize("options", ["CRASHES=2", "PIECES=1 SUSPICIONS=1", "SECOND=1 HASTY=1"])
    def test_every_run_ends(self, tmp_path: Path, options: str) -> None:
        """There is no way in circles, so nobody waits for ever, however unfair the turns are."""
        make(tmp_path, options, cycles=True)
        found = run(tmp_path, cycles=True)
        assert not found.broken, found.said

    @pytest.mark.parametrize("name", BUGS)
    def test_planted_bug_is_found(self, tmp_path: Path, name: str) -> None:
        case, rule, harm = BUGS[name]
        make(tmp_path, f"{CASES[case].options} BUG={name} BLIND=c_expr{{blind}}")
        assert run(tmp_path).broken == rule
        assert run(tmp_path, blind=True).broken == (harm or rule)
