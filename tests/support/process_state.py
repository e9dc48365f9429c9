"""What a test session takes over from the process that started it, put back to what a login shell gives.

`nohup`, a job in the background, a cron job or a CI runner hand down signals that are ignored or blocked, a umask, a
locale, a time zone, colours, widths, settings of git and of PostgreSQL, and a standard input that is closed. A test
that starts a program hands all of it on. Each worker of pytest-xdist loads `conftest.py`, and so is reset as well.
"""

import atexit
import os
import re
import resource
import shutil
import signal
import tempfile
import time
from pathlib import Path

OURS = ("ORIHON_DEEP", "ORIHON_GOLDEN", "ORIHON_MANY", "ORIHON_DATA", "ORIHON_TEST_")  # what the tests are told by
BEGINNINGS = ("LC_", "GIT_", "XDG_", "ORIHON_", "OPENAI_", "ANTHROPIC_", "GITHUB_", "GITLAB_", "PYTHON", "CLICOLOR")
NAMES = ("LANG", "LANGUAGE", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TZ", "EDITOR", "VISUAL", "PAGER", "TERM")
LEFT = {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}  # the last two are Python's own to ignore
SECRET = re.compile(r"TOKEN|SECRET|PASSW|KEY|CREDENTIAL|AUTH", re.IGNORECASE)
HANDLES = 4096  # open files


def reset() -> None:
    """Begin as if a person had opened a terminal."""
    _reset_signals()
    _reset_environment()
    _reset_handles()
    os.umask(0o022)


def _reset_signals() -> None:
    """Programs that the tests start get the defaults; the session itself goes on when its terminal is closed."""
    for number in signal.valid_signals() - LEFT:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: _stay}.get(number, 0))
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


def _stay(*_: object) -> None:
    """Unlike a signal that is ignored, one that is handled is not handed on."""


def _reset_environment() -> None:
    for name in [name for name in os.environ if _is_foreign(name)]:
        del os.environ[name]
    os.environ["TERM"] = "xterm-256color"
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "localhost,127.0.0.1,::1"  # our own servers are never behind one
    time.tzset()
    home = Path(os.environ.get("HOME", "/nowhere"))
    if not (home.is_dir() and os.access(home, os.W_OK)):
        os.environ["HOME"] = tempfile.mkdtemp(prefix="orihon-home-")
        atexit.register(shutil.rmtree, os.environ["HOME"], ignore_errors=True)


def _is_foreign(name: str) -> bool:
    if name.startswith(OURS):
        return False
    if name.startswith("PG") and "ORIHON_TEST_POSTGRES" in os.environ:
        return False
    # what looks like a secret is masked everywhere, and its value may be an ordinary word
    return name in NAMES or name.startswith((*BEGINNINGS, "PG")) or SECRET.search(name) is not None


def _reset_handles() -> None:
    """A standard input that is closed is an empty one, and there are as many open files as are allowed."""
    try:
        os.fstat(0)
    except OSError:
        os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < HANDLES:
        most = HANDLES if hard == resource.RLIM_INFINITY else min(hard, HANDLES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
