"""The command line: what it refuses, what it starts, and what it says on a rank."""

from __future__ import annotations

import os
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from jobs import ROOT, Job
from launching import by_hand

import workpool
from workpool.errors import ResourceError
from workpool.launch import cli, launcher, mpiexec, program
from workpool.launch.mpiexec import Kind, library
from workpool.system import ranks
from workpool.system.cores import cores
from workpool.system.python import python

# What it refuses: one line, status 2, nothing started.


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], int, dict[str, object]]]:
    """Collect what would be started."""
    calls: list[tuple[list[str], int, dict[str, object]]] = []

    def run(command: list[str], ranks: int, **options: object) -> int:
        calls.append((command, ranks, options))
        return 7

    monkeypatch.setattr(launcher, "run", run)
    return calls


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("run -w 2 missing.py", "'missing.py'"),
        ("run -w 2 -m missing_module", "'missing_module'"),
        ("run -w 0 x.py", "'0' workers"),
        ("run -w -1 x.py", "'-1' workers"),
        (f"run -w 100000000 {__file__}", "-w 100000000: so many ranks take more than the"),
        ("run --workers two x.py", "'two' workers"),
        ("run --frob x.py", "--frob"),
        ("run --worker 2 x.py", "unknown option --worker "),
        ("run -n 3 x.py", "unknown option -n (-w N is the number of workers"),
        ("run --mpi-args it's x.py", "No closing quotation"),
        ("run --grace soon x.py", "'soon'"),
        ("run -w 2", "no program"),
        ("run -m", "-m needs a module"),
        ("run -w", "-w/--workers"),
        ("info extra", "extra"),
        ("frob", "'frob'"),
        ("x.py", "to run a program: workpool run"),
        ("-w 2 x.py", "no command '-w'"),
    ],
)
def test_refused(
    words: str, named: str, started: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = cli.main(words.split())
    except SystemExit as end:  # argparse's way
        status = end.code  # type: ignore[assignment]
    out, err = capsys.readouterr()
    assert (status, out, started) == (2, "", [])
    assert err.startswith("workpool")
    assert err.count("\n") == 1
    assert named in err


def test_ranks_know_the_commands() -> None:
    assert set(program.COMMANDS) == set(cli._COMMANDS)


def test_nothing_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "info" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["-h"], ["run", "-h"], ["info", "--help"], ["bench", "-h"]])
def test_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert end.value.code == 0
    assert "usage: workpool" in capsys.readouterr().out


@pytest.mark.parametrize("script", ["run", "test", "demos", "lint", "bench", "chaos"])
def test_help_of_a_script_installs_nothing(script: str, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHON": "/no/python", "WORKPOOL_VENVS": str(tmp_path)}
    command = ["sh", str(ROOT / "scripts" / script), "--mpi", "openmpi", "--help"]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=20)
    assert f"sh scripts/{script} [--mpi" in ended.stdout
    assert "set -eu" not in ended.stdout
    assert (ended.returncode, ended.stderr, list(tmp_path.iterdir())) == (0, "", [])


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out[0].isdigit()


def test_type_checkers_find_the_types() -> None:
    assert (Path(workpool.__file__).parent / "py.typed").is_file()


def test_no_mpiexec(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def find(given: str | None = None) -> None:
        raise ResourceError("no mpiexec of MPICH")

    monkeypatch.setattr(launcher, "find", find)
    assert cli.main(["run", "-c", "pass"]) == 1
    assert capsys.readouterr().err == "workpool run: no mpiexec of MPICH\n"


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({}, False),
        ({"PMI_RANK": "0", "PMI_FD": "99"}, True),
        ({"PMI_RANK": "0", "PMI_FD": "99", "PMI_SIZE": "1"}, False),  # a step's shell, say
    ],
)
def test_a_command_is_a_program_to_a_rank_alone(
    tmp_path: Path, variables: dict[str, str], rank: bool
) -> None:
    env = {**ranks.without_rank(), **variables}
    (tmp_path / "run").mkdir()  # as many a project has
    command = [sys.executable, "-m", "workpool", "run", "-w", "0", "x.py"]
    ended = subprocess.run(
        command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=20
    )
    assert ended.returncode != 0
    assert ended.stderr.startswith("workpool run: argument -w") != rank


