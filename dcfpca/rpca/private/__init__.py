"""The method under differential privacy per column: clipped contributions, a public schedule, noisy sums."""
