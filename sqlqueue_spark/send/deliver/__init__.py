"""Writes messages and outcomes into their databases, each once."""
