"""How far predictions are off, and constants that make them less so.

Measured: `measurements` and `logs` read runs, `microbenchmarks` and `kernel_benchmarks` collectives and kernels.
Judged: `batches` puts runs side by side, `validate` predicts them, `scores`, `budget` and `scoreboard` sum the errors up.
Fitted: `parameters` names constants, `fitting` and `fits` find their values in `evidence`, `recorded` writes them; `calibrate` does
so for a user's own measurements, which `collected` reads and `microsamples` turns into evidence. `residuals`, `error_estimates`
and `error_file` turn the errors of runs left out into the error model of `traincast.step.uncertainty`.
"""
