"""`python -m minicaps.experiments`: the experiments of the sources, with their figures beside ours.

An experiment is a module with a `TITLE` (a line), `SEEDS` (how many by default) and

- `parts(quick)`: {name of a part: its settings}, in the order in which they are measured;
- `measure(lab, part, settings, seed)`: the figures of a part, anything that JSON can hold, and
  "seconds" of training; `lab` (see `lab.py`) trains its networks and keeps them;
- `table(results)`: its rows, the first the header; `draw(results, path, lab)`: its picture. Both
  are given {part: the figures of each seed}.
"""
