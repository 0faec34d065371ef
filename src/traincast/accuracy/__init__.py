"""Errors of predictions against measurements, and constants fitted to measurements.

Measured: `runs` and `logs` read training runs, `measure` takes measurements, `fit.kernel_benchmarks` reads
kernel times. Scored: `run_batches` groups runs into columns, `validate` predicts them, `scores` and
`error_budget` summarise the errors. Fitted: in `fit`, `parameters` declares constants, `residuals`,
`least_squares` and `fit` fit them, `fitted_yaml` writes them; `calibrate` does so for a user's measurements,
which `measured_files` reads and `benchmark_residuals` turns into residuals. The folder calibration/ of the
repository fits the catalogue itself, and keeps the scoreboard and the error model.
"""
