"""One tensor to every node and one back, round after round."""
