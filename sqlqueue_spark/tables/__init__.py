"""The tables: a module for each kind, the only callers of SQL; how tables, scripts and rights are made."""
