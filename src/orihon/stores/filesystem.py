"""Whether a directory is on a file system that keeps its word.

Over a network, appends of two machines overwrite each other and locks may mean nothing, so such a place is refused
for writing. A file system that nobody here has heard of gets a warning.
"""

from __future__ import annotations

import logging
from pathlib import Path

from orihon.errors import UsageError

log = logging.getLogger("orihon")

NETWORK = frozenset(
    (
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs"),
        *("fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb3"),
        *("smbfs", "virtiofs"),
    )
)
LOCAL = frozenset(
    (
        *("apfs", "bcachefs", "btrfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "fuseblk", "hfs", "hfsplus"),
        *("jfs", "nilfs2", "ntfs", "ntfs3", "overlay", "ramfs", "reiserfs", "rootfs", "shiftfs", "tmpfs", "ufs"),
        *("vfat", "xfs", "zfs"),
    )
)
MOUNTS = Path("/proc/self/mountinfo")


def check(directory: Path) -> None:
    """Refuse a network file system; say so once when it is unknown."""
    kind = kind_of(directory, _mounts())
    if kind in NETWORK:
        raise UsageError(
            f"{directory} is on a network file system ({kind}), where appends and locks are not safe.",
            hint="Use a local directory, or PostgreSQL to share a store between machines: postgresql://…",
        )
    if kind and kind not in LOCAL:
        log.warning("%s is on a file system that Orihon does not know (%s).", directory, kind)


def kind_of(directory: Path, mountinfo: str) -> str:
    """The type of the mount that a directory is on; empty when it cannot be known."""
    place = directory.resolve()
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        mount = Path(_unescaped(fields[4]))
        if (place == mount or mount in place.parents) and len(mount.parts) >= best:
            best, kind = len(mount.parts), after.split(" ")[0]
    return kind


def _unescaped(text: str) -> str:
    """The kernel writes blanks and backslashes in octal."""
    for code, character in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        text = text.replace(code, character)
    return text


def _mounts() -> str:
    try:
        return MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
