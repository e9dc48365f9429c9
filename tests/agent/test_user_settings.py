"""Whose settings a task runs with: the service, the file, and everything that can go wrong with them."""

import json
import logging
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import pytest

from orihon.agent.user_settings import settings_for
from orihon.settings.schema import Settings
from orihon.settings.section import Secret, replace

KEY = "service-key-0123456789"
OPERATOR = "operators-key-0123456789"


def users_key(name):
    return f"key-of-{name}-0123456789"


class Service:
    """A service of user settings: real HTTP, in a thread."""

    def __init__(self):
        self.users, self.requests, self.answer = {}, [], None
        service = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                service.requests.append((self.path, self.headers.get("Authorization")))
                if service.answer is not None:
                    self.wfile.write(service.answer)
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                user = unquote(self.path.rpartition("/")[2])
                data = service.users.get(user)
                body = json.dumps({"status": "success", "data": data} if data else {"detail": "unknown"}).encode()
                self.send_response(200 if data else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def service():
    service = Service()
    yield service
    service.close()


def settings_with(**values):
    paths = {f"user_config_api.{name}": value for name, value in values.items()}
    general = {"user_config_api.enabled": True, "llm.openai.api_key": Secret(OPERATOR)}
    return replace(Settings(), {**general, **paths})


@pytest.fixture
def general(service):
    return settings_with(url=f"{service.url}/", api_key=Secret(KEY))


def answering(status, body):
    return lambda *_: (status, body if isinstance(body, bytes) else json.dumps(body).encode())


class TestService:
    def test_a_users_settings_over_the_general_ones(self, service, general):
        """Model, key, calls and further words are the user's; all the rest is general."""
        service.users["alice"] = {
            "llm": {"provider": "openai", "openai": {"model": "gpt-5", "api_key": users_key("alice")}},
            "max_llm_process_num": 50,
            "system_prompt": "Be brief.",
        }
        settings = settings_for("github", "alice", general)
        assert settings.llm.openai.model == "gpt-5"
        assert settings.llm.openai.api_key == Secret(users_key("alice"))
        assert (settings.max_llm_process_num, settings.system_prompt) == (50, "Be brief.")
        assert settings.planning is general.planning or settings.planning == general.planning
        assert service.requests == [("/config/github/alice", f"Bearer {KEY}")]

    def test_an_unknown_user_has_the_general_ones(self, general, caplog):
        """Without a warning: most users are unknown."""
        assert settings_for("gitlab", "nobody", general) == general
        assert caplog.text == ""

    def test_nobody_is_asked_when_it_is_off(self, service, general):
        """Neither without the switch nor without a user."""
        assert settings_for("github", "alice", replace(general, {"user_config_api.enabled": False}))
        assert settings_for("github", "", general) == general
        assert service.requests == []

    @pytest.mark.slow
    def test_no_key_reaches_another_users_task(self, service, general):
        """Many tasks at once, in any order: each has the key of its own user or the general one."""
        for number in range(20):
            service.users[f"user{number}"] = {"llm": {"openai": {"api_key": users_key(number)}}}
        names = [f"user{number % 40}" for number in range(200)]
        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(lambda name: settings_for("github", name, general), names))
        for name, settings in zip(names, made, strict=True):
            number = int(name.removeprefix("user"))
            wanted = users_key(number) if number < 20 else OPERATOR
            assert settings.llm.openai.api_key == Secret(wanted)
        assert general.llm.openai.api_key == Secret(OPERATOR)

    @pytest.mark.parametrize("name", ["../../admin", "a/b", "a?x=1", "a#b", "a%2fb", "ünïcödé", "a b", "@all", "a;b"])
    def test_a_hostile_name_stays_one_part_of_the_path(self, service, general, name):
        """Whatever the name holds, the path has three parts, and the last one is the name."""
        settings_for("github", name, general)
        [(path, _)] = service.requests
        assert path.startswith("/config/github/")
        assert path.count("/") == 3
        assert not {"?", "#"} & set(path)
        assert unquote(path.rpartition("/")[2]) == name

    @pytest.mark.parametrize("name", [".", "..", "...", "a\nb", "a\0b", "x" * 256, "\u202e"])
    def test_a_name_that_cannot_be_one_is_not_asked_for(self, service, general, name, caplog):
        """It gives the general settings."""
        assert settings_for("github", name, general) == general
        assert service.requests == []
        assert "not used" in caplog.text

    def test_a_hostile_platform(self, service, general):
        """Is not asked for either."""
        assert settings_for("../x", "alice", general) == general
        assert service.requests == []


