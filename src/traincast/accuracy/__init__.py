"""Errors of predictions against measurements, and constants fitted to measurements.

Measured: `runs` and `logs` read training runs, `machine` measures the user's. Scored: `validation` predicts
runs, grouped into columns, `scores` summarises the errors. Fitted: in `fit`, `parameters`
declares constants, `residuals`, `least_squares` and `fit` fit them, `fitted_yaml` writes them; `calibrate`
does so for a user's measurements, which `measured_files` reads. The folder calibration/ of the repository
fits the catalogue itself.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
