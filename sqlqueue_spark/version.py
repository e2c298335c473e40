"""The version of this package: what it writes into outbox tables as well."""

__version__ = "0.2.0"
