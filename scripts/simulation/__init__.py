"""The parts of ``simulate.py``: the model of claims, real runs beside it, the picture."""
