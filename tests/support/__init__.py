"""What tests stand on: plain drivers and plain SQL, never the code under test."""
