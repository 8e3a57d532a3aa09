"""`python -m minicaps.experiments`: reproduce published experiments and compare the results.

An experiment is a module that defines a `TITLE` (one line), `SEEDS` (their default number), a
`KEY`, `TESTED` (one line about the test images, and whether they change with the seed), `COMPARED`
(pairs of parts whose difference is tested) and these functions:

- `parts(quick)`: return {name of a part: its settings}, in the order of measurement;
- `measure(lab, part, settings, seed)`: return the results of a part, in any form that JSON can
  hold, including those of `lab.cost` and `lab.tested`; `lab` (see `lab.py`) trains and keeps the
  networks;
- `table(results)`: return the rows of a table, the first of which is the header;
- `headline(results)`: return a `line` for each result that belongs in the README;
- `draw(results, path, lab)`: draw a figure and write it with `lab.save`.

The argument `results` is a dictionary {part: list of the results of each seed}.

`KEY` explains the words in the table to a reader who has read nothing else. The keys of `KEY` are
column titles, or words that occur in several titles or rows. Each value is a one-line explanation
in plain words, with units.
"""
