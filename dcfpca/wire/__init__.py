"""What both ends of a connection share: addresses, TLS, sizes, roles, and the messages with their checks."""
