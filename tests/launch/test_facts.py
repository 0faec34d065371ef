"""Facts of launches: declared names and types are those of plans and models, and tables use no others."""

from dataclasses import fields
from types import UnionType
from typing import Literal, Union, get_args, get_origin, get_type_hints

import pytest

from traincast.core.knobs import Knobs, Number, Placement
from traincast.launch.formats import FORMATS
from traincast.launch.settings.canonical import OMITTED_MODEL_FIELDS, PLACEMENT_KNOBS
from traincast.launch.settings.facts import BlockFacts, Facts, LaunchFacts, ModelFacts, PlanFacts
from traincast.model.checks import MODEL_PARTS
from traincast.model.model import Model

# Rows of what a file says of the model as a whole, or of one of its blocks.
OF_SEVERAL = {"model", "vocab_multiple", *MODEL_PARTS}


def plain(hint: object) -> object:
    """The type of a fact that is stated: a choice is of the type of its words, and nothing is None."""
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (part for part in get_args(hint) if part is not type(None))
    if get_origin(hint) is Literal:
        (hint,) = {type(value) for value in get_args(hint)}
    if get_origin(hint) is tuple and get_origin(get_args(hint)[0]) is Literal:
        return tuple[plain(get_args(hint)[0]), ...]
    return int if hint is Number else hint


def facts_of(declaration: type) -> dict[str, object]:
    return {name: plain(hint) for name, hint in get_type_hints(declaration).items()}


def test_facts_of_a_plan_are_its_knobs():
    knobs = {knob.name: plain(knob.type) for knob in fields(Knobs) if knob.type is not Placement}
    del knobs["layout"]  # `chunks` has its layers
    assert not knobs.keys() & set(PLACEMENT_KNOBS)
    assert facts_of(PlanFacts) == knobs


def test_facts_of_a_model_are_its_fields():
    omitted = {*OMITTED_MODEL_FIELDS, "tower"}  # of a tower its title alone
    hints = get_type_hints(Model)
    own = {field.name: plain(hints[field.name]) for field in fields(Model) if field.name not in omitted}
    assert facts_of(ModelFacts) == own


def test_facts_of_blocks_are_their_fields():
    blocks = {
        f"{part}.{field.name}": plain(field.type)
        for part, kind in MODEL_PARTS.items()
        for field in fields(kind)
    }
    assert facts_of(BlockFacts) == blocks


def test_no_fact_is_declared_twice():
    parts = (PlanFacts, ModelFacts, BlockFacts, LaunchFacts)
    assert sum(len(part.__annotations__) for part in parts) == len(Facts.__annotations__)


@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
def test_tables_have_declared_facts_only(form):
    facts = {fact for rows in form.rows.values() for row in rows for fact in row.facts}
    assert facts - OF_SEVERAL <= Facts.__annotations__.keys()