def test_inside_a_rank(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PMI_RANK", "3")
    monkeypatch.setenv("PMI_FD", "7")
    assert cli.main(["run", "-c", "pass"]) == 2
    assert "already (PMI_RANK=3)" in capsys.readouterr().err


def test_the_shell_of_a_step_is_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of ``srun --pty bash``, with each of Slurm's ways to start MPI programs."""
    for name, size, line in (
        ("PMI_RANK", "PMI_SIZE", "PMI_FD"),
        ("PMIX_RANK", "SLURM_STEP_NUM_TASKS", "PMIX_NAMESPACE"),
    ):
        with monkeypatch.context() as step:
            step.setenv(name, "0")
            step.setenv(line, "7")
            for tasks, alone in (("1", True), ("2", False)):
                step.setenv(size, tasks)
                assert ranks.is_alone() is alone
            step.setenv("PMIX_MCA_gds", "hash")
            left = ranks.without_rank()
            assert not left.keys() & {name, line}
            assert left["PMIX_MCA_gds"] == "hash"


# What it starts.


@pytest.mark.parametrize(
    ("words", "ranks", "command"),
    [
        (["-w", "3", "-c", "pass", "-w", "9"], 4, ["-c", "pass", "-w", "9"]),
        (["--workers=2", "--", "-"], 3, ["-"]),
        (["-w1", "-m", "json.tool", "--help"], 2, ["-m", "json.tool", "--help"]),
        (["-w", "1", __file__, "-h"], 2, [__file__, "-h"]),
    ],
)
def test_run(
    words: list[str],
    ranks: int,
    command: list[str],
    started: list[tuple[list[str], int, dict[str, object]]],
) -> None:
    assert cli.main(["run", *words]) == 7
    assert started[0][:2] == ([*python(), "-m", "workpool", *command], ranks)


def test_options(started: list[tuple[list[str], int, dict[str, object]]]) -> None:
    words = ["run", "--mpiexec", "/x", "--mpi-args", "-x 'A B'", "--grace", "0.5", "-c", "pass"]
    assert cli.main(words) == 7
    given = {"mpiexec": "/x", "mpi_args": ["-x", "A B"], "grace_s": 0.5}
    assert started[0][2] == {**given, "survive": False, "interactive": False}
    for one in ("-hosts a,b", "--oversubscribe", "-wdir /x"):
        assert cli.main(["run", "--mpi-args", one, "-c", "pass", "--mpi-args", "x"]) == 7
        assert started.pop()[2]["mpi_args"] == one.split()
    assert cli.main(["run", "--survive", "--grace", "0", "-c", "pass", "--survive"]) == 7
    assert started[1][2] == {**started[1][2], "survive": True, "grace_s": 0}
    assert started[0][1] == cores() + 1


def test_an_interrupt_before_there_is_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: object, **options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(launcher, "run", interrupted)
    assert cli.main(["run", "-c", "pass"]) == 130


def test_a_batch_job_is_filled(
    monkeypatch: pytest.MonkeyPatch, started: list[tuple[list[str], int, dict[str, object]]]
) -> None:
    for given, size in (("64", 64), ("2", 2), ("1", cores() + 1), ("2(x3)", cores() + 1)):
        monkeypatch.setenv("SLURM_NTASKS", given)
        assert cli.main(["run", "-c", "pass"]) == 7
        assert started.pop()[1] == size


# python -m workpool, on a rank.


@pytest.mark.parametrize(
    ("words", "status", "named"),
    [
        (["-h"], 0, "usage: mpiexec"),
        ([], 2, "usage: mpiexec"),
        (["--frob"], 2, "python -m workpool: unknown option '--frob'"),
    ],
)
def test_once_and_not_once_for_each_rank(words: list[str], status: int, named: str) -> None:
    program = "from workpool import __main__ as main; main._PATIENCE_S = 0.1; main.run()"
    command = [sys.executable, "-c", program, *words]
    for rank, expected in (("0", named), ("1", "")):
        ran = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PMI_RANK": rank, "PMI_FD": "7"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ran.returncode == status
        assert (ran.stdout + ran.stderr)[: len(named)] == expected


@pytest.mark.mpi
def test_missing_script_under_mpiexec() -> None:
    with by_hand("missing.py") as started:
        ended = started.wait()
    assert ended.status == 2
    assert ended.err.count("missing.py") == 1


@pytest.mark.mpi
def test_srun_that_starts_no_ranks() -> None:
    """By default it does so: each process would be a driver, and run the script."""
    text = "import os; print('SLURM_STEP_NUM_TASKS' in os.environ)"
    for tasks, status, out in (("3", 2, ""), ("1", 0, "False\n")):
        env = {**ranks.without_rank(), "SLURM_STEP_NUM_TASKS": tasks}
        with Job([sys.executable, "-m", "workpool", "-c", text], env) as started:
            ended = started.wait()
        assert (ended.status, ended.out) == (status, out)
        assert ended.err.startswith("python -m workpool: srun has started this 3 times" * (not out))


@pytest.mark.mpi
def test_the_host_of_a_worker_needs_no_script(tmp_path: Path) -> None:
    (tmp_path / "driver.py").write_text(
        "import os, workpool as w; print(w.WorkPool().submit(os.getcwd).result())"
    )
    text = 'test "${PMI_RANK:-$OMPI_COMM_WORLD_RANK}" = 0 || cd /; exec "$@" -m workpool driver.py'
    found = mpiexec.find()
    command = mpiexec.command_line(found, 2, ["sh", "-c", text, "sh", sys.executable])
    variables = mpiexec.environment(found.kind, os.environ)
    with Job(command, variables, cwd=tmp_path, lasting=True) as started:
        assert started.wait()[:2] == (0, "/\n")


def test_a_python_that_has_no_mpi4py() -> None:
    text = "import sys; sys.modules['mpi4py'] = None; import workpool; workpool.WorkPool()"
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert f"{sys.executable} has no mpi4py: use the Python of the environment" in ran.stderr
    assert ran.stderr.count("Traceback") == 1


def test_an_mpi_that_cannot_be_loaded() -> None:
    """What it lacks is told, and not where else mpi4py has looked."""
    text = (
        "import sys, types\n"
        "class Fake(types.ModuleType):\n"
        "    def __getattr__(self, name):\n"
        "        raise RuntimeError('none\\n/a/libmpi.so: cannot open\\nlibnet.so: no such file')\n"
        "sys.modules['mpi4py'] = Fake('mpi4py')\n"
        "sys.modules['mpi4py'].__path__ = ['']\n"
        "import workpool; workpool.WorkPool()\n"
    )
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert f"in {sys.executable}: none; libnet.so: no such file: install one" in ran.stderr
    assert ran.stderr.count("Traceback") == 1


def test_an_environment_on_top_of_another_has_its_mpi(tmp_path: Path) -> None:
    """As `uv run --with` makes one."""
    venv.create(tmp_path, symlinks=True)
    (place,) = tmp_path.glob("lib/python*/site-packages")
    below = filter(os.path.exists, site.getsitepackages())
    (place / "below.pth").write_text("\n".join([str(ROOT), *below]))
    text = "from mpi4py import rc; rc.initialize = False; import workpool.rma.mpi"
    env = {name: it for name, it in os.environ.items() if name != "PYTHONPATH"}
    command = [tmp_path / "bin" / "python", "-c", text]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.mpi
@pytest.mark.parametrize("rank", [0, 1])
def test_an_mpiexec_of_another_mpi(rank: int) -> None:
    """Every rank believes that it is alone, and would run the whole program."""
    line = "PMI_FD" if library().kind is Kind.OPENMPI else "PMI_CONTROL_PORT"  # as Cray has it
    ran = subprocess.run(
        [sys.executable, "-m", "workpool", "-c", "print('ran')"],
        env={**os.environ, "PMI_SIZE": "3", "PMI_RANK": str(rank), line: "7"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ("3 ranks were started" in ran.stderr) == (rank == 0)


@pytest.mark.mpi
@pytest.mark.smoke
def test_info() -> None:
    with Job([sys.executable, "-m", "workpool.launch.cli", "info"]) as started:
        ended = started.wait()
    assert ended.status == 0, ended.err
    assert mpiexec.find().path in ended.out
    lines = "MPI library", "thread level", "window flavour", "memory model", "progress", "fetch_add"
    for shown in lines:
        assert shown in ended.out
