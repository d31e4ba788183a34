"""Files written below one folder and nowhere else, none of them ever replaced."""

import os
import secrets
import stat
import unicodedata
from contextlib import suppress
from hashlib import blake2b

from shardtools.datasets import is_safe_name
from shardtools.errors import ShardtoolsError, StorageError, UsageError

_PROBE = "shardtools-Probe"


class ExtractFolder:
    """The folder extracted files go to. Memory: about 100 bytes a file."""

    def __init__(self, root: str, folds_case: bool | None) -> None:
        """``folds_case``: whether names that differ only by case are one file there; None: found out by trying."""
        if "://" in root:
            raise UsageError(f"expected a folder of this machine to extract to, got {root}; extract here, and copy the files there")
        self._root = os.path.abspath(root)
        if os.path.lexists(self._root) and not os.path.isdir(self._root):
            raise UsageError(f"expected a folder to extract to, got {root}, which is a file")
        try:
            os.makedirs(self._root, exist_ok=True)
            self._folds_case = self._probe() if folds_case is None else folds_case
        except OSError as error:
            raise _storage_error("create", self._root, error) from error
        self._taken: set[bytes] = set()
        self._folders: set[str] = {""}

    def write(self, name: str, data: bytes | memoryview) -> bool:
        """Store a new file; False if the very same one is there already.

        Raises ShardtoolsError for a name that leads out of the folder or was written before, and where another file is in the way.
        """
        name = "/".join(part for part in name.split("/") if part != ".")
        if not is_safe_name(name):
            raise ShardtoolsError(f"expected a file name below the folder to extract to, got {name!r}; the dataset is not to be trusted")
        self._take(name)
        path = os.path.join(self._root, name)
        try:
            self._make_folder(os.path.dirname(name))
            if os.path.lexists(path):
                _refuse_other(path, data)
                return False
            _write_new(path, data)
        except OSError as error:
            raise _storage_error("write", path, error) from error
        except UnicodeEncodeError:
            raise ShardtoolsError(f"expected a name this file system can take, got {name!r}") from None
        return True

    def _take(self, name: str) -> None:
        folded = unicodedata.normalize("NFC", name).casefold() if self._folds_case else name
        digest = blake2b(folded.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if digest in self._taken:
            case = ", where names that differ only by case or Unicode form are one file" if self._folds_case else ""
            raise ShardtoolsError(
                f"expected every file once, got {name!r} a second time in {self._root}{case}; "
                "choose the samples with --key, or extract to another file system"
            )
        self._taken.add(digest)

    def _make_folder(self, folder: str) -> None:
        if folder in self._folders:
            return
        parent = os.path.dirname(folder)
        self._make_folder(parent)
        path = os.path.join(self._root, folder)
        try:
            os.mkdir(path)
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                what = "a symbolic link" if os.path.islink(path) else "a file"
                raise ShardtoolsError(f"expected a folder at {path}, got {what}; move it away or extract to another folder") from None
        self._folders.add(folder)

    def _probe(self) -> bool:
        name = f"{_PROBE}-{secrets.token_hex(8)}"
        path = os.path.join(self._root, name)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            return os.path.exists(os.path.join(self._root, name.lower()))
        finally:
            os.unlink(path)


def _write_new(path: str, data: bytes | memoryview) -> None:
    """Under another name first, so that a run that is cut short leaves no half of a file, and what it leaves the next one takes away."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{blake2b(os.fsencode(name), digest_size=8).hexdigest()}.tmp")
    with suppress(FileNotFoundError):
        os.unlink(temporary)
    try:
        with open(temporary, "xb") as file:
            file.write(data)
        os.rename(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _refuse_other(path: str, data: bytes | memoryview) -> None:
    status = os.lstat(path)
    if stat.S_ISREG(status.st_mode) and status.st_size == len(data):
        with open(path, "rb") as file:
            if file.read() == data:
                return
    raise ShardtoolsError(f"expected no file at {path}, got another one than would be written; move it away or extract to another folder")


def _storage_error(action: str, path: str, error: OSError) -> StorageError:
    return StorageError(f"could not {action} {path}: {error.strerror}; check the path and the free space, then run again")
