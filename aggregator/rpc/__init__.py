"""The gRPC edge of the aggregator."""
