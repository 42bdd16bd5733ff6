"""The one place that states the version of the software."""

__version__ = "0.2.0"
