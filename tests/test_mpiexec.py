"""Which mpiexec is taken, and what it is given."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from workpool.errors import ResourceError
from workpool.launch import mpiexec
from workpool.launch.mpiexec import Kind, Library, Mpiexec
from workpool.system import ranks, shared_memory

ROOT = Path(__file__).resolve().parent.parent

HYDRA = "HYDRA build details:\n    Version:    5.0.2"
PRTE = "mpiexec (Open MPI) 5.0.11"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("MPICH Version:      5.0.2", Kind.MPICH),
        (HYDRA, Kind.MPICH),
        ("MVAPICH2 Version      :\t2.3.7", Kind.MPICH),
        ("MPI VERSION    : CRAY MPICH version 8.1.28", Kind.MPICH),
        ("Open MPI v5.0.11, package: Open MPI user@host", Kind.OPENMPI),
        (PRTE, Kind.OPENMPI),
        ("mpirun (Open MPI) 4.1.4", Kind.OPENMPI),
        ("mpiexec (OpenRTE) 4.0.3", Kind.OPENMPI),
        ("Intel(R) MPI Library 2021.18 for Linux* OS", Kind.INTEL),
        ("slurm 23.11.4", Kind.OTHER),
        ("", Kind.OTHER),
    ],
)
def test_kind(text: str, kind: Kind) -> None:
    assert Kind.of(text) is kind


def put(place: Path, version: str, name: str = "mpiexec") -> str:
    """Put a program there that says it is of this version."""
    place.mkdir(parents=True, exist_ok=True)
    program = place / name
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{version}\nEND\n")
    program.chmod(0o755)
    return str(program)


@pytest.fixture
def mpich(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have mpi4py load MPICH from a prefix, with nothing beside this Python or on the PATH."""
    path = tmp_path / "prefix" / "lib" / "libmpi.so.12"
    monkeypatch.setattr(mpiexec, "library", lambda: Library(Kind.MPICH, "MPICH 5.0.2", path))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "bin" / "python"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "get_exec_path", lambda: [str(tmp_path / "path")])
    return tmp_path


@pytest.mark.parametrize("place", ["prefix/bin", "bin", "venv/bin", "path"])
def test_found(mpich: Path, place: str) -> None:
    own = put(mpich / place, HYDRA)
    assert mpiexec.find() == Mpiexec(own, Kind.MPICH)


def test_beside_the_library_first(mpich: Path) -> None:
    for place in ("path", "venv/bin"):
        put(mpich / place, HYDRA)
    own = put(mpich / "prefix/bin", HYDRA)
    assert mpiexec.find().path == own


def test_another_kind_is_passed_over(mpich: Path) -> None:
    put(mpich / "prefix/bin", PRTE)
    put(mpich / "path", PRTE)
    own = put(mpich / "path", HYDRA, "mpiexec.mpich")
    assert mpiexec.find().path == own


def test_what_cannot_be_run_is_passed_over(mpich: Path) -> None:
    Path(put(mpich / "prefix/bin", HYDRA)).write_text("#!/nowhere\n")
    own = put(mpich / "path", HYDRA)
    assert mpiexec.find().path == own


def test_none_found(mpich: Path) -> None:
    other = put(mpich / "path", PRTE)
    with pytest.raises(ResourceError) as caught:
        mpiexec.find()
    message = str(caught.value)
    assert f"{other} is that of Open MPI" in message
    assert "mpi4py loads MPICH 5.0.2 from" in message
    assert "--mpiexec" in message


@pytest.mark.parametrize("version", [HYDRA, "a script of the site's own"])
def test_given(mpich: Path, version: str) -> None:
    own = put(mpich / "anywhere", version)
    assert mpiexec.find(own).path == own
    by_path = put(mpich / "path", version)
    assert mpiexec.find("mpiexec").path == by_path


def test_given_of_another_kind(mpich: Path) -> None:
    other = put(mpich / "anywhere", PRTE)
    with pytest.raises(ResourceError, match=r"that of Open MPI, but mpi4py loads MPICH"):
        mpiexec.find(other)


def test_given_but_not_there(mpich: Path) -> None:
    with pytest.raises(ResourceError, match=r"--mpiexec nowhere: no such program"):
        mpiexec.find("nowhere")


def test_library_does_not_start_mpi() -> None:
    code = """
import os, sys
from workpool.launch import cli, mpiexec
assert "mpi4py" not in sys.modules
assert mpiexec.library().kind is not mpiexec.Kind.OTHER
from mpi4py import MPI
assert not MPI.Is_initialized()
assert "MPI4PY_RC_INITIALIZE" not in os.environ
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


def test_real_one_belongs_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPI4PY_RC_INITIALIZE", "0")
    library = mpiexec.library.__wrapped__()
    assert mpiexec.find().kind is library.kind
    assert library.path is not None
    assert "mpi" in library.path.name
    assert os.environ["MPI4PY_RC_INITIALIZE"] == "0"  # the ranks get what the user wants


HYDRA_HERE = Mpiexec("/x/mpiexec", Kind.MPICH)
PRTE_HERE = Mpiexec("/x/mpiexec", Kind.OPENMPI)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be on no batch system."""
    for name in mpiexec._ALLOCATED:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("alone")
