"""Building datasets: the only code that writes one. ``run.build`` is the whole job, ``run.plan_build`` its first half."""
