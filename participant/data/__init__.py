"""The site's matrix: readers by format, and the facts that the review of a spec needs."""

from participant.data.data_config import DataTable
from participant.data.facts import DataFacts, measure, without_empty_samples
from participant.data.matrix import Matrix, select_features
from participant.data.readers import FORMATS, open_columns, open_matrix, read_matrix

__all__ = [
    "FORMATS",
    "DataFacts",
    "DataTable",
    "Matrix",
    "measure",
    "open_columns",
    "open_matrix",
    "read_matrix",
    "select_features",
    "without_empty_samples",
]
