"""`python -m minicaps.bench`: how fast minicaps is, and beside PyTorch. See `__main__`."""
