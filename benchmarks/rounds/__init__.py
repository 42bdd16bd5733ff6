"""The cost of rounds: real services and sites that compute nothing."""
