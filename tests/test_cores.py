"""How many cores a process may keep busy, where its control groups have a quota or none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from workpool.system.cores import cores

V1 = "4:cpu,cpuacct:/docker/77\n3:cpuset:/\n"
V2 = "0::/a.slice/b\n"


@pytest.mark.parametrize(
    ("groups", "files", "found"),
    [
        (V2, {"cpu.max": "200000 100000"}, 2),
        (V2, {"a.slice/cpu.max": "250000 100000", "a.slice/b/cpu.max": "max 100000"}, 3),
        (V2, {"a.slice/b/cpu.max": "10000 100000", "cpu.max": "400000 100000"}, 1),
        (V2, {"a.slice/b/cpu.max": "6400000 100000"}, 8),
        (V1, {"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        (V1, {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        (V1 + V2, {"cpu/docker/77/cpu.cfs_quota_us": "1"}, 8),
        ("", {}, 8),
        (None, {}, 8),
    ],
)
def test_no_more_than_the_quota_is_worth(
    groups: str | None,
    files: dict[str, str],
    found: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    root = tmp_path / "root"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    if groups is not None:
        (tmp_path / "groups").write_text(groups)
    assert cores(str(tmp_path / "groups"), str(root)) == found


def test_here() -> None:
    assert 1 <= cores() <= len(os.sched_getaffinity(0))
