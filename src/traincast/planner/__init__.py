"""Every plan of a search space: framework spaces, evaluation, search, and why the best is best."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
