"""Whatever is wrong with a key of a spec or a configuration is told in plain words, never in the library's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from aggregator.config import Config as AggregatorConfig
from dcfpca.config_file import describe
from dcfpca.errors import BadInput
from dcfpca.spec import RunSpec, parse_spec
from participant.config import Config as ParticipantConfig

WRONG: tuple[Any, ...] = (1, -1, 1.5, "x", "", True, None, [], ["a", 1], {}, {"a": 1}, [[1]], "x" * 5000, 10**30)
LIBRARY = re.compile(
    r"Input|should|Field |unable|pars(e|ing)|instance|dictionary|tuple|NoneType|pydantic|permitted", re.I
)
FILES = {"ca": "x", "cert": "x", "key": "x"}
PARTICIPANT = {"aggregator": {"address": "a:1"}, "identity": FILES, "data": {"path": "x"}}
AGGREGATOR = {"server": {"listen": "a:1", **FILES}, "store": {"path": "x"}}


def wrong_documents(model: type[BaseModel], good: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The good document with one key wrong, at the top or within a table; and without one."""
    for name, field in model.model_fields.items():
        yield {key: value for key, value in good.items() if key != name}
        yield from ({**good, name: value} for value in WRONG)
        for key in getattr(field.annotation, "model_fields", {}):
            inside = good.get(name, {})
            yield from ({**good, name: {**inside, key: value}} for value in WRONG)


@pytest.mark.parametrize(
    ("model", "good"),
    [(RunSpec, {"rows": 5, "rank": 1}), (ParticipantConfig, PARTICIPANT), (AggregatorConfig, AGGREGATOR)],
)
def test_no_wrong_key_is_told_in_the_words_of_the_library(model: type[BaseModel], good: dict[str, Any]) -> None:
    told = 0
    for document in wrong_documents(model, good):
        try:
            model.model_validate(document, context={"directory": "."})
        except ValidationError as error:
            said = describe(error, model)
            assert not LIBRARY.search(said), said
            told += 1
        except BadInput:
            told += 1
    assert told > 100


def test_a_spec_that_is_not_json_is_said_to_be_none() -> None:
    with pytest.raises(BadInput, match="the text is not JSON"):
        parse_spec(b"{rank")
