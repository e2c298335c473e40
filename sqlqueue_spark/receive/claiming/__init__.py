"""Claiming: which rows the next batch has, and the open transaction that locks them."""
