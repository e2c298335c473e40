"""PostgreSQL 13 and later."""
