"""Defaults of the parsers of frameworks: what a launch means that leaves a setting out; `tables/defaults`."""

from collections.abc import Mapping

from traincast.launch.settings.table import load_document


def parser_defaults(program: str, parser: str) -> Mapping[str, object]:
    """Return the defaults of a parser by setting, as `tools/defaults.py` reads them from the framework.

    Parameters
    ----------
    program
        Name of a table in `tables/defaults`: megatron, transformers, trl, accelerate or torchtitan.
    parser
        Name of one of its sections, such as sft of trl.

    Returns
    -------
    The value that stands for an absent setting; None where the program decides it later. Switches, which have
    no value to write out, are not among them.
    """
    section = load_document(f"defaults/{program}")[parser]
    unset = dict.fromkeys(section["unset"].split())
    return {**unset, **section["values"]}


def release(program: str) -> str:
    """Return the package and version that the defaults of a program are those of."""
    return str(load_document(f"defaults/{program}")["version"])
