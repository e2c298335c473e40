"""All that differs between database engines: connections, drivers, dialects and SQL, in a folder for each engine."""
