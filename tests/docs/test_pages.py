"""README and docs do what they say: examples run, captures are what is printed, generated pages are what the code prints."""

import contextlib
import doctest
import importlib.util
import io
import re
from importlib import import_module
from pathlib import Path

import pytest

from traincast.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "docs/tutorial.md",
    "docs/models.md",
    "docs/machines.md",
    "docs/collectives.md",
    "docs/studies.md",
    "docs/metrics.md",
    "docs/validation.md",
    "docs/calibration.md",
    "docs/limits.md",
