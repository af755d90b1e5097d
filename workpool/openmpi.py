"""What Open MPI is to do otherwise than it would.

It reads variables of the environment when it starts in a rank: those of the user stand.
"""

from __future__ import annotations

import os

__all__ = ["set_variables", "variables"]


def variables() -> dict[str, str]:
    """Return the variables that ranks need.  Other MPIs do not know them, nor mind."""
    wanted = {
        # Version 4 would take its one-sided component for networks on one host too, and breaks off
        # in it (4.1.4); without this mechanism it takes the one for shared memory.  Version 5 has
        # no such mechanism.
        "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    }
    if not os.path.isdir("/sys/class/infiniband"):
        wanted["OMPI_MCA_osc"] = "^ucx"  # complains at start where there is no such network
        wanted["OMPI_MCA_btl"] = "^ofi"  # looks for such a network for 1 s at every start
    return wanted


def set_variables() -> None:
    """Set them for this rank, unless they are set.  Before MPI starts."""
    for name, value in variables().items():
        os.environ.setdefault(name, value)
