"""What survives a restart of the aggregator."""
