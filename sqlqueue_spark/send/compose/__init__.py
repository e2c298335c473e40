"""Makes messages and outcomes of the rows of a frame; opens nothing."""
