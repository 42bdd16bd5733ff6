"""What sites that lie do to the others: attacks, and federations that only differ among themselves."""
