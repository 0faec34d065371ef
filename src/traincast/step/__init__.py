"""One training step of given plans: stages, costs, memory and validity make the estimate."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
