"""Several processes, started by `mpiexec -n RANKS`, that compute the same thing together.

Each process is a rank, a number from 0. All ranks run the same program, and each takes its share of
every batch, so they must call the collective functions of this module (`total`, `agree`, `gather`,
`barrier`, `by_root`) in the same order. Without mpiexec, there is a single rank, each of these
functions is the identity, and MPI is never loaded. No other module imports mpi4py.
"""

import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from minicaps.errors import UserError

# Variables in which the launchers of MPICH, Intel MPI, Open MPI and PMIx tell the number of ranks
SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_SIZE")
NUMBERS = {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"}
LAUNCHER = ("PMI", "OMPI_", "PMIX_", "MPI_LOCAL")  # first letters of their variables
PATIENCE = 3.0  # seconds in which all ranks should meet an error that they have in common

_alone = ContextVar("alone", default=False)
_share: ContextVar["Share | None"] = ContextVar("share", default=None)


class _World(NamedTuple):
    """MPI and the communicator of all ranks, another one for failures, and the value of `local`."""

    mpi: ModuleType
    all: Any
    failures: Any
    local: tuple[int, int, int]


@functools.cache
def _started():
    """Return the `_World` if a launcher started several ranks, which all call this, else None."""
    if not any(os.environ.get(name, "1") != "1" for name in SIZES):
        return None
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: no MPI library
        raise UserError(
            f"mpiexec started several processes, but mpi4py cannot be imported ({error}): install"
            ' it with pip install -e ".[mpi]"'
        ) from error
    if MPI.COMM_WORLD.size == 1:
        raise UserError(
            "mpiexec started several processes, but mpi4py belongs to a different MPI and sees only"
            " one: use the mpiexec of the environment in which mpi4py is installed"
        )
    here = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED)
    bound = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    local = here.rank, here.size, here.allgather(bound).count(bound)
    return _World(MPI, MPI.COMM_WORLD, MPI.COMM_WORLD.Dup(), local)


def _world():
    """Return the communicator of all ranks, or None if this process counts as a single rank."""
    return None if _alone.get() or _started() is None else _started().all


def is_told_to_print() -> bool:
    """Return whether the launcher calls this process rank 0; this does not need mpi4py."""
    return "0" in {os.environ.get(name) for name in NUMBERS} or not NUMBERS & os.environ.keys()


# ---- who is here


def rank() -> int:
    """Return the number of this process among all ranks, from 0."""
    return world.rank if (world := _world()) else 0


def count() -> int:
    """Return the number of ranks."""
    return world.size if (world := _world()) else 1


def is_root() -> bool:
    """Return whether this is rank 0, the one that writes and prints."""
    return rank() == 0


def local() -> tuple[int, int, int]:
    """Return this rank's number among those of its machine, their number, and their rivals.

    The rivals are the ranks that may run on the same cores, this one included. Some launchers bind
    each rank to its own cores. Processes that count as single ranks still share the machine.
    """
    return started.local if (started := _started()) else (0, 1, 1)


@contextmanager
def alone() -> Iterator[None]:
    """Let this process count as a single rank inside this block, as for an independent training."""
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)


def without_launcher(environment: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables for a child process that is no rank."""
    return {key: value for key, value in environment.items() if not key.startswith(LAUNCHER)}


@contextmanager
def pool() -> Iterator[Any]:
    """Yield an executor on rank 0 that runs tasks on the other ranks, where this yields None.

    Tasks and results are pickled. Each task should run inside `alone`. With a single rank, the
    value is None on rank 0 as well.
    """
    if (world := _world()) is None:
        yield None
        return
    from mpi4py.futures import MPICommExecutor

    with MPICommExecutor(world, root=0) as executor:
        yield executor


# ---- what all ranks do together


def total(array: np.ndarray) -> np.ndarray:
    """Return the sum of the arrays of all ranks, which have the same shape and dtype.

    The array is on the host. With the same number of ranks, the result is bit-identical each time.
    """
    if _world() is None:
        return array
    add_up(summed := np.array(array, order="C"))
    return summed


def add_up(flat: np.ndarray) -> None:
    """Replace a contiguous array on the host by the sum of those of all ranks, in place."""
    if world := _world():
        world.Allreduce(_started().mpi.IN_PLACE, flat)


def agree(flag: object) -> bool:
    """Return whether the flag is true on any rank."""
    world = _world()
    return bool(flag) if world is None else world.allreduce(bool(flag), _started().mpi.LOR)


def gather(value: Any) -> list[Any]:
    """Return the values of all ranks, in order, on each rank; they are pickled."""
    world = _world()
    return [value] if world is None else world.allgather(value)


def barrier() -> None:
    """Wait until all ranks are here."""
    if world := _world():
        world.Barrier()


def by_root(function: Callable, *arguments: Any) -> Any:
    """Call function(*arguments) on rank 0 only; return its result, or raise its error, everywhere.

    Rank 0 counts as a single rank meanwhile. It starts when all ranks are here, so none of them
    still looks at files as they were before.
    """
    if (world := _world()) is None:
        return function(*arguments)
    world.Barrier()
    result = error = None
    if world.rank == 0:
        try:
            with alone():
                result = function(*arguments)
        except Exception as raised:
            error = raised
    result, error = world.bcast((result, error))
    if error is not None:
        raise error
    return result


@contextmanager
def held_by_root(context: AbstractContextManager) -> Iterator[None]:
    """Enter a context manager, such as a lock, on rank 0 only; errors of entering it are shared."""
    if _world() is None:
        with context:
            yield
        return
    by_root(context.__enter__)
    try:
        yield
    finally:
        if is_root():
            context.__exit__(None, None, None)


# ---- each rank's share of a batch


@dataclass(frozen=True)
class Share:
    """The rows of a batch that one rank computes.

    rows: slice of the batch. whole: number of rows in the batch. counted: number of own rows; if
    the batch has fewer rows than there are ranks, a rank without one computes the first row, which
    does not count, so that all ranks perform the same sums in the same order.
    """

    rows: slice
    whole: int
    counted: int

    @property
    def weight(self) -> float:
        """Fraction of the batch: a mean over the batch is the sum of all ranks' weighted means."""
        return self.counted / self.whole


def share_of(whole: int) -> Share | None:
    """Return this rank's share of a batch with `whole` rows, or None if there is a single rank."""
    if (world := _world()) is None:
        return None
    first, end = (whole * k // world.size for k in (world.rank, world.rank + 1))
    rows = slice(first, end) if end > first else slice(0, 1)
    return Share(rows, whole, end - first)


@contextmanager
def sharing(share: Share | None) -> Iterator[None]:
    """Tell the layers inside this block which rows of the batch they compute; None: all of them."""
    token = _share.set(share)
    try:
        yield
    finally:
        _share.reset(token)


def share() -> Share | None:
    """Return the share of the current batch, as given to `sharing`."""
    return _share.get()


# ---- how all ranks end


def all_fail() -> bool:
    """Wait for the other ranks to fail as this one did; return whether they did in time.

    If they did not, they wait for this rank in a sum, and only `abort` ends them.
    """
    if _world() is None:
        return True
    met, end = _started().failures.Ibarrier(), time.monotonic() + PATIENCE
    while not (here := met.Test()) and time.monotonic() < end:
        time.sleep(0.01)
    return here


def abort(code: int) -> None:
    """End all ranks at once."""
    _started().all.Abort(code)
