"""The rules of a run: pure, no I/O, no clock."""
