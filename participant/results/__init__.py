"""The result of a finished run at the site: one directory per run, written atomically."""

from participant.results.reading import (
    MANIFEST,
    has_result,
    load_features,
    load_model,
    load_scaling,
    load_spec,
    read_manifests,
)
from participant.results.scoring_model import CONSENSUS, load_scoring_model
from participant.results.writing import (
    FILES,
    SCORES,
    FinalBroadcast,
    ResultFacts,
    ResultNames,
    write_names,
    write_results,
)

__all__ = [
    "CONSENSUS",
    "FILES",
    "MANIFEST",
    "SCORES",
    "FinalBroadcast",
    "ResultFacts",
    "ResultNames",
    "has_result",
    "load_features",
    "load_model",
    "load_scaling",
    "load_scoring_model",
    "load_spec",
    "read_manifests",
    "write_names",
    "write_results",
]
