"""``map`` without a chunk size: the items go into the window, and workers share them out.

The items are cut into *segments*, each with a counter from which every worker takes chunks; when
the items of one are taken, the next is shared out, and the one after it cut off and pickled, so
that neither the arena nor the driver need hold them all once more.  A worker has a row of the table
for a *turn* of a few milliseconds; it reports the results of the chunks that it has taken, and the
next turn is published as long as there are items.  So a million items cost a few hundred rows,
results come back in the middle of the work, and whoever iterates restores them one chunk at a time.

``Source`` gives the items to a ``MapCall``, which is one call of ``map``; its ``Supply`` has the
``Cutter`` make a ``Stretch`` of each segment, where the results come together.  What a ``MapCall``
has to do with workers is its base, ``Turns``; what it has to do with who iterates is its own.
Where items, or chunks of a given size, are tasks of their own, it is ``apart``.
"""
