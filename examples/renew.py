"""Run the tutorial notebook, and save its outputs.

Run `python examples/renew.py` (or `make docs`) to renew them; a test compares them with a fresh run.
"""

import os
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).with_name("tutorial.ipynb")
FORMS = ("text/html", "image/svg+xml", "text/plain")  # saved form of an output: the first available


def executed():
    """Return the notebook with fresh outputs, run in a kernel with the same modules and temporary Jupyter
    folders."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        jupyter_folders = dict.fromkeys(("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"), folder)
        with patch.dict(
            os.environ, jupyter_folders | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        ):
            client = NotebookClient(
                notebook,
                timeout=300,
                startup_timeout=300,
                kernel_name="python3",
                record_timing=False,
                coalesce_streams=True,  # a kernel that has to wait sends what a cell prints in pieces
            )
            client.execute(cwd=str(NOTEBOOK.parent))
    for cell in notebook.cells:
        cell.metadata.clear()
        for output in cell.get("outputs", ()):
            if "data" in output:
                form = next(mime for mime in FORMS if mime in output["data"])
                output["data"] = {form: output["data"][form]}
    notebook.metadata.language_info.pop("version", None)  # of whoever ran it last
    return notebook


if __name__ == "__main__":
    nbformat.write(executed(), NOTEBOOK)
