"""Results of an experiment, stored in a small file per seed and a report on all seeds."""

import json
import statistics
from pathlib import Path

from minicaps.cli.measuring import describe_machine
from minicaps.cli.sharing import Job
from minicaps.experiments.lab import ExperimentError
from minicaps.experiments.significance import margin, mcnemar, only, paired_t, wilson
from minicaps.storage import claimed, results_folder, write_json

# Words with nearly the same meaning in all tables; an experiment's own `KEY` takes precedence
COMMON_KEY = {
    "test error, %": "share of the test images that are misclassified",
    "accuracy, %": "share of the test images that are classified correctly",
    "parameters": "number of trainable parameters",
    "images learned": "number of images shown in training, repetitions included",
    "±": "mean ± sample standard deviation over the seeds",
    "·": "between the results of two seeds, which are too few for a deviation",
    "[": "95% interval of a single network, if other test images were drawn (Wilson)",
}
UNPAIRED = "results stored before the misclassified images were; train anew with --out"


class Results:
    """Results in `folder`/NAME/seed-K.json; each part is saved as soon as it is measured."""

    def __init__(self, folder, name, parts):
        self.folder, self.name, self.parts = folder, name, parts

    def _path(self, seed):
        return self.folder / self.name / f"seed-{seed}.json"

    def make_folders(self):
        """Create all folders before training, so that missing write permission is detected early.

        Raises CheckpointError if a folder is not writable.
        """
        results_folder(self.folder)
        results_folder(self.folder / self.name)

    def read(self, seed):
        """Return a dictionary {part: entry} for a seed, which is empty if nothing was measured.

        Raises ExperimentError if the file is damaged or was measured with different settings.
        """
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

    def figures(self, part, seed):
        """Return the results of a part, or {} if it was not measured with this seed."""
        return self.read(seed).get(part, {}).get("figures", {})

    def job(self, part, seed, work):
        """Return the `Job` of saving the return value of work() as the results of a part."""
        title = f"{part}, seed {seed}"

        def measure():
            machine = describe_machine()
            entry = {"settings": self.parts[part], "figures": work(), "machine": machine}
            path = self._path(seed)
            with claimed(f"{path}.lock", wait=True):  # other processes measure other parts
                write_json(path, self.read(seed) | {part: entry})

        lock = self.folder / self.name / f"{title}.lock"
        return Job(title, f"\n{title}", lock, lambda: part in self.read(seed), measure)

    def gather(self, seeds):
        """Return, for each part, a list with the results of every seed that was measured."""
        entries = self._entries(seeds)
        return {part: [entry["figures"] for entry in entries[part]] for part in entries}

    def _entries(self, seeds):
        read = [self.read(seed) for seed in seeds]
        entries = {part: [found[part] for found in read if part in found] for part in self.parts}
        return {part: found for part, found in entries.items() if found}

    def report(self, seeds, module, command, quick):
        """Write a report to `folder`/NAME.json for the README and lesson 16, and return it.

        module: the experiment. quick: whether this is a quick trial. Raises ExperimentError if
        the results are missing or incomplete.
        """
        entries = self._entries(seeds)
        every = [entry for found in entries.values() for entry in found]
        if not every:
            raise ExperimentError(
                f"{self.folder / self.name} has no results yet: train its networks first, without"
                " --no-training"
            )
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
                "tested": module.TESTED,
                "paired": self._paired(seeds, module.COMPARED),
                "headline": module.headline(found),
            }
        except (KeyError, TypeError, IndexError) as error:
            raise ExperimentError(
                f"{self.folder / self.name} has results other than those now measured"
                f" ({error!r}): move it away or choose another --out"
            ) from error
        write_json(self.folder / f"{self.name}.json", report)
        return report

    def _paired(self, seeds, compared):
        """Test the difference of each pair of parts in `compared`, for each seed with both.

        Returns the rows of a table. Within a seed, both networks are tested on the same images; if
        several kinds of images were tested, each has its rows. With three seeds or more, a last row
        has the means, with the 95% interval of the difference, and the t-test of the differences.
        """
        counted = ["only first wrong", "only second wrong", "difference"]
        rows = [["paired by image", "seed", *counted, "p"]]
        for first, second in compared:
            counts = {}
            for seed in seeds:
                read = self.read(seed)
                if first in read and second in read:
                    for kind, pair in _counts(read[first], read[second]).items():
                        counts.setdefault(kind, {})[seed] = pair
            for kind, by_seed in counts.items():
                title = f"{first} / {second}" + (f", {kind}" if kind else "")
                rows += _tests(title, by_seed)
        return rows


def _counts(first, second):
    """Count the images that only one of two networks misclassifies: {kind: (first, second)}.

    The result is {None: None} if no kind of images was stored for both.
    """
    one, two = (_wrong(entry["figures"]) for entry in (first, second))
    return {kind: only(one[kind], two[kind]) for kind in one if kind in two} or {None: None}


def _wrong(figures):
    """Return the misclassified images of each kind: {kind: list}; the only kind is ""."""
    found = figures.get("wrong", {})
    return found if isinstance(found, dict) else {"": found}


