"""Reading: the slices of a batch, and the rows that workers read or take."""
