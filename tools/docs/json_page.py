"""The page on JSON outputs and the schemas it links to, from `traincast.ui.json_schema`."""

import json
from collections.abc import Iterator

from traincast.ui.json_schema import OUTPUTS, schema
from traincast.ui.json_schema.vocabulary import UNIT, Schema, rows

INTRO = """# JSON outputs

Every command takes `--json` and then prints one JSON object on standard output, whatever happens; messages and progress go to
standard error. Numbers are in SI units (FLOP, byte, second) unless the unit says otherwise, shares are fractions of 1, and what is
not known is `null`. Each output has a [JSON Schema](https://json-schema.org/draft/2020-12/schema), in which `x-unit` is the unit of
a number: `traincast schema plan` prints it, and the [schemas](schemas/plan.json) lie beside this page, whose tables are written
from them. A key in a table is a path: `[]` stands for every element of a list, `*` for any name. Later versions may add keys.

| exit code | meaning | standard output |
| --- | --- | --- |
| 0 | there is an answer | the command's object |
| 1 | the answer is no: nothing fits, or published figures are not met | the command's object, else [`error`](#error) |
| 2 | the input cannot be used, or the output not be written | [`error`](#error): every mistake at once |
| 130 | interrupted | [`error`](#error) |

"""


def kind(one: Schema) -> str:
    """What may stand for a part of a schema, in words."""
    if "anyOf" in one:
        return " or ".join(map(kind, one["anyOf"]))
    if "title" in one:
        return f"[{one['title']}](#{one['title']})"
    if "enum" in one:
        return ", ".join(f"`{json.dumps(word)}`" for word in one["enum"])
    types = one["type"] if isinstance(one["type"], list) else [one["type"]]
    names = {"string": "text", "boolean": "true or false", "array": f"list of {kind(one['items'])}" if "items" in one else "list"}
    if isinstance(one.get("additionalProperties"), dict):
        names["object"] = f"{kind(one['additionalProperties'])} by name"
    return " or ".join(names.get(name, name) for name in types)


def unit(one: Schema) -> str:
    """Unit of a number, or of the numbers of a list."""
    inner = next((one[key] for key in ("items", "additionalProperties") if isinstance(one.get(key), dict)), {})
    return one.get(UNIT, inner.get(UNIT, ""))


def table(one: Schema) -> str:
    """The keys of a record."""
    required = set(one.get("required", ()))
    lines = ["| key | type | unit | meaning |", "| --- | --- | --- | --- |"]
    for path, part in rows(one):
        about = part["description"] + ("" if "." in path or path in required else "; not always there")
        lines.append(f"| `{path}` | {kind(part)} | {unit(part)} | {about} |")
    return "\n".join(lines) + "\n"


def titled(one: Schema) -> Iterator[Schema]:
    """The records with a title below a part of a schema, what they hold first."""
    parts = [*one.get("properties", {}).values(), *one.get("anyOf", ())]
    parts += [one[key] for key in ("items", "additionalProperties") if isinstance(one.get(key), dict)]
    for part in parts:
        yield from titled(part)
    if "title" in one:
        yield one


def page() -> str:
    """The page."""
    commands = {name: one for name, one in OUTPUTS.items() if name != "error"}
    shared = {part["title"]: part for one in commands.values() for part in titled(one)}
    text = INTRO + f"## error\n\n[schema](schemas/error.json)\n\n{table(OUTPUTS['error'])}"
    for name, one in commands.items():
        text += f"\n## `traincast {name}`\n\n{sentence(one['description'])} ([schema](schemas/{name}.json))\n"
        text += f"\n{table(one)}" if "properties" in one else ""
    text += "\n## What several outputs hold\n"
    for name, one in shared.items():
        text += f"\n### {name}\n\n{table(one)}"
    return text


def sentence(words: str) -> str:
    """Words as a sentence."""
    return f"{words[0].upper()}{words[1:]}."


def schemas() -> dict[str, str]:
    """The schemas by file name."""
    return {f"schemas/{name}.json": json.dumps(schema(name), indent=2, ensure_ascii=False) + "\n" for name in OUTPUTS}