def _tests(title, by_seed):
    """Return a row of `_paired` for each seed, and one for all if three or more have counts."""
    rows = []
    for seed, pair in by_seed.items():
        cells = ["–"] * 4
        if pair is not None:
            cells = [*map(str, pair), f"{pair[0] - pair[1]:+}", f"{mcnemar(*pair):.2g}"]
        rows.append([title, str(seed), *cells])
    counts = [pair for pair in by_seed.values() if pair is not None]
    if len(counts) > 2:
        means = [f"{statistics.fmean(column):.1f}" for column in zip(*counts, strict=True)]
        more = [b - d for b, d in counts]
        difference = f"{statistics.fmean(more):+.1f} ± {margin(more):.1f}"
        rows.append([title, "all (t)", *means, difference, f"{paired_t(more):.2g}"])
    return rows


def key(module, table):
    """Return a dictionary {word: meaning} for the words in the table of an experiment.

    Quick trials have fewer rows, and a single seed has no spread, so not all words occur in every
    table.
    """
    common = {word: said for word, said in COMMON_KEY.items() if word not in module.KEY}
    return words_in(table, module.KEY | common)


def words_in(table, words):
    """Select the entries of a dictionary {word: meaning} whose words occur in a table."""
    cells = [cell for row in table for cell in row]
    return {word: said for word, said in words.items() if any(word in cell for cell in cells)}


def percent(values, digits=1, count=None):
    """Format the `spread` of fractions in percent, for example as "93.4 ± 0.5".

    A single fraction of `count` images, if that is known, is followed by its Wilson interval, for
    example "34.7 [33.8, 35.6]".
    """
    text = spread([100 * value for value in values], f".{digits}f")
    if count is None or len(values) > 1:
        return text
    low, high = (f"{100 * end:.{digits}f}" for end in wilson(values[0], count))
    return f"{text} [{low}, {high}]"


def accuracy(seeds, name="accuracy", digits=2):
    """Format an accuracy of networks that differ in the seed as `percent` does."""
    return percent([figures[name] for figures in seeds], digits, seeds[0].get("tested"))


def error(seeds):
    """Format the mean test error over seeds in percent, for example as "1.52 ± 0.08"."""
    wrong = [1 - figures["accuracy"] for figures in seeds]
    return percent(wrong, digits=2, count=seeds[0].get("tested"))


def spread(values, style):
    """Format the mean of the values and their sample standard deviation.

    One or two values are too few for a deviation and are all listed: "0.58 · 0.60".
    """
    if len(values) < 3:
        return " · ".join(f"{value:{style}}" for value in values)
    return f"{statistics.fmean(values):{style}} ± {statistics.stdev(values):{style}}"


def all_seeds(results, drawn):
    """Return a suffix for an axis label that explains how the spread over seeds is drawn.

    The argument `drawn` names the graphical element that shows the spread, for example "band". The
    suffix is empty for a single seed.
    """
    return f" ({drawn}: all seeds)" if max(map(len, results.values())) > 1 else ""


def distinct(cells):
    """Write the cells for several data sets as one, each of them once."""
    return " / ".join(dict.fromkeys(cells))


def cost_cells(seeds):
    """Return the cells for the columns "parameters" and "images learned" of a table."""
    return [f"{seeds[0]['parameters']:,}", images_learned(seeds)]


def images_learned(seeds):
    """Format the number of images learned, a "–" if it is unknown."""
    counts = [figures.get("learned") for figures in seeds]
    if None in counts:
        return "–"
    return spread(counts[:1] if len(set(counts)) == 1 else counts, ",.0f")


def line(what, source, ours, seeds):
    """Return a row of the headline.

    seeds: the results of a part, one per seed.
    """
    return [what, source, ours, str(len(seeds)), images_learned(seeds)]


def headlines(folder):
    """Collect the headline rows of all experiments that have results in `folder`."""
    rows = []
    for path in sorted(Path(folder).glob("*.json")):
        try:
            report = json.loads(path.read_text())
            name = report["experiment"] + (" (quick)" if report.get("quick") else "")
            rows += [[name, *row] for row in report["headline"]]
        except (ValueError, KeyError, TypeError) as error:
            raise ExperimentError(f"{path} is damaged ({error!r}): move it away") from error
    header = ["experiment", "what", "source", "ours", "seeds", "images learned"]
    return [header, *rows] if rows else []


def print_markdown(rows):
    """Print rows of text as a Markdown table; the first row is the header."""
    for k, row in enumerate(rows):
        print("| " + " | ".join(row) + " |")
        if k == 0:
            print("|---" * len(row) + "|")


def print_report(report):
    """Print the table of a report, its key, its test data and the paired tests."""
    print_table(report["table"])
    print()
    print_key(report["key"] | {"tested on": report["tested"]})
    header, *rows = report["paired"]
    known = [row for row in rows if "–" not in row]
    if known:
        print()
        print_table([header, *known])
        print("difference: images that the first network misclassifies more; all: 95% interval")
        print("p: if both were equally good; exact McNemar test, all: paired t-test over seeds;")
        print("   not corrected for the number of comparisons")
    if len(known) < len(rows):
        print(f"\nNo paired test of {len(rows) - len(known)} comparisons: {UNPAIRED}.")


def print_key(words):
    """Print the entries of a dictionary {word: meaning}, one per line."""
    width = max(map(len, words))
    for word, said in words.items():
        print(f"{word:{width}}  {said}")


def print_table(rows):
    """Print rows of text as a table with aligned columns; the first row is the header."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *others = [
            text.ljust(width) if k == 0 else text.rjust(width)
            for k, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join([first, *others]).rstrip())
