"""The arithmetic of one block of columns, in numpy and compiled."""
