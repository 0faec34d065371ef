"""Results: one declaration gives the JSON and its schema."""

import math
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import jsonschema
import numpy as np
import pytest
from pydantic import TypeAdapter

from traincast.core.result import INLINE, KEY, Doc, Result


class Time(Result):
    """A time."""

    seconds: Annotated[float, Doc("time of a step", "s")]
    hidden: int = 0

    @cached_property
    def days(self) -> Annotated[float | None, KEY]:
        """Length of the run [day]; None where it is not known."""
        return None if self.seconds > 1 else self.seconds / 86_400


class Answer(Result):
    """An answer."""

    time: Annotated[Time, INLINE]
    best: Annotated[Time | None, Doc("the best")]
    rows: Annotated[Any, Doc("numbers")] = ()
    file: Annotated[Path | None, Doc("file written", key="output", optional=True, text=True)] = None


def test_only_what_is_documented_is_a_key():
    assert Time(2.0, hidden=3).to_dict() == {"seconds": 2.0, "days": None}


def test_results_may_hold_and_inline_results():
    answer = Answer(Time(1.0), Time(2.0), np.array([1.0, math.nan]), Path("a.json"))
    assert list(answer.to_dict()) == ["seconds", "days", "best", "rows", "output"]
    assert answer.to_dict()["rows"] == [1.0, None]
    assert answer.to_dict()["output"] == "a.json"
    assert "output" not in Answer(Time(1.0), None).to_dict()
    assert Answer(Time(1.0), None).to_json().startswith('{"seconds": 1.0')


def test_the_schema_has_meaning_and_unit_and_no_other_keys():
    schema = TypeAdapter(Answer).json_schema(mode="serialization")
    assert schema["properties"]["seconds"]["description"] == "time of a step"
    assert schema["properties"]["days"]["x-unit"] == "day"
    assert schema["properties"]["days"]["description"] == "length of the run; `null` where it is not known"
    assert schema["required"] == ["seconds", "days", "best", "rows"]
    assert schema["additionalProperties"] is False
    jsonschema.validate(Answer(Time(1.0), Time(2.0), [1.0], Path("a")).to_dict(), schema)
    for wrong in ({"seconds": 1.0}, Answer(Time(1.0), None).to_dict() | {"output": None}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)