def test_command_line() -> None:
    assert mpiexec.command_line(HYDRA_HERE, 3, ["a", "b"], ["-x"]) == (
        ["/x/mpiexec", "-x", "-n", "3", "a", "b"]
    )
    assert mpiexec.command_line(PRTE_HERE, 3, ["a"]) == (
        ["/x/mpiexec", "--oversubscribe", "--bind-to", "none", "-n", "3", "a"]
    )
    words = mpiexec.command_line(HYDRA_HERE, 3, ["a"], survive=True)
    assert (words[1], words[-1]) == ("-disable-auto-cleanup", "a")
    with pytest.raises(ResourceError, match="unknown to workpool: --survive needs one of"):
        mpiexec.command_line(Mpiexec("/x/mpiexec", Kind.OTHER), 3, ["a"], survive=True)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    "words",
    [
        *(["-H", "a:4"], ["--host", "a"], ["--hostfile", "f"], ["--map-by", "node"], ["-f", "f"]),
        *(["--hostfile=f"], ["-hosts=a,b"], ["--host=a:4"], ["-machinefile=m"]),
    ],
)
def test_the_users_placement_stands(words: list[str]) -> None:
    assert mpiexec.placed(words)
    assert "--oversubscribe" not in mpiexec.command_line(PRTE_HERE, 3, ["a"], words)


@pytest.mark.usefixtures("alone")
def test_the_users_binding_stands() -> None:
    command = mpiexec.command_line(PRTE_HERE, 3, ["a"], ["--bind-to", "core"])
    assert command.count("--bind-to") == 1
    assert not mpiexec.placed(["--bind-to", "core"])


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    "name", ["SLURM_JOB_ID", "PBS_NODEFILE", "LSB_JOBID", "PE_HOSTFILE", "HYDRA_HOST_FILE"]
)
def test_a_batch_system_places(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert not mpiexec.placed([])
    monkeypatch.setenv(name, "1")
    assert mpiexec.placed([])


@pytest.mark.usefixtures("alone")
def test_a_task_of_many_cores_has_room_for_many_ranks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def oversubscribed(ranks: int) -> bool:
        return "--oversubscribe" in mpiexec.command_line(PRTE_HERE, ranks, ["a"])

    assert ranks.room() is None
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    assert not oversubscribed(17), "nobody knows"
    monkeypatch.setenv("SLURM_NTASKS", "16")
    assert ranks.room() == 16
    assert not oversubscribed(16)
    assert oversubscribed(17)
    monkeypatch.delenv("SLURM_NTASKS")
    nodes = tmp_path / "nodes"
    nodes.write_text("a\na\nb\n")
    monkeypatch.setenv("PBS_NODEFILE", str(nodes))
    assert ranks.room() == 3


def test_environment() -> None:
    given = {"HOME": "/", "OMPI_MCA_osc": "rdma"}
    assert mpiexec.environment(Kind.MPICH, given) == given
    made = mpiexec.environment(Kind.OPENMPI, given)
    assert (made["HOME"], made["OMPI_MCA_osc"]) == ("/", "rdma")
    assert mpiexec.environment(Kind.OPENMPI, {})["HOME"]
    assert "/place" in mpiexec.environment(Kind.OPENMPI, given, "/place").values()
    assert ("OMPI_ALLOW_RUN_AS_ROOT" in made) == (os.geteuid() == 0)


@pytest.mark.parametrize("adapter", [False, True])
def test_mpi_is_loaded_without_what_nobody_needs(
    monkeypatch: pytest.MonkeyPatch, adapter: bool
) -> None:
    from workpool.rma.mpi import loading

    btl, osc, watch = "OMPI_MCA_btl", "OMPI_MCA_osc", "UCX_MEM_MMAP_HOOK_MODE"
    monkeypatch.setattr(os.path, "isdir", lambda path: adapter)
    monkeypatch.setattr(os, "environ", {btl: "tcp,self"})
    with loading():
        assert os.environ[btl] == "tcp,self"  # the user's
        assert (os.environ.get(watch) == "none") is not adapter
        assert (os.environ.get(osc) == "^ucx") is not adapter
    assert watch not in os.environ  # what a task starts may run elsewhere
    given = {watch: "reloc", "HOME": "/"}
    monkeypatch.setattr(os, "environ", dict(given))
    with loading():
        assert os.environ.items() > given.items()
    assert os.environ.items() > given.items()


@pytest.mark.parametrize(
    ("given", "segments", "ways"),
    [
        ({"PMI_SIZE": "4", "MPI_LOCALNRANKS": "4"}, True, "sysv,self"),
        ({"PMI_SIZE": "4", "MPI_LOCALNRANKS": "4"}, False, "posix,self"),
        ({"PMI_SIZE": "4", "MPI_LOCALNRANKS": "2"}, True, None),
        ({"PMI_SIZE": "4"}, True, None),
        ({}, True, None),
    ],
)
def test_on_one_host_mpich_looks_for_no_network(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], segments: bool, ways: str | None
) -> None:
    from workpool.rma import mpi
    from workpool.rma.mpi import loading

    monkeypatch.setattr(mpi, "segments", lambda: segments)
    monkeypatch.setattr(os.path, "isdir", lambda path: False)
    monkeypatch.setattr(os, "environ", dict(given))
    with loading():
        assert os.environ.get("UCX_TLS") == ways
    assert "UCX_TLS" not in os.environ


