"""The command `orihon view`, as a process."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from support.cli_store import IDS, fill

COMMAND = str(Path(sys.executable).parent / "orihon")


@pytest.fixture
def url(tmp_path):
    url = str(tmp_path / "contexts")
    fill(url)
    return url


def test_the_printed_address_leads_to_the_task(url, tmp_path):
    """The command prints an address that shows the task, and ends on Ctrl-C."""
    command = [COMMAND, "view", IDS["done"][:11], "--no-browser", "--store", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        try:
            address = re.search(r"http://127\.0\.0\.1:\d+/t/\S+", process.stdout.readline())[0]
            with build_opener(HTTPCookieProcessor()).open(address) as page:
                assert page.status == 200
                assert "token=" not in page.url
                assert "github/acme/shop/issue/27" in page.read().decode()
        finally:
            os.kill(process.pid, signal.SIGINT)
        assert process.wait(30) in {0, 130}


def test_a_store_or_a_task_that_is_not_there_is_an_error(url, tmp_path):
    """The command says so and serves nothing."""
    for arguments in (["--store", str(tmp_path / "none")], ["ffff", "--store", url]):
        done = subprocess.run(
            [COMMAND, "view", "--no-browser", *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 3, done.stderr
