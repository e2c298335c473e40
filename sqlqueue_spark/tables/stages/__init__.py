"""The stage of the atomic mode: messages that settling the claim moves into their tables."""
