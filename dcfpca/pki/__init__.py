"""The consortium's certificates: keys, trust, credentials, and the authority that issues them."""
