"""Collect everything that is wrong with custom data, so that a single error reports all of it."""

from minicaps.data.own.files import BadFiles, some_of
from minicaps.errors import DataError, counted

ADVICE = "to leave out what cannot be used, give --skip-bad"


class Faults:
    """The faults of a folder.

    skip_bad: whether to leave out files that cannot be used, instead of raising an error. They are
    listed in `skipped`, as pairs (name, reason).
    """

    def __init__(self, skip_bad):
        self.skip_bad, self.skipped = skip_bad, []
        self._sentences, self._bad, self._files = [], {}, 0
        self._avoidable, self._too_few = False, False

    def add(self, sentence, files=(), reason=None, *, too_few=False):
        """Add a fault. files: those that can be left out because of `reason`, if any.

        too_few: whether too little is left without them, so that leaving them out is no help.
        """
        if self.skip_bad and files:
            self.skipped += [(name, reason) for name in files]
            return
        self._sentences.append(str(sentence))
        self._avoidable |= bool(files)
        self._too_few |= too_few

    @property
    def found(self):
        """Whether there are any faults."""
        return bool(self._sentences or self._bad)

    def attempt(self, function, *arguments, otherwise=None):
        """Call a function. If it raises a `DataError`, add a fault and return `otherwise`."""
        try:
            return function(*arguments)
        except DataError as error:
            self.add(error)
            return otherwise

    def usable(self, names, function):
        """Call function(names), and again without the files that it could not use.

        Returns its result (None if it failed, or if no file is left) and the names that are left.
        """
        self._files = max(self._files, len(names))
        try:
            return (function(names) if names else None), names
        except BadFiles as bad:
            return self.usable(self._exclude(names, bad), function)
        except DataError as error:
            self.add(error)
            return None, names

    def each(self, names, function):
        """Call function(names), which must return a list with a result for each file.

        Returns the results of the files that could be used, and their names.
        """
        self._files = max(self._files, len(names))
        try:
            return function(names), names
        except BadFiles as bad:
            return bad.results, self._exclude(names, bad)

    def _exclude(self, names, bad):
        if self.skip_bad:
            for name, reason in bad.reasons.items():  # without the file and the advice
                what = reason.rpartition(f"{name} ")[2].removesuffix(": replace or remove it")
                self.skipped.append((name, what))
        else:
            self._bad |= bad.reasons
        return [name for name in names if name not in bad.reasons]

    def check(self):
        """Raise `DataError` if there are any faults, with an indented line for each of several."""
        sentences, bad = list(self._sentences), list(self._bad.values())
        if len(bad) == 1:
            sentences += bad
        elif bad:
            lines = some_of(bad, "\n  ")
            sentences.append(f"{len(bad):,} of {self._files:,} files cannot be used:\n  {lines}")
        if not sentences:
            return
        useful = not self._too_few and len(bad) < max(self._files, 1)
        advice = [ADVICE] if useful and (bad or self._avoidable) else []
        if len(sentences) == 1:
            between = "\n  " if "\n" in sentences[0] else "; "
            raise DataError(between.join([*sentences, *advice]))
        lines = [sentence.replace("\n  ", "\n    ") for sentence in sentences]
        raise DataError("\n  ".join([f"the data has {len(lines)} problems:", *lines, *advice]))

    def notes(self):
        """Return a tuple with a note on the skipped files, or an empty tuple if there are none."""
        if not self.skipped:
            return ()
        some = some_of([f"{name} ({reason})" for name, reason in self.skipped], "; ")
        return (f"skipped {counted(len(self.skipped), 'file')} that cannot be used: {some}",)
