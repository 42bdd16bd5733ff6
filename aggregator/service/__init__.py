"""The process of the aggregator: opens the store, serves, watches over it, and stands by for another."""
