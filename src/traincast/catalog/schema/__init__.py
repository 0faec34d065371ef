"""Schemas of model, system and software-stack files as pydantic classes."""
