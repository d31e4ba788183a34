"""A build in passes, each with receipts of its own, each gone on with where it stopped: select, scatter, build.

``select`` looks at all samples before any is taken, for ``--limit`` and ``--dedup``. ``scatter`` writes every encoded sample to a
spill, parted by split and by a random word that orders the dataset, and ``build`` then reads the spills in order. Nothing of
a pass depends on which worker did it, and nothing of what is published on where a spill was cut.
"""
