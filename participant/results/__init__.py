"""The result of a finished run at the site: one directory per run, written atomically."""

from participant.results.reading import MANIFEST, has_result, load_features, load_model, load_scaling, read_manifests
from participant.results.writing import CONSENSUS, FILES, SCORES, FinalBroadcast, ResultFacts, write_results

__all__ = [
    "CONSENSUS",
    "FILES",
    "MANIFEST",
    "SCORES",
    "FinalBroadcast",
    "ResultFacts",
    "has_result",
    "load_features",
    "load_model",
    "load_scaling",
    "read_manifests",
    "write_results",
]