@pytest.mark.parametrize(
    ("choice", "left_out"),
    [
        ("", False),
        ("^ucx", False),
        ("sm,ucx", False),
        ("ucx", True),
        ("rdma,pt2pt", True),
        ("^ucx,sm", True),
    ],
)
def test_a_choice_that_leaves_out_shared_memory(
    choice: str, left_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workpool.rma.mpi import unshared

    monkeypatch.setenv("OMPI_MCA_osc", choice)
    assert unshared() == (f"OMPI_MCA_osc={choice}" if left_out else "")


@pytest.mark.parametrize("refused", [False, True])
def test_where_no_process_may_copy_from_another_mpich_does_not_try(
    monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    """It would not start: 2 ranks would wait for ever, 4 break off."""
    from workpool.rma import mpi

    assert shared_memory.may_copy()
    if refused:  # as where seccomp lets nobody call process_vm_readv
        monkeypatch.setattr(mpi, "may_copy", lambda: False)
    monkeypatch.setattr(os, "environ", {})
    with mpi.loading():
        assert os.environ.get("MPIR_CVAR_CH4_CMA_ENABLE") == ("0" if refused else None)


def test_a_process_by_itself_needs_no_home() -> None:
    script = """
        import os
        from workpool import WorkPool

        os.environ.pop("HOME", None)
        with WorkPool() as pool:
            print(pool.submit(pow, 2, 3).result(), "HOME" in os.environ)
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout) == (0, b"8 False\n")


def test_rank_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {})
    assert ranks.rank_here() is None
    assert ranks.may_be_first()
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "20")
    assert ranks.may_be_first()  # the rank of an ancestor
    monkeypatch.setenv("PMIX_NAMESPACE", "job")
    assert ranks.rank_here() == "OMPI_COMM_WORLD_RANK=20"
    assert not ranks.may_be_first()
    ranks.forget_line()
    assert ranks.rank_here() is None
    assert os.environ["OMPI_COMM_WORLD_RANK"] == "20"
    monkeypatch.setenv("PMI_FD", "7")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    assert ranks.may_be_first()


def test_room_for_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "free", lambda: 1_000_000)
    mpiexec.check_room(Kind.OPENMPI, 2)
    with pytest.raises(ResourceError, match=r"/dev/shm has 1,000,000 bytes free"):
        mpiexec.check_room(Kind.MPICH, 2)
    monkeypatch.setattr(shared_memory, "free", lambda: 64 << 20)  # as in a container
    mpiexec.check_room(Kind.MPICH, 60)
    with pytest.raises(ResourceError, match=r"MPICH needs some 70,400,000 to start"):
        mpiexec.check_room(Kind.MPICH, 64)
    monkeypatch.setattr(shared_memory, "free", lambda: None)
    mpiexec.check_room(Kind.MPICH, 2)


def test_a_job_of_slurm_without_srun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP", "HYDRA_RMK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("SLURM_TASKS_PER_NODE", raising=False)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "here")
    mpiexec.check_srun(Kind.MPICH, [])
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "5")
    with pytest.raises(ResourceError, match=r"srun, which is not on the PATH.*-launcher fork"):
        mpiexec.check_srun(Kind.MPICH, ["-prepend-rank"])
    mpiexec.check_srun(Kind.OPENMPI, [])
    mpiexec.check_srun(Kind.MPICH, ["-launcher", "fork"])
    monkeypatch.setenv("HYDRA_LAUNCHER", "fork")
    mpiexec.check_srun(Kind.MPICH, [])
    monkeypatch.delenv("HYDRA_LAUNCHER")
    srun = tmp_path / "srun"
    srun.touch(0o755)
    mpiexec.check_srun(Kind.MPICH, [])
