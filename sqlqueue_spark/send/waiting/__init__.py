"""Messages that wait: until they are due, or for a database that is down."""
