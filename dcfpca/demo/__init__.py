"""A whole federation on one machine: certificates, configs, real processes. For the demo, benchmarks and tests."""
