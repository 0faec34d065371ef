"""Constants fitted to measurements: parameters, residuals, least squares."""
