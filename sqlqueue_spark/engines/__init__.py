"""Everything that differs between database engines: connections, drivers, dialects and their SQL, each engine in a room of its own."""
