"""A viewer over a store, as a real server in a thread, and a client that has its cookie."""

import http.client
import json
import threading
from contextlib import contextmanager

from orihon.ops.access import open_authorized_store
from orihon.settings.schema import Settings
from orihon.view.server import Server


class Answer:
    """What the server answered."""

    def __init__(self, response):
        self.status, self.headers = response.status, response.headers
        self.body = response.read()

    @property
    def text(self):
        return self.body.decode()

    @property
    def json(self):
        return json.loads(self.body)


class Client:
    """Asks one server; the cookie is kept."""

    def __init__(self, server):
        self.server, self.cookie = server, ""

    def get(self, path, *, method="GET", host=None, **headers):
        """Return the answer to one request. It follows no redirect."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True)
            connection.putheader("Host", host or f"127.0.0.1:{self.server.port}")
            for name, value in ({"cookie": self.cookie} | headers).items():
                if value:
                    connection.putheader(name.replace("_", "-"), value)
            connection.endheaders()
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def enter(self):
        """Exchange the token for the cookie."""
        answer = self.get(f"/?token={self.server.keys.token}")
        assert answer.status == 303
        self.cookie = answer.headers["set-cookie"].split(";")[0]
        return answer


@contextmanager
def viewing(url, settings=None, *, enter=True):
    """Yield a client of a server over the store."""
    with open_authorized_store(settings or Settings(), url, command="view") as authorized:
        server = Server(authorized, host="127.0.0.1", port=0)
        thread = threading.Thread(target=server.run)
        thread.start()
        client = Client(server)
        try:
            if enter:
                client.enter()
            yield client
        finally:
            server.stop()
            thread.join()
