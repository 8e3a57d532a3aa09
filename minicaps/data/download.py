"""Find, download and verify the files of MNIST and Fashion-MNIST."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from minicaps.data.dataset import Split
from minicaps.data.idx import parse_idx, read_bytes
from minicaps.errors import DataError

ENVIRONMENT = "MINICAPS_DATA"  # environment variable with a folder to search before the cache
DEBIAN = Path("/usr/share/datasets")  # Debian's package dataset-fashion-mnist


@dataclass(frozen=True)
class Source:
    """Data set of four IDX files.

    `md5` holds two checksums for each file: that of the published .gz file verifies a download, and
    that of the uncompressed bytes verifies what is read, however it is compressed on disk.
    """

    title: str
    class_names: tuple[str, ...]
    sizes: tuple[int, int]  # training and test images
    mirrors: tuple[str, ...]
    md5: dict[str, tuple[str, str]]


SOURCES = {
    "mnist": Source(
        title="MNIST, handwritten digits (Y. LeCun, C. Cortes, C. Burges)",
        class_names=tuple("0123456789"),
        sizes=(60_000, 10_000),
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        md5={
            "train-images-idx3-ubyte": (
                "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "6bbc9ace898e44ae57da46a324031adb",
            ),
            "train-labels-idx1-ubyte": (
                "d53e105ee54ea40749a09fcbcd1e9432",
                "a25bea736e30d166cdddb491f175f624",
            ),
            "t10k-images-idx3-ubyte": (
                "9fb629c4189551a2d022fa330f9573f3",
                "2646ac647ad5339dbf082846283269ea",
            ),
            "t10k-labels-idx1-ubyte": (
                "ec29112dd5afa0611ce80d1b7f02629c",
                "27ae3e4e09519cfbb04c329615203637",
            ),
        },
    ),
    "fashion-mnist": Source(
        title="Fashion-MNIST, articles of clothing (H. Xiao, K. Rasul, R. Vollgraf)",
        class_names=(
            *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
            *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
        ),
        sizes=(60_000, 10_000),
        mirrors=(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        ),
        md5={
            "train-images-idx3-ubyte": (
                "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            ),
            "train-labels-idx1-ubyte": (
                "25c81989df183df01b3e8a0aad5dffbe",
                "9018921c3c673c538a1fc5bad174d6f9",
            ),
            "t10k-images-idx3-ubyte": (
                "bef4ecab320f06d8554ea6380940ec79",
                "8181f5470baa50b63fa0f6fddb340f0a",
            ),
            "t10k-labels-idx1-ubyte": (
                "bb300cfdad3c16e7a12a480ee83cd310",
                "15d484375f8d13e6eb1aabb0c3f46965",
            ),
        },
    ),
}


def read(name: str, folder=None, limit=None) -> tuple[Split, Split]:
    """Read the training split and the test split of a data set.

    If `limit` is given, only the first `limit` training samples are kept. Files that are not found
    in any of the folders are downloaded.
    """
    paths = fetch(name, folder)
    arrays = {file: _verified(name, file, path) for file, path in paths.items()}
    images, labels = (arrays[f"train-{kind}-ubyte"] for kind in ("images-idx3", "labels-idx1"))
    if limit is not None and limit > len(images):
        raise ValueError(f"limit {limit:,} exceeds the {len(images):,} training samples of {name}")
    train = _split(images[:limit], labels[:limit])
    return train, _split(arrays["t10k-images-idx3-ubyte"], arrays["t10k-labels-idx1-ubyte"])


def fetch(name: str, folder=None) -> dict[str, Path]:
    """Find the files of a data set, download those that are missing, and return their paths."""
    return {
        file: find(name, file, folder) or download(name, file, folder) for file in SOURCES[name].md5
    }


def _split(images, labels):
    """Convert byte images (n, height, width) and labels (n,) to a `Split`."""
    pixels = np.divide(images[:, None], 255, dtype=np.float32)
    return Split(pixels, labels.astype(np.int64))


def find(name: str, file: str, folder=None) -> Path | None:
    """Find a file of a data set, gzipped or not; return its path, or None if it is not found.

    In each folder, the subfolder named after the data set is searched before the folder itself.
    """
    for root in roots(folder):
        for inside in (root / name, root):
            for path in (inside / file, inside / f"{file}.gz"):
                if _exists(path):
                    return path
    return None


def roots(folder=None) -> list[Path]:
    """Return the folders to search, in order of precedence.

    The list contains `folder`, which must exist if given; the folder named by the environment
    variable `MINICAPS_DATA`; the user's cache; and the folder of the Debian package.
    """
    if folder is not None and not Path(folder).is_dir():
        raise DataError(f"the data folder {folder} does not exist or is not a folder")
    told = [Path(root) for root in (folder, os.environ.get(ENVIRONMENT)) if root]
    return [*told, cache_folder(), DEBIAN]


def cache_folder() -> Path:
    """Return the folder for downloads."""
    import pooch

    return Path(pooch.os_cache("minicaps"))


def download(name: str, file: str, folder=None) -> Path:
    """Download a file of a data set to the cache, trying each mirror in turn, and verify it.

    The file is renamed to its final name only after it is complete and verified, so an interrupted
    download leaves nothing behind. If no mirror provides the file, a `DataError` lists the folders
    searched and explains where to put the files. The argument `folder` is used only for the error
    message.
    """
    from requests import RequestException

    path = cache_folder() / name / f"{file}.gz"
    failures = []
    for mirror in SOURCES[name].mirrors:
        try:
            _retrieve(f"{mirror}{path.name}", SOURCES[name].md5[file][0], path)
            return path
        except RequestException as error:
            failures.append(f"{mirror}{path.name}: {_reason(error)}")
        except ValueError:  # from pooch, which has deleted the file
            failures.append(f"{mirror}{path.name}: not the published file (its checksum differs)")
        except OSError as error:
            reason = error.strerror or error
            raise DataError(f"cannot write {path}: {reason}. {_where_to_put(name)}") from None
    searched = [f"searched {root}" for root in roots(folder)]
    tried = [f"tried {failure}" for failure in failures]
    said = f"{name} was not found and could not be downloaded."
    raise DataError("\n  ".join([said, *searched, *tried, _where_to_put(name)]))


def _retrieve(url, md5, path):
    import pooch
    from tqdm import tqdm

    pooch.get_logger().setLevel("WARNING")  # the progress bar and the errors below suffice
    with tqdm(desc=path.name, total=0, unit="B", unit_scale=True, leave=False, disable=None) as bar:
        downloader = pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 16)
        pooch.retrieve(url, f"md5:{md5}", path.name, path.parent, downloader=downloader)


def _where_to_put(name):
    files = ", ".join(f"{file}.gz" for file in SOURCES[name].md5)
    return (
        f"Put the four files {files} (gzipped or not) into FOLDER/{name}, "
        f"and specify FOLDER with --data-dir or {ENVIRONMENT}."
    )


def belongs(name, file, path) -> bool:
    """Return whether a file is readable and belongs to the data set.

    The check is needed because other data sets use the same file names.
    """
    try:
        return _md5(read_bytes(path)) == SOURCES[name].md5[file][1]
    except DataError:
        return False


def _md5(content):
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def _verified(name, file, path):
    """Verify that a file belongs to the data set, and read the array it contains."""
    content = read_bytes(path)
    array = parse_idx(content, path)
    md5 = _md5(content)
    if md5 == SOURCES[name].md5[file][1]:
        return array
    for other, source in SOURCES.items():
        if md5 == source.md5[file][1]:
            raise DataError(
                f"{path} belongs to {other}, not to {name}: put the files of each data set into a"
                " folder with its name"
            )
    raise DataError(
        f"{path} is not the file of {name}: the MD5 of its uncompressed bytes is {md5}, "
        f"expected {SOURCES[name].md5[file][1]}; delete the file to download it again"
    )


def _exists(path):
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise DataError(f"cannot access {path}: {error.strerror}") from None
    return True


def _reason(error):
    """Return the innermost cause of a failed download; the outer exceptions only repeat it."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__
    return str(error) or type(error).__name__
