"""The web page of the lessons: `python -m lessons web` (Sphinx, two columns, works offline)."""
