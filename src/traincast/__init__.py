"""How long a training step of a transformer takes, whether it fits, what binds it, and which plan is best.

>>> import traincast as tc
>>> found = tc.search("gpt3-1t", "h200-nvs8", gpus=2048, gbs=4096)
>>> print(found.best[0])
summa tp=4 pp=16 dp=32 panels=32 fast_tp=4 fast_dp=2
"""

import sys
from typing import Any

import lazy_loader

if "IPython" in sys.modules:
    from traincast.ui import register_in_notebook

    register_in_notebook()

# The public names stand in __init__.pyi; importing the package imports none of them.
_attribute, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__.remove("__version__")


def __getattr__(name: str) -> Any:
    """Import a public name; if a library of an extra is missing, say which extra brings it."""
    try:
        return _attribute(name)
    except ImportError as error:
        from traincast.core import MissingExtra

        raise MissingExtra.from_import_error(error) or error from None


def __dir__() -> list[str]:
    return __all__
