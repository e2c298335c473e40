"""The tables: a module for each kind, the only callers of SQL; how tables, scripts and rights are made.

What is given a connection works inside its open transaction and never commits, unless it says otherwise.
"""
