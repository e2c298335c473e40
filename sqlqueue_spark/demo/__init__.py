"""``sqlqueue demo [NAME]``: stories with real servers and real Spark, on this machine, which end with what to type next."""
