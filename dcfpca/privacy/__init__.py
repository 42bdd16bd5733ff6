"""Differential privacy: what a run spends, how it is accounted for, and where the noise comes from."""
