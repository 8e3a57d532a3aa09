"""Classify image files with a trained network."""
