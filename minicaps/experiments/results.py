"""The figures of an experiment: a small file for each seed, and all of them together."""

import json
import statistics
from pathlib import Path

from minicaps.cli.measuring import describe_machine
from minicaps.experiments.lab import ExperimentError
from minicaps.storage import results_folder, write_json

# What means the same in all tables, or nearly: an experiment's own `KEY` goes before
COMMON_KEY = {
    "test error, %": "share of the test pictures that get a wrong answer",
    "accuracy, %": "share of the test pictures that get the right answer",
    "parameters": "numbers that training adjusts",
    "seconds": "of training one network; the JSON file says on which machine",
    "±": "mean ± sample standard deviation over the seeds",
}


class Results:
    """The figures in `folder`/NAME/seed-K.json, each part as soon as it is measured."""

    def __init__(self, folder, name, parts):
        self.folder, self.name, self.parts = folder, name, parts

    def _path(self, seed):
        return self.folder / self.name / f"seed-{seed}.json"

    def make_folders(self):
        """Make the folders before any work: what cannot be written there shall not be trained.
        Raises CheckpointError."""
        results_folder(self.folder)
        results_folder(self.folder / self.name)

    def read(self, seed):
        """{part: what was measured} of a seed, {} at first. Raises ExperimentError for figures of
        other settings, and for a file that is damaged."""
        path = self._path(seed)
        if not path.exists():
            return {}
        try:
            found = json.loads(path.read_text())
            settings = {part: entry["settings"] for part, entry in found.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ExperimentError(f"{path} is damaged ({error!r}): move it away") from error
        for part, was in settings.items():
            if was != self.parts.get(part):
                raise ExperimentError(
                    f"{path} has figures of {part} with other settings than this experiment has"
                    " now: move it away, or give another --out"
                )
        return found

    def measure(self, part, seed, work):
        """Keep what work() returns as the figures of a part, unless they are there already."""
        if part in self.read(seed):
            return
        print(f"\n{part}, seed {seed}")
        machine = describe_machine()
        entry = {"settings": self.parts[part], "figures": work(), "machine": machine}
        write_json(self._path(seed), self.read(seed) | {part: entry})

    def gather(self, seeds):
        """{part: the figures of each seed that has been measured}."""
        entries = self._entries(seeds)
        return {part: [entry["figures"] for entry in entries[part]] for part in entries}

    def _entries(self, seeds):
        read = [self.read(seed) for seed in seeds]
        entries = {part: [found[part] for found in read if part in found] for part in self.parts}
        return {part: found for part, found in entries.items() if found}

    def report(self, seeds, module, command, quick):
        """Write all together to `folder`/NAME.json, for the README and for lesson 16; return it.

        module: the experiment. quick: whether it was only tried out. Raises ExperimentError for
        figures that lack some.
        """
        entries = self._entries(seeds)
        every = [entry for found in entries.values() for entry in found]
        try:
            found = self.gather(seeds)
            table = module.table(found)
            report = {
                "experiment": self.name,
                "title": module.TITLE,
                "command": command,
                "quick": quick,
                "hours_of_training": round(sum(e["figures"]["seconds"] for e in every) / 3600, 3),
                "machine": every[-1]["machine"],
                "seeds": {part: len(found) for part, found in entries.items()},
                "table": table,
                "key": key(module, table),
                "headline": module.headline(found),
            }
        except (KeyError, TypeError, IndexError) as error:
            raise ExperimentError(
                f"{self.folder / self.name} has other figures than this experiment measures now"
                f" ({error!r}): move it away, or give another --out"
            ) from error
        write_json(self.folder / f"{self.name}.json", report)
        return report


def key(module, table):
    """{word: what it means} for the words of an experiment's `KEY` that are in its table: a quick
    one has fewer rows, and one seed has no spread."""
    common = {word: said for word, said in COMMON_KEY.items() if word not in module.KEY}
    return words_in(table, module.KEY | common)


def words_in(table, words):
    """Of {word: what it means}, those that are in the rows of a table."""
    cells = [cell for row in table for cell in row]
    return {word: said for word, said in words.items() if any(word in cell for cell in cells)}


def percent(values, digits=1):
    """The mean of shares, and their `spread`, in per cent: "93.4 ± 0.5"."""
    return spread([100 * value for value in values], f".{digits}f")


def error(seeds):
    """The mean of the test errors of seeds, which have accuracies, in per cent: "1.52 ± 0.08"."""
    return percent([1 - figures["accuracy"] for figures in seeds], digits=2)


def spread(values, style):
    """The mean of numbers, and, where there are several, their sample standard deviation."""
    text = f"{statistics.fmean(values):{style}}"
    return text + (f" ± {statistics.stdev(values):{style}}" if len(values) > 1 else "")


def all_seeds(results, drawn):
    """What an axis says of the spread that is `drawn`, such as "band"; nothing for one seed."""
    return f" ({drawn}: all seeds)" if max(map(len, results.values())) > 1 else ""


def cost_cells(seeds):
    """The cells "parameters" and "seconds" of a row."""
    return [f"{seeds[0]['parameters']:,}", spread([f["seconds"] for f in seeds], ",.0f")]


def line(what, source, ours, seeds):
    """A line of the headline: seeds are the figures of a part, one of each seed."""
    minutes = statistics.fmean([figures["seconds"] for figures in seeds]) / 60
    return [what, source, ours, str(len(seeds)), f"{minutes:,.1f}"]


def headlines(folder):
    """The headlines of all experiments whose figures are in `folder`, as rows; [] if none are."""
    rows = []
    for path in sorted(Path(folder).glob("*.json")):
        try:
            report = json.loads(path.read_text())
            name = report["experiment"] + (" (quick)" if report.get("quick") else "")
            rows += [[name, *row] for row in report["headline"]]
        except (ValueError, KeyError, TypeError) as error:
            raise ExperimentError(f"{path} is damaged ({error!r}): move it away") from error
    header = ["experiment", "what", "source", "ours", "seeds", "minutes each"]
    return [header, *rows] if rows else []


def print_markdown(rows):
    """Print rows of text, the first the header, as a table in Markdown."""
    for k, row in enumerate(rows):
        print("| " + " | ".join(row) + " |")
        if k == 0:
            print("|---" * len(row) + "|")


def print_key(words):
    """Print {word: what it means}, a line each."""
    width = max(map(len, words))
    for word, said in words.items():
        print(f"{word:{width}}  {said}")


def print_table(rows):
    """Print rows of text, the first the header, in columns; numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *others = [
            text.ljust(width) if k == 0 else text.rjust(width)
            for k, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join([first, *others]).rstrip())
