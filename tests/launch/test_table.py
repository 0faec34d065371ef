"""Tables of launch formats: every key of a row is known, and every computed row has its functions."""

import pytest

from traincast.core.errors import InputError
from traincast.launch.formats import READERS
from traincast.launch.frameworks import (
    accelerate,
    automodel,
    deepspeed,
    huggingface,
    llm_foundry,
    maxtext,
    megatron,
    nanotron,
    torchtitan,
    torchtune,
)
from traincast.launch.frameworks.layer_patterns import marked_layers
from traincast.launch.python import lightning
from traincast.launch.settings.format import load_format
from traincast.launch.settings.settings import evaluate_text
from traincast.launch.settings.table import Conversions, load_document

CONVERSIONS = {
    "accelerate": accelerate.CONVERSIONS,
    "automodel": automodel.CONVERSIONS,
    "deepspeed": deepspeed.CONVERSIONS,
    "huggingface": huggingface.PROGRAMS[0].conversions,
    "lightning": lightning.CONVERSIONS,
    "llm-foundry": llm_foundry.CONVERSIONS,
    "maxtext": maxtext.CONVERSIONS,
    "megatron": megatron.CONVERSIONS,
    "nanotron": nanotron.CONVERSIONS,
    "torchtitan": torchtitan.CONVERSIONS,
    "torchtune": torchtune.CONVERSIONS,
}
KEYS = {
    *("only", "source", "setting", "older", "default", "always", "needs", "least"),
    *("words", "write", "read", "others", "strict", "by", "note", "settings"),
}


def specifications(document):
    """Return every row of a document that is not of constants."""
    for section in document["rows"].values():
        for facts, rows in section.items():
            if facts != "always":
                yield from rows if isinstance(rows, list) else [rows]


@pytest.mark.parametrize("name", CONVERSIONS)
def test_rows_have_no_unknown_keys(name):
    for row in specifications(load_document(name)):
        assert row.keys() <= KEYS
        assert not row.keys() & {"only"} or row["only"] in READERS


@pytest.mark.parametrize("name", CONVERSIONS)
def test_every_conversion_stands_in_the_table(name):
    """A function under a name that no row has would never be called."""
    rows = [*specifications(load_document(name))]
    if name == "megatron":
        dialects = load_document("dialects").values()
        rows += [row for dialect in dialects for row in dialect.get("rows", {}).values()]
    named = {row.get("by", "") for row in rows}
    conversions = CONVERSIONS[name]
    assert {*conversions.read, *conversions.write} == named - {""}


def test_a_row_without_its_functions_is_refused():
    with pytest.raises(KeyError, match="which CONVERSIONS lacks"):
        load_format("nanotron", "nanotron", Conversions())


@pytest.mark.parametrize("text", ["[0]*1*2+[1]*4", "[0,0]+2*[1]*2", "[0]*(1+1)+[1]*4", " [0, 0, 1,1,1,1] "])
def test_patterns_are_values_of_python(text):
    """Megatron-LM (moe_freq_type) evaluates them: two dense layers, then four with experts."""
    assert marked_layers(text, 6) == (3, 4, 5, 6)


@pytest.mark.parametrize(
    "text", ["[0]*99999*99999", "99999999*[1]", "[2]*6", "[[1]]*6", "f(6)", "[1]*6.0", "[1]*"]
)
def test_other_patterns_are_refused(text):
    with pytest.raises(InputError, match="a mark for each of 6 layers"):
        marked_layers(text, 6)


def test_variables_of_a_sum_are_those_of_the_script():
    assert evaluate_text("(NODES*8) / 3", {"NODES": ["4"]}) == 10  # bash divides whole numbers
    assert evaluate_text("NODES + 1") is None
