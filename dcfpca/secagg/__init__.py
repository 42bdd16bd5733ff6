"""The secure sum: the aggregator learns the total of the updates and nothing else."""
