"""What all commands share: how they start, fail and stop, and what machine they run on."""
