"""A socket between a client and a PostgreSQL server that cuts one connection at a chosen moment.

A moment is the n-th time that the client says something, counted over all its connections. `before`: the server never
hears it. `after`: the server does it, and the client never hears the answer.
"""

import socket
import threading
from contextlib import suppress
from pathlib import Path

NAME = ".s.PGSQL.5432"


class Cutter:
    """Listens in `place`; the server's socket is in `server`."""

    def __init__(self, place: Path, server: Path, *, at: int = 0, when: str = "before", once: bool = True) -> None:
        self.at, self.when, self.once = at, when, once
        self.said = 0
        self.cuts = 0
        self._server = str(server / NAME)
        self._lock = threading.Lock()
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(place / NAME))
        self._listening.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        server = socket.socket(socket.AF_UNIX)
        with client, server, suppress(OSError):
            server.connect(self._server)
            deaf = threading.Event()  # the answers are heard no more
            answers = threading.Thread(target=self._answer, args=(server, client, deaf), daemon=True)
            answers.start()
            while heard := client.recv(1 << 20):
                if self._is_the_moment():
                    if self.when == "after":
                        deaf.set()
                        server.sendall(heard)
                        server.shutdown(socket.SHUT_WR)  # it does what it was told, and then sees that nobody is there
                        answers.join(10)
                    break
                server.sendall(heard)
            for end in (client, server):  # to close it is not enough while the other thread listens
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def _answer(self, server, client, deaf):
        with suppress(OSError):
            while heard := server.recv(1 << 20):
                if not deaf.is_set():
                    client.sendall(heard)

    def _is_the_moment(self):
        with self._lock:
            self.said += 1
            now = self.at and (self.said == self.at if self.once else self.said >= self.at)
            self.cuts += bool(now)
            return now
