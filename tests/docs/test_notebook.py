"""The tutorial notebook runs, and reproduces its stored outputs."""

import importlib.util
import re
from pathlib import Path

import nbformat

EXAMPLES = Path(__file__).parents[2] / "examples"


def shown(notebook):
    """What every cell shows, with a # for every number: what is fitted moves with every fit."""
    outputs = {}
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            assert output["output_type"] in {"stream", "execute_result"}, output
            data = output.get("data", {"text": output.get("text")})
            assert len(data) == 1
            ((form, text),) = data.items()
            outputs[cell["id"]] = (
                "a figure"
                if form == "image/svg+xml"
                else re.sub(r"\s+", " ", re.sub(r"\d[\d.,]*|&lt;#", "#", text))
            )
    return outputs


def test_the_tutorial_shows_its_stored_outputs():
    spec = importlib.util.spec_from_file_location("renew", EXAMPLES / "renew.py")
    renew = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(renew)
    stored, now = shown(nbformat.read(renew.NOTEBOOK, as_version=4)), shown(renew.executed())
    assert {"search", "estimate", "metrics", "binds", "sweep", "machines", "scaling", "validate"} <= set(now)
    assert now == stored, "run: python examples/renew.py"
