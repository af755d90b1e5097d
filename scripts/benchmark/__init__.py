"""One table of workpool, its peers, and the limits of what any pool can do.

``rows`` says what is measured, ``peers`` of whom.  The table program (``__main__``) asks for one
measurement after another: ``launch`` starts a process or an MPI job for each, which runs
``measure`` or ``limits`` and prints a JSON line; both count by ``rates``.  ``results`` collects the
lines; ``table`` and ``chart`` show them.
"""
