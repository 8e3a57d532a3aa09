"""Code shared by all commands: startup, errors, signals, and a description of the machine."""
