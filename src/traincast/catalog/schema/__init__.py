"""What a model or a system file may hold, as pydantic classes."""
