"""Results on disk, for the next run.

    journal       records in an SQLite file: find, store
    file          who may open it, and what is wrong with it
    keys          which call is which
    ledger        a journal as one pool uses it
    report        ``workpool journal``

The results themselves are pickles; none is ever wrong, a damaged one is not there.
"""
