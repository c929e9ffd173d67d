"""Archives: zip files of arrays, which take no more memory than their size on disk."""

import zipfile
from pathlib import Path

from visprism.core.errors import InputError

_ZIP = b"PK\x03\x04"  # how an archive begins


def check_uncompressed(path: Path) -> None:
    """Check that an archive holds no more bytes than the file has; other files pass.

    NumPy's ``savez`` and ``torch.save`` do not compress. An archive that does, or whose members
    overlap, can grow a thousandfold when it is read.

    Raises:
        InputError: if the archive is damaged or larger than its file.
    """
    with path.open("rb") as file:
        if file.read(len(_ZIP)) != _ZIP:
            return
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise InputError(f"{path} was refused: it is not an archive ({error})") from error
    compressed = any(m.compress_type != zipfile.ZIP_STORED for m in members)
    if compressed or sum(m.file_size for m in members) > path.stat().st_size:
        raise InputError(
            f"{path} was refused: it must be an archive without compression. Save it again by "
            "np.savez or torch.save."
        )
