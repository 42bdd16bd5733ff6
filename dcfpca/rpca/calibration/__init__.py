"""What is unusual, and how sure that is: scores of any shape, expectation from the other entries, an estimated null."""
