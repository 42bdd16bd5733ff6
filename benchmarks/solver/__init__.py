"""Accuracy and speed of the solver on problems of known truth, in one process."""
