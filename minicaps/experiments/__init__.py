"""`python -m minicaps.experiments`: the experiments of the sources, with their figures beside ours.

An experiment is a module with a `TITLE` (a line), `SEEDS` (how many by default), a `KEY` and

- `parts(quick)`: {name of a part: its settings}, in the order in which they are measured;
- `measure(lab, part, settings, seed)`: the figures of a part, anything that JSON can hold, and
  "seconds" of training; `lab` (see `lab.py`) trains its networks and keeps them;
- `table(results)`: its rows, the first the header; `headline(results)`: the `line` of each figure
  that the README shall have; `draw(results, path, lab)`: its picture, written by `lab.save`. All
  are given {part: the figures of each seed}.

`KEY` says what the words of the table mean, to one who has read nothing else: {a title of a column,
or a word of several titles or of rows: a line in plain words, with units}.
"""
