"""Run the tutorial notebook, and keep what it shows.

Run `python examples/renew.py` (or `make docs`) to renew its outputs; a test holds them to what it shows now.
"""

import os
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).with_name("tutorial.ipynb")
KEPT = ("text/html", "image/svg+xml", "text/plain")  # of an output the first that it has


def executed():
    """The notebook with the outputs of this very run, in a kernel that sees the same modules and leaves nothing behind."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        apart = dict.fromkeys(("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"), folder)
        with patch.dict(os.environ, apart | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}):
            client = NotebookClient(notebook, timeout=300, startup_timeout=300, kernel_name="python3", record_timing=False)
            client.execute(cwd=str(NOTEBOOK.parent))
    for cell in notebook.cells:
        cell.metadata.clear()
        for output in cell.get("outputs", ()):
            if "data" in output:
                form = next(one for one in KEPT if one in output["data"])
                output["data"] = {form: output["data"][form]}
    notebook.metadata.language_info.pop("version", None)  # of whoever ran it last
    return notebook


if __name__ == "__main__":
    nbformat.write(executed(), NOTEBOOK)
