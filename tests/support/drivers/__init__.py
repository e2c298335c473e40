"""Programs that tests start, kill and start again."""
