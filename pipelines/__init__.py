"""Ready batch jobs, each a recipe and one ``build()``: run them with ``python -m pipelines.NAME SRC DST``, or copy and change them."""
