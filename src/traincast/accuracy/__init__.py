"""How far predictions are off, and constants that make them less so.

Measured: `runs` and `logs` read runs, `measure` makes measurements of its own, `fit.kernel_benchmarks` reads kernels.
Judged: `run_batches` puts runs side by side, `validate` predicts them, `scores` and `error_budget` sum the errors up.
Fitted: in `fit`, `parameters` names constants, `least_squares` and `fit` find their values in `residuals`, `fitted_yaml` writes
them;
`calibrate` does so for a user's own measurements, which `measured_files` reads and `benchmark_residuals` turns into residuals. The
folder calibration/ of the repository fits the catalogue itself, and keeps the scoreboard and the error model.
"""
