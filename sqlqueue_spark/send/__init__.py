"""Sends the rows of a frame as messages to destination queue tables, each message id once."""
