"""The site's matrix on disk: readers by format, and the facts a review needs."""

from participant.data.facts import DataFacts, measure
from participant.data.readers import FORMATS, open_columns

__all__ = ["FORMATS", "DataFacts", "measure", "open_columns"]
