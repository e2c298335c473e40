"""Holding: a batch that Spark knows, from its plan until it is settled or given back."""
