"""`python -m minicaps.train`: train a capsule network and write a run folder."""

import sys
from functools import partial

from minicaps import ranks
from minicaps.cli.command import WrongUsage, command_line, fail, guarded, start, usage
from minicaps.errors import Interrupted
from minicaps.train import forecast, seeds
from minicaps.train.options import check_changeable, complete, make_parser
from minicaps.train.resume import Session

NAME = "minicaps.train"


def main(arguments=None):
    """Run the command and return the exit code.

    The exit code is 0 on success, 1 on failure, 2 on usage errors, and 128+n on signal n.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = make_parser()
    given = vars(parser.parse_args(arguments))
    command = command_line(NAME, *arguments)
    try:
        session = Session(NAME, command)
        return guarded(NAME, partial(_run, given, session), no_memory=session.advice)
    except WrongUsage as error:
        parser.error(str(error))


def _run(given, session):
    try:
        if "resume" in given:
            folder = given["resume"]
            repeated = seeds.is_repeated(folder)
            with usage():
                check_changeable(given, repeated)
            (seeds.go_on if repeated else Session.go_on)(session, folder, given)
        else:
            with usage():
                options = ranks.by_root(complete, given)  # its folder is named after the time
                if options.run.estimate and ranks.count() > 1:
                    raise ValueError("--estimate measures a single process: leave mpiexec out")
            folder = options.run.out
            begin = seeds.begin if options.run.seeds else Session.begin
            (forecast.show if options.run.estimate else begin)(session, options)
    except Interrupted:
        number = max(ranks.gather(session.stop.signal or 0))  # not all ranks may have one
        resume = command_line(NAME, "--resume", str(folder))
        return fail(NAME, f"stopped and saved. Resume with:\n  {resume}", 128 + number)


if __name__ == "__main__":
    sys.exit(start(main, together=True))
