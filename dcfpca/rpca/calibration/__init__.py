"""What is unusual, and with what certainty: normal scores for features of any shape, the expectation from the other
entries, an estimated null."""
