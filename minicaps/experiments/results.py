"""Results of an experiment: a small file for each seed, and a report on all of them."""

import json
import statistics
from pathlib import Path

from minicaps.cli.measuring import describe_machine
from minicaps.experiments.lab import ExperimentError
from minicaps.storage import results_folder, write_json

# Words with nearly the same meaning in all tables; an experiment's own `KEY` takes precedence
COMMON_KEY = {
    "test error, %": "share of the test images that are misclassified",
    "accuracy, %": "share of the test images that are classified correctly",
    "parameters": "number of trainable parameters",
    "seconds": "training time of one network; the JSON file names the machine",
    "±": "mean ± sample standard deviation over the seeds",
}


class Results:
    """Results in `folder`/NAME/seed-K.json, where each part is saved as soon as it is measured."""

    def __init__(self, folder, name, parts):
        self.folder, self.name, self.parts = folder, name, parts

    def _path(self, seed):
        return self.folder / self.name / f"seed-{seed}.json"

    def make_folders(self):
        """Make the folders before any work, so that nothing is trained if they are not writable.
        Raises CheckpointError."""
        results_folder(self.folder)
        results_folder(self.folder / self.name)

    def read(self, seed):
        """Return {part: entry} for a seed, or {} if nothing was measured. Raises ExperimentError
        if the file is damaged or was measured with other settings."""
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
                    f"{path} has results of {part} with settings other than the current ones:"
                    " move it away or choose another --out"
                )
        return found

    def measure(self, part, seed, work):
        """Save what work() returns as the results of a part, unless they already exist."""
        if part in self.read(seed):
            return
        print(f"\n{part}, seed {seed}")
        machine = describe_machine()
        entry = {"settings": self.parts[part], "figures": work(), "machine": machine}
        write_json(self._path(seed), self.read(seed) | {part: entry})

    def gather(self, seeds):
        """Return {part: list of the results of each seed measured}."""
        entries = self._entries(seeds)
        return {part: [entry["figures"] for entry in entries[part]] for part in entries}

    def _entries(self, seeds):
        read = [self.read(seed) for seed in seeds]
        entries = {part: [found[part] for found in read if part in found] for part in self.parts}
        return {part: found for part, found in entries.items() if found}

    def report(self, seeds, module, command, quick):
        """Write a report to `folder`/NAME.json, for the README and lesson 16, and return it.

        module: the experiment. quick: whether this is a quick trial. Raises ExperimentError if
        the results are incomplete.
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
                f"{self.folder / self.name} has results other than those now measured"
                f" ({error!r}): move it away or choose another --out"
            ) from error
        write_json(self.folder / f"{self.name}.json", report)
        return report


def key(module, table):
    """Return {word: meaning} for the words that occur in the table of an experiment. A quick trial
    has fewer rows, and a single seed has no spread."""
    common = {word: said for word, said in COMMON_KEY.items() if word not in module.KEY}
    return words_in(table, module.KEY | common)


def words_in(table, words):
    """Return the entries of {word: meaning} whose word occurs in the rows of a table."""
    cells = [cell for row in table for cell in row]
    return {word: said for word, said in words.items() if any(word in cell for cell in cells)}


def percent(values, digits=1):
    """Mean and `spread` of shares, in percent, such as "93.4 ± 0.5"."""
    return spread([100 * value for value in values], f".{digits}f")


def error(seeds):
    """Mean test error over seeds, from their accuracies, in percent, such as "1.52 ± 0.08"."""
    return percent([1 - figures["accuracy"] for figures in seeds], digits=2)


def spread(values, style):
    """Mean of the values, followed by their sample standard deviation if there are several."""
    text = f"{statistics.fmean(values):{style}}"
    return text + (f" ± {statistics.stdev(values):{style}}" if len(values) > 1 else "")


def all_seeds(results, drawn):
    """Suffix of an axis label that explains the `drawn` spread, such as "band"; "" for one seed."""
    return f" ({drawn}: all seeds)" if max(map(len, results.values())) > 1 else ""


def cost_cells(seeds):
    """Cells "parameters" and "seconds" of a table row."""
    return [f"{seeds[0]['parameters']:,}", spread([f["seconds"] for f in seeds], ",.0f")]


def line(what, source, ours, seeds):
    """Return a row of the headline. seeds: the results of a part, one per seed."""
    minutes = statistics.fmean([figures["seconds"] for figures in seeds]) / 60
    return [what, source, ours, str(len(seeds)), f"{minutes:,.1f}"]


def headlines(folder):
    """Collect the headlines of all experiments with results in `folder`, as rows, or []."""
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
    """Print rows of text, of which the first is the header, as a Markdown table."""
    for k, row in enumerate(rows):
        print("| " + " | ".join(row) + " |")
        if k == 0:
            print("|---" * len(row) + "|")


def print_key(words):
    """Print {word: meaning}, one word per line."""
    width = max(map(len, words))
    for word, said in words.items():
        print(f"{word:{width}}  {said}")


def print_table(rows):
    """Print rows of text, of which the first is the header, in columns; right-align numbers."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *others = [
            text.ljust(width) if k == 0 else text.rjust(width)
            for k, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join([first, *others]).rstrip())
