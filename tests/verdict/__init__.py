"""One command proves or refutes on a server what the package takes for granted of it: ``make verdict``.

``probes.py`` is what an experiment is; ``postgresql_rules.py`` and ``sqlserver_*.py`` are the experiments.
``said.py`` makes the package say its statements, and ``plans.py`` looks at their plans. ``held.py`` looks at
the locks of each step of the protocol. ``report.py`` writes what was found.
"""
