"""How a job runs: as a program, from its configuration to the stop, and what runs beside it."""
