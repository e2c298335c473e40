"""``sqlqueue demo [NAME]``: stories with real servers and real Spark, which end with what to type next."""
