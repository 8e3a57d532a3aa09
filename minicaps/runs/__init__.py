"""Run folders and checkpoints: write them, load a run, its model and its data, and measure it."""
