"""The tables: a module for each kind, the only callers of SQL; and modules for creating tables, scripts and rights."""
