"""The version of this package: what it writes into outbox tables as well."""

__version__ = "0.3.0"
