"""Pack training data into shards, prove that nothing was lost, measure what limits the loader."""

__version__ = "0.1.0"
