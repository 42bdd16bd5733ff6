"""The sections on the paper's own experiments."""
