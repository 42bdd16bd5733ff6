"""A federation on one machine, with certificates, configurations and real processes, for the demo and benchmarks."""
