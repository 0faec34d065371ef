"""Rows of tables of measured runs made into runs that can be predicted."""
