"""Trained networks in the formats of other programs."""
