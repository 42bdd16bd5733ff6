"""The site's matrix on disk: readers by format, and the facts a review needs."""

from participant.data.data_config import DataTable
from participant.data.facts import DataFacts, measure
from participant.data.matrix import Matrix, choose
from participant.data.readers import FORMATS, open_columns, open_matrix

__all__ = ["FORMATS", "DataFacts", "DataTable", "Matrix", "choose", "measure", "open_columns", "open_matrix"]
