"""Which of the processes that lead to other hosts ended first."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Iterator

import pytest

from workpool.launch.routes import Routes

HOSTS = ["a.cluster", "b.cluster"]


@pytest.fixture
def ways() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start what has a name on its command line, as ssh has that of its host."""
    words = ["ssh", "me@b", "a.cluster", "a,b"]
    started = [subprocess.Popen(["sleep", "60"])]
    started += [
        subprocess.Popen(["sh", "-c", "echo; read line", word], stdin=-1, stdout=-1)
        for word in words
    ]
    for process in started[1:]:  # a process has no command line for a moment after its start
        assert process.stdout
        assert process.stdout.readline()
    yield started
    for process in started:
        process.kill()
        process.communicate()


def test_the_first_to_end_is_known(ways: list[subprocess.Popen[bytes]]) -> None:
    routes = Routes()
    for known in (HOSTS[:1], HOSTS):  # anew, as more of them are
        routes.find([way.pid for way in ways] + [1 << 22], known)
    routes.look()
    assert (routes.ended, len(routes.fds)) == (set(), 2)
    ways[2].kill()
    assert select.select(routes.fds, [], [], 10)[0]
    routes.look()
    ways[3].kill()
    ways[3].wait()
    routes.look()
    assert (routes.ended, len(routes.fds)) == ({"b.cluster"}, 0)


def test_nothing_is_known_under_a_python_that_knows_of_no_such_descriptors(
    ways: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was built where the system's headers are old: conda's."""
    monkeypatch.delattr(os, "pidfd_open")
    routes = Routes()
    routes.find([way.pid for way in ways], HOSTS)
    assert not routes.fds


def test_nothing_is_known_without_all_of_them(ways: list[subprocess.Popen[bytes]]) -> None:
    routes = Routes()
    routes.find([way.pid for way in ways], [*HOSTS, "c.cluster"])
    assert not routes.fds
    routes.look()
    assert not routes.ended


def test_what_names_several_hosts_leads_to_none() -> None:
    routes = Routes()
    command = ["sh", "-c", "echo; read line", "a", "b"]
    with subprocess.Popen(command, stdin=-1, stdout=-1) as mpiexec:
        assert mpiexec.stdout is not None
        mpiexec.stdout.readline()  # else it may have no words yet
        routes.find([mpiexec.pid], HOSTS)
        assert not routes.fds
        mpiexec.kill()
