"""The tables: a module for each kind, the only callers of SQL; creating them, scripts and rights."""
