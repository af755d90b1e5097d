# The common part of the scripts; sourced, with $root set to the checkout.
#
# Takes --mpi and --python from the head of the script's arguments, and leaves the others there.
#
# Makes .venv/<mpi> inside the checkout at the first call and uses it at the next ones. Each extra
# of pyproject.toml that is installed there leaves a stamp, which holds what it was made from; when
# pyproject.toml changes, or another python is asked for, the stamp no longer fits.

mpi=mpich
asked=${PYTHON:-}
venvs=${WORKPOOL_VENVS:-$root/.venv}

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }

die() {
    say "$*"
    exit 2
}

# option NAME VALUE...: takes --mpi and --python; sets $taken to the number of words used, 0 if none.
# At --help it prints what the script says of itself, and leaves: before anything is installed.
option() {
    taken=0
    case $1 in
    --mpi | --python)
        [ $# -ge 2 ] || die "$1 needs a value"
        value=$2
        taken=2
        ;;
    --mpi=* | --python=*)
        value=${1#*=}
        taken=1
        ;;
    -h | --help)
        sed -n '2,/^[^#]/s/^# //p' "$0"
        exit 0
        ;;
    *) return ;;
    esac
    case $1 in
    --mpi*) mpi=$value ;;
    *) asked=$value ;;
    esac
}

while [ $# -gt 0 ]; do
    option "$@"
    [ "$taken" -gt 0 ] || break
    shift "$taken"
done

recent() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' </dev/null >/dev/null 2>&1
}

# Sets $python to the one that was asked for, else to the first that is recent enough.
find_python() {
    if [ -n "$asked" ]; then
        python=$(command -v "$asked") || die "$asked: no such program"
        recent "$python" || die "$python is not a Python from 3.10 up, which workpool needs"
        return
    fi
    for python in python3 python3.15 python3.14 python3.13 python3.12 python3.11 python3.10 python \
        "${HOME:-/}"/.pyenv/versions/3.*/bin/python3; do
        if recent "$python"; then
            python=$(command -v "$python")
            return
        fi
    done
    die "no Python from 3.10 up on PATH: install one, or name it with --python PATH"
}

# Whether $venv is whole, and made with the python that was asked for.
usable() {
    [ -f "$venv/made-with" ] && "$venv/bin/python" -c '' 2>/dev/null || return 1
    [ -z "$asked" ] || [ "$(command -v "$asked")" = "$(cat "$venv/made-with")" ]
}

make_venv() {
    find_python
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        die "$python has no venv or no ensurepip (Debian: apt install python3-venv);" \
            "install it, or name another Python with --python PATH"
    say "making $venv with $python"
    "$python" -m venv --clear "$venv" >&2 || die "$python -m venv failed"
    echo "$python" >"$venv/made-with"
}

# Debian and Ubuntu give the library of MPICH another name than the one that mpi4py asks for.
link_mpich() {
    "$venv/bin/python" -c 'import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI' \
        2>/dev/null && return
    for found in /usr/lib/*/libmpich.so.12 /usr/lib/libmpich.so.12; do
        if [ -e "$found" ]; then
            ln -sf "$found" "$venv/lib/libmpi.so.12"
            return
        fi
    done
}

# ready EXTRA: sets $venv to an environment that has workpool, the MPI asked for, and that extra.
ready() {
    extra=$1
    case $mpi in
    mpich | openmpi | intel) extras="$mpi${extra:+,$extra}" ;;
    system)
        command -v mpiexec >/dev/null || die "--mpi system: there is no mpiexec on PATH"
        extras=$extra
        ;;
    *) die "--mpi $mpi: use mpich, openmpi, intel or system" ;;
    esac
    venv=$venvs/$mpi
    usable || make_venv
    stamp=$venv/stamp-${extra:-run}
    made_from="$root $(cksum <"$root/pyproject.toml")"
    if [ "$(cat "$stamp" 2>/dev/null)" != "$made_from" ]; then
        say "installing workpool${extras:+[$extras]} into $venv"
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
            --editable "$root${extras:+[$extras]}" >&2 || die "pip failed: see above"
        [ "$mpi" != system ] || link_mpich
        echo "$made_from" >"$stamp"
        echo "$made_from" >"$venv/stamp-run" # with any extra it can be run
    fi
    # Once, whatever PYTHONDONTWRITEBYTECODE says, and not by each rank of each job.
    "$venv/bin/python" -m compileall -qq "$root/workpool" || :
    if [ -L "$venv/lib/libmpi.so.12" ]; then
        export LD_LIBRARY_PATH="$venv/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    fi
}
