"""The wire format of the .NET systems: addresses, headers and columns of a message."""
