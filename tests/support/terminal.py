"""A terminal for tests: a program on a real pseudo-terminal of its own, what it shows, and keys that are pressed."""

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

# what moves the cursor or changes colours, and is not shown
ESCAPES = re.compile(r"\x1b\[[0-9;?>=]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[=>]")
SECONDS = 30


class Terminal:
    """Starts a program as the leader of its session, so that Ctrl-C and hanging up reach it as they would a shell's."""

    def __init__(self, *command, cwd, env, size=(24, 80)):
        self._ours, theirs = pty.openpty()
        self.raw, self.seen = "", 0
        self.resize(*size, tell=False)
        opened = 'exec "$0" "$@" <>"$TERMINAL" >&0 2>&1'  # whoever leads a session and opens a terminal gets it
        self.process = subprocess.Popen(
            ["sh", "-c", opened, *command], cwd=cwd, env={**env, "TERMINAL": os.ttyname(theirs), "TERM": "xterm"},
            start_new_session=True,
        )  # fmt: skip
        self._theirs = theirs

    @property
    def text(self):
        """All that was shown."""
        return ESCAPES.sub("", self.raw).replace("\r", "")

    def until(self, wanted, seconds=SECONDS):
        """Wait for a text after the last one that was waited for; what was shown in between, and it."""
        deadline = time.monotonic() + seconds
        while (found := self.text.find(wanted, self.seen)) < 0:
            assert time.monotonic() < deadline, f"{wanted!r} did not come after {self.text[self.seen :]!r}"
            assert self._read(0.05) or self.process.poll() is None, f"it ended: {self.text[self.seen :]!r}"
        begin, self.seen = self.seen, found + len(wanted)
        return self.text[begin : self.seen]

    def wait(self, seconds=SECONDS):
        """Until anything is shown."""
        assert self._read(seconds), f"nothing came after {self.text[self.seen :]!r}"

    def type(self, keys):
        """Press keys; `\\r` is Enter, `\\x03` Ctrl-C, `\\x04` Ctrl-D, `\\t` Tab."""
        os.write(self._ours, keys.encode())

    def resize(self, rows, columns, *, tell=True):
        """Another size of the window."""
        self._rows = rows
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if tell:
            self.process.send_signal(signal.SIGWINCH)

    def ended(self, seconds=SECONDS):
        """The exit code, when it has ended."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it still runs: {self.text[-500:]!r}"
            self._read(0.05)
        while self._read(0):
            pass
        return self.process.returncode

    def hang_up(self):
        """The window is closed."""
        os.close(self._theirs)
        os.close(self._ours)
        self._ours = self._theirs = -1

    def close(self):
        """Whatever happened, nothing is left."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(SECONDS)
        if self._ours >= 0:
            self.hang_up()

    def _read(self, seconds):
        if self._ours < 0 or not select.select([self._ours], [], [], seconds)[0]:
            return False
        data = os.read(self._ours, 65536).decode("utf-8", "replace")
        for _ in range(data.count("\x1b[6n")):  # where is the cursor?
            os.write(self._ours, f"\x1b[{self._rows};1R".encode())
        self.raw += data
        return True
