"""The participant daemon."""
