"""Time to a given error, compared with centralized solvers that see all the data."""
