"""`python -m minicaps.bench`: benchmark minicaps, alone or against others. See `__main__`."""
