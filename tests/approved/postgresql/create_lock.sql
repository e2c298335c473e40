SELECT pg_advisory_xact_lock(hashtextextended(?, 0))
