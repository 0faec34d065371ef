"""The words of the field: model, system, plan, precision, assumptions, units, errors; reads no files but what it is given."""
