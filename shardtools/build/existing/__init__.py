"""Shards that are there already, on their way into a dataset by ``reindex`` or ``merge``.

Which there are: ``gather``, ``merge_inputs`` (for merge), ``undescribed`` (for reindex). Whether each is sound: ``examine``,
``mds_facts``. Whether they are one dataset together: ``admit``, ``schema``. What is then written: ``stage`` (for merge),
``descriptions`` (for reindex).
"""
