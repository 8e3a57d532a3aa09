"""`python -m minicaps.evaluate`: measure a trained network on a data set."""
