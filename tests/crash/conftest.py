"""What the tests of crashes share."""

import os
import subprocess

import pytest


@pytest.fixture
def small_disk(tmp_path):
    """A file system of two megabytes."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk: run the tests as root, as CI does")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)
