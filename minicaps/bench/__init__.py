"""`python -m minicaps.bench`: benchmark minicaps, alone or against PyTorch. See `__main__`."""
