"""Write what frameworks' own classes make of launches with random settings, which the readers are held to.

    python tools/launch_oracle [--draws N] [--output FOLDER] [FORMAT ...]

Run by the Python that the frameworks are installed in. A module of this folder has, of each format, what is
drawn (`draw`: the names are those of the format's table, the values those of the framework's classes), and
what the framework makes of it in the words of traincast (`read`). What the framework refuses is left out.
"""

import argparse
import contextlib
import importlib
import io
import json
import logging
import os
import random
import subprocess
import sys
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests/launch/oracle"
DRAWS = 36
TRIES = 40  # files that are drawn for each that is kept, at most
SEED = 44
FORMATS = {  # of a launch -> module of this folder
    "trl": "of_trl",
    "deepspeed": "of_deepspeed",
    "accelerate": "of_accelerate",
    "torchtitan-command": "of_torchtitan",
    "megatron": "of_megatron",
    "axolotl": "of_axolotl",
    "llama-factory": "of_llama_factory",
}


def readings(form: str, count: int) -> dict[str, object]:
    """Return the readings of so many files of a format, and the release that they are of."""
    sys.path.insert(0, str(ROOT / "tests/frameworks"))
    parser = Path(sys.prefix) / "parsers" / form  # a package without what it depends on
    if parser.is_dir():
        sys.path.insert(0, str(parser))
    sys.path.insert(0, str(ROOT / "tools"))
    from defaults import release_of

    module = importlib.import_module(FORMATS[form])
    known = module.values()
    chance = random.Random(SEED)
    cases = []
    refusals: dict[str, int] = {}
    last_shown = time.monotonic()
    for tried in range(1, count * TRIES + 1):
        if len(cases) == count:
            break
        case = module.draw(chance, known)
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                facts = module.read(case)
        except (Exception, SystemExit) as error:
            text = f"{type(error).__name__}: {str(error).strip()[:100]}"
            refusals[text] = refusals.get(text, 0) + 1
            continue
        cases.append({"text": case.text, "given": case.given, "facts": facts})
        if time.monotonic() - last_shown > 5:
            last_shown = time.monotonic()
            print(f"{form}: {len(cases)} of {count} files, {tried} drawn", file=sys.stderr, flush=True)
    for text, times in sorted(refusals.items(), key=lambda item: -item[1])[:8]:
        print(f"{form}: refused {times} times: {text}", file=sys.stderr)
    if not cases:
        raise SystemExit(f"{form}: no file was read")
    release = f"{module.PACKAGE} {release_of(module.PACKAGE)}"
    return {"release": release, "classes": module.CLASSES, "cases": cases}


def write(form: str, count: int, folder: Path) -> None:
    """Write the readings of a format, one a line."""
    found = readings(form, count)
    rows = ",\n".join(json.dumps(case) for case in found.pop("cases"))
    head = json.dumps(found)[1:-1]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{form}.json"
    beside = path.with_suffix(".new")
    beside.write_text(f'{{{head}, "cases": [\n{rows}\n]}}\n', encoding="utf-8")
    beside.replace(path)
    print(f"{form}: {len(rows.splitlines())} files, {path}", file=sys.stderr)


def main() -> int:
    """Write the readings of one format, or each in its own process, as frameworks change what others see."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--output", type=Path, default=FOLDER)
    parser.add_argument(
        "formats", nargs="*", metavar="FORMAT", help=f"of {', '.join(FORMATS)}; all by default"
    )
    args = parser.parse_args()
    if unknown := set(args.formats) - set(FORMATS):
        parser.error(f"{', '.join(sorted(unknown))}: must be of {', '.join(FORMATS)}")
    if len(args.formats) == 1:
        os.environ |= {"DISABLE_VERSION_CHECK": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        write(args.formats[0], args.draws, args.output)
        return 0
    options = ["--draws", str(args.draws), "--output", str(args.output)]
    formats = args.formats or list(FORMATS)
    return max(
        subprocess.run([sys.executable, __file__, *options, form], check=False).returncode for form in formats
    )


if __name__ == "__main__":
    sys.exit(main())