class TestFailures:
    @pytest.mark.parametrize(
        "answer",
        [
            b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 302 Go\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{",
            b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>",
            b'HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n{"status":"error"}',
            b"garbage",
            b"",
        ],
    )
    def test_a_service_in_trouble(self, service, general, answer, caplog):
        """The task runs with the general settings, and a warning says so without any key."""
        service.answer = answer
        assert settings_for("github", "alice", general) == general
        assert "The settings of alice are not used" in caplog.text
        assert KEY not in caplog.text

    def test_a_service_that_is_not_there(self, caplog):
        """Also without an address at all."""
        for url in ("http://127.0.0.1:9", "", "nonsense"):
            general = settings_with(url=url, api_key=Secret(KEY))
            assert settings_for("github", "alice", general) == general
        assert caplog.text.count("not used") == 3

    def test_a_service_that_does_not_answer(self, caplog):
        """Is waited for no longer than the settings say."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            general = settings_with(url=url, timeout_seconds=0.2)
            assert settings_for("github", "alice", general) == general
        assert "ReadTimeout" in caplog.text

    def test_five_seconds_are_asked_for(self, general):
        """The timeout of the specification is what the request gets."""
        asked = []
        settings_for("github", "alice", general, fetch=lambda *given: (asked.append(given), (404, b""))[1])
        assert [(timeout, headers["Authorization"]) for _, headers, timeout in asked] == [(5.0, f"Bearer {KEY}")]

    @pytest.mark.parametrize(
        "data",
        [
            {"llm": {"openai": {"model": ["x"]}}},
            {"llm": {"provider": "unknown"}},
            {"llm": "sk-users-key-0123456789"},
            {"llm": {"openai": {"api_keys": "sk-users-key-0123456789"}}},
            {"llm": {"provider": "anthropic"}},
            {"max_llm_process_num": 0},
            {"max_llm_process_num": True},
            {"llm": {"openai": {"context_length": 0}}},
        ],
    )
    def test_wrong_values_are_refused_like_those_of_a_file(self, general, data, caplog):
        """All or nothing: half of a user's settings would surprise everybody."""
        caplog.set_level(logging.DEBUG)
        body = {"status": "success", "data": data}
        assert settings_for("github", "alice", general, fetch=answering(200, body)) == general
        assert "not used" in caplog.text
        assert "sk-users-key" not in caplog.text

    @pytest.mark.parametrize("body", [b"[]", b"\xff", b"{" * 9999, b'{"data": 5}', b'{"data": {"llm": null}}', b"{}"])
    def test_odd_answers(self, general, body):
        """Whatever comes back, there are settings."""
        assert settings_for("github", "alice", general, fetch=answering(200, body)) == general

    def test_only_what_a_user_may_set(self, general):
        """The store, the forges and the service itself are not theirs."""
        data = {"context_storage": {"base_dir": "/etc"}, "github": {"token": "x"}, "max_llm_process_num": 7}
        settings = settings_for("github", "alice", general, fetch=answering(200, {"data": data}))
        assert settings == replace(general, {"max_llm_process_num": 7})

    def test_a_variable_of_the_environment_cannot_be_asked_for(self, general, monkeypatch, caplog):
        """`${NAME}` from a service is never replaced."""
        monkeypatch.setenv("SECRET_THING", "hidden-value")
        data = {"llm": {"openai": {"model": "${SECRET_THING}"}}}
        assert settings_for("github", "alice", general, fetch=answering(200, {"data": data})) == general
        assert "hidden-value" not in caplog.text

    def test_the_general_key_goes_to_no_other_address(self, general, caplog):
        """Another address needs a key of its own."""
        other = {"base_url": "https://thief.example.com/v1"}
        data = {"llm": {"openai": other}}
        assert settings_for("github", "eve", general, fetch=answering(200, {"data": data})) == general
        assert "needs an `api_key` of its own" in caplog.text
        data = {"llm": {"openai": {**other, "api_key": users_key("eve")}}}
        settings = settings_for("github", "eve", general, fetch=answering(200, {"data": data}))
        assert settings.llm.openai.api_key == Secret(users_key("eve"))


class TestFile:
    @pytest.fixture
    def users(self, tmp_path):
        path = tmp_path / "users.yaml"

        def write(text):
            path.write_text(text, encoding="utf-8")
            return settings_with(file=str(path))

        return write

    def test_a_section_per_user(self, users, monkeypatch):
        """As in `config.yaml`, under platform and user; the operator may name variables."""
        monkeypatch.setenv("ALICES_KEY", users_key("alice"))
        general = users("github:\n  alice:\n    llm:\n      openai: {model: gpt-5, api_key: '${ALICES_KEY}'}\n")
        settings = settings_for("github", "Alice", general)
        assert settings.llm.openai.model == "gpt-5"
        assert settings.llm.openai.api_key == Secret(users_key("alice"))
        assert settings_for("github", "bob", general) == general
        assert settings_for("gitlab", "alice", general) == general

    @pytest.mark.parametrize(
        "text",
        [
            "github: {alice: {llm: {provider: nobody}}}",
            "github: {alice: {fold_at: 0.5}}",
            "a: [",
            "github: {alice: 5}",
            "\t",
        ],
    )
    def test_a_wrong_file(self, users, text, caplog):
        """Gives the general settings and a warning."""
        general = users(text)
        assert settings_for("github", "alice", general) == general
        assert "not used" in caplog.text

    def test_an_empty_or_missing_file(self, users, tmp_path, caplog):
        """An empty one knows nobody; a missing one is a warning."""
        general = users("")
        assert settings_for("github", "alice", general) == general
        assert caplog.text == ""
        general = settings_with(file=str(tmp_path / "none.yaml"))
        assert settings_for("github", "alice", general) == general
        assert "there is no such file" in caplog.text
