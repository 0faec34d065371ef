"""Programs that stand beside an exported launch as `train.py`; they need the framework, not traincast."""
