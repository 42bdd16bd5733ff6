"""Federated robust PCA: what the aggregator and the participants share."""
