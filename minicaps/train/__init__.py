"""`python -m minicaps.train`: train a network and write a run folder."""
