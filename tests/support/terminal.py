"""A terminal for tests: a program on a real pseudo-terminal, its output, and typed keys."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

# sequences that move the cursor or change colours
ESCAPES = re.compile(r"\x1b\[[0-9;?>=]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[=>]")
SECONDS = 30


class Terminal:
    """Runs a program as the leader of its session, so that Ctrl-C and hanging up reach it."""

    def __init__(self, *command, cwd, env, size=(24, 80)):
        self._ours, theirs = pty.openpty()
        self.raw, self.seen = "", 0
        self.resize(*size, tell=False)
        opened = 'exec "$0" "$@" <>"$TERMINAL" >&0 2>&1'  # a session leader gets the terminal that it opens
        self.process = subprocess.Popen(
            ["sh", "-c", opened, *command], cwd=cwd, env={**env, "TERMINAL": os.ttyname(theirs), "TERM": "xterm"},
            start_new_session=True,
        )  # fmt: skip
        self._theirs = theirs

    @property
    def text(self):
        """The output so far."""
        return ESCAPES.sub("", self.raw).replace("\r", "")

    def until(self, wanted, seconds=SECONDS):
        """Wait for a text after the last match, and return the output up to it."""
        deadline = time.monotonic() + seconds
        while (found := self.text.find(wanted, self.seen)) < 0:
            assert time.monotonic() < deadline, f"{wanted!r} did not come after {self.text[self.seen :]!r}"
            assert self._read(0.05) or self.process.poll() is None, f"it ended: {self.text[self.seen :]!r}"
        begin, self.seen = self.seen, found + len(wanted)
        return self.text[begin : self.seen]

    def wait(self, seconds=SECONDS):
        """Wait for any output."""
        assert self._read(seconds), f"nothing came after {self.text[self.seen :]!r}"

    def type(self, keys):
        """Press keys; `\\r` is Enter, `\\x03` Ctrl-C, `\\x04` Ctrl-D, `\\t` Tab."""
        os.write(self._ours, keys.encode())

    def resize(self, rows, columns, *, tell=True):
        """Change the size of the window."""
        self._rows = rows
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if tell:
            self.process.send_signal(signal.SIGWINCH)

    def ended(self, seconds=SECONDS):
        """Wait for the end, and return the exit code."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it still runs: {self.text[-500:]!r}"
            self._read(0.05)
        while self._read(0):
            pass
        return self.process.returncode

    def hang_up(self):
        """Close the terminal."""
        os.close(self._theirs)
        os.close(self._ours)
        self._ours = self._theirs = -1

    def close(self):
        """Kill the program if it is still running."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(SECONDS)
        if self._ours >= 0:
            self.hang_up()

    def _read(self, seconds):
        if self._ours < 0 or not select.select([self._ours], [], [], seconds)[0]:
            return False
        data = os.read(self._ours, 65536).decode("utf-8", "replace")
        for _ in range(data.count("\x1b[6n")):  # a request for the cursor position
            os.write(self._ours, f"\x1b[{self._rows};1R".encode())
        self.raw += data
        return True
