"""Looking into datasets: what one is, what its samples hold, and its samples as files again. Reads only, but for ``extract``."""
