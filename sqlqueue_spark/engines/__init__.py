"""What differs between database engines: connections, drivers, dialects and SQL; a folder for each engine."""
