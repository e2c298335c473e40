"""What people do to queues and outboxes from outside: create, inspect, measure, look into, send to, clean and purge them."""
