#!/usr/bin/env bash
# lazy_loader 0.6: a name that is first taken from a package while a test has patched it stays patched for the process.
#
# `attach` and `attach_stub` keep what they resolve in the package (lazy_loader/__init__.py, "Cache the resolved value").
# If that happens inside of unittest.mock.patch or pytest's monkeypatch of the module that defines the name, the package
# keeps the replacement after the patch is undone, and every later test gets it: which test fails depends on their order.
# 0.4 keeps a name only where it is called as its module. Take all names of such packages before the tests (in a
# conftest.py), and patch the name in the package.
#
# Seen on 2026-11-28 with Python 3.11:
#   lazy_loader 0.4: patched, then original
#   lazy_loader 0.6: patched, then patched
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
mkdir "$folder/shop"
cat >"$folder/shop/__init__.py" <<'PYTHON'
import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs={"prices": ["price"]})
PYTHON
cat >"$folder/shop/prices.py" <<'PYTHON'
def price():
    return "original"
PYTHON
cat >"$folder/patch.py" <<'PYTHON'
from importlib.metadata import version
from unittest import mock

import shop
import shop.prices

with mock.patch("shop.prices.price", lambda: "patched"):
    inside = shop.price()
print(f"lazy_loader {version('lazy_loader')}: {inside}, then {shop.price()}")
PYTHON
for release in 0.4 0.6; do
  "$folder/venv/bin/pip" install --quiet --disable-pip-version-check "lazy_loader==$release"
  "$folder/venv/bin/python" "$folder/patch.py" | tee -a "$folder/seen"
done
diff "$folder/seen" - <<'SEEN'
lazy_loader 0.4: patched, then original
lazy_loader 0.6: patched, then patched
SEEN
