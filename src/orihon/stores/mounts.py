"""Refuse directories on network file systems.

Over a network, appends of two machines overwrite each other and locks may not work. An unknown file system gets a
warning.
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


def require_local(directory: Path) -> None:
    """Raise UsageError for a directory on a network file system; log a warning if its type is unknown."""
    kind = find_type(directory, _read_mounts())
    if kind in NETWORK:
        raise UsageError(
            f"{directory} is on a network file system ({kind}), where appends and locks are not safe.",
            hint="Use a local directory, or PostgreSQL to share a store between machines: postgresql://…",
        )
    if kind and kind not in LOCAL:
        log.warning("%s is on a file system that Orihon does not know (%s).", directory, kind)


def find_type(directory: Path, mountinfo: str) -> str:
    """Return the file system type of the mount that a directory is on; empty if it is unknown."""
    path = directory.resolve()
    depth, kind = -1, ""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        mount = Path(_unescape(before.split(" ")[4]))
        if (path == mount or mount in path.parents) and len(mount.parts) >= depth:
            depth, kind = len(mount.parts), after.split(" ")[0]
    return kind


def _unescape(text: str) -> str:
    """Replace the octal codes that the kernel writes for blanks and backslashes."""
    for code, character in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        text = text.replace(code, character)
    return text


def _read_mounts() -> str:
    try:
        return MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
