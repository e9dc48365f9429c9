"""The settings: defaults, file, environment, and what is said when something is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from orihon.errors import SettingsError
from orihon.redaction import mask
from orihon.settings.load import ENVIRONMENT, Secret, Settings, enc_hook, iter_settings, load, load_with_origins
from orihon.stores import store_options

ROOT = Path(__file__).parents[2]
KEY = "sk-live-0123456789abcdef"
SHARE = "; allowed is a number above 0 and at most 1."
DAYS = "; allowed is a whole number of at least 0."
LEASE = "heartbeat_seconds, expiry_seconds"
NOT_A_SETTING = "is not a setting; allowed here are"
TWICE = "is set twice, on lines"
UNREADABLE = "the YAML cannot be read:"


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a config.yaml into the working directory."""
    monkeypatch.chdir(tmp_path)

    def write(content):
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / "config.yaml").write_bytes(data)

    return write


@pytest.fixture
def refusal(write):
    """Load a text and return the error it gives."""

    def refusal(content, **environ):
        write(content)
        with pytest.raises(SettingsError) as caught:
            load(environ=environ)
        return caught.value

    return refusal


class TestDefaults:
    def test_without_a_file_the_defaults_hold(self, tmp_path, monkeypatch):
        """A missing ./config.yaml is no error."""
        monkeypatch.chdir(tmp_path)
        assert load(environ={}) == Settings()

    @pytest.mark.parametrize("content", ["", "# nothing\n", "---\n", "llm:\n", "\ufeff", "{}"])
    def test_an_empty_file_or_section_means_the_defaults(self, write, content):
        """What is empty changes nothing."""
        write(content)
        assert load(environ={}) == Settings()


class TestFile:
    def test_values_come_from_the_file(self, write):
        """A value in the file replaces the default, and only that."""
        write("context_storage: {max_memory_messages: 7}\nllm:\n  provider: ollama\n")
        settings = load(environ={})
        assert settings.context_storage.max_memory_messages == 7
        assert settings.context_storage.keep_recent_messages == 5
        assert settings.llm.chosen is settings.llm.ollama

    def test_history_reads_both_spellings(self, write):
        """The eight constants of `history` may be written in capitals."""
        write("history: {MAX_MESSAGES: 12, max_actions: 3}")
        assert (load(environ={}).history.max_messages, load(environ={}).history.max_actions) == (12, 3)

    def test_a_number_may_be_whole_where_a_fraction_is_allowed(self, write):
        """An integer is a number."""
        write("lease: {heartbeat_seconds: 1, expiry_seconds: 2}")
        assert load(environ={}).lease.expiry_seconds == 2.0

    def test_an_explicit_path_is_read(self, tmp_path):
        """A path may be given, as text or as a Path."""
        (tmp_path / "other.yaml").write_text("fold_to: 0.25")
        assert load(tmp_path / "other.yaml", environ={}) == load(str(tmp_path / "other.yaml"), environ={})
        assert load(tmp_path / "other.yaml", environ={}).fold_to == 0.25

    def test_the_example_states_every_default(self):
        """`config.example.yaml` names every setting but unset keys, with its default."""
        settings, origins = load_with_origins(ROOT / "config.example.yaml", environ={})
        assert settings == Settings()
        assert {path for path, origin in origins.items() if origin == "default"} == {
            setting.path for setting in iter_settings(Settings()) if setting.is_secret
        }


class TestEnvironment:
    def test_the_environment_beats_the_file(self, write):
        """Each of the variables replaces what the file says."""
        write("context_storage: {enabled: true, max_memory_messages: 5, compression_threshold: 0.6, base_dir: a}")
        settings, origins = load_with_origins(
            environ={
                "CONTEXT_STORAGE_ENABLED": "true",
                "CONTEXT_STORAGE_MAX_MEMORY": "30",
                "COMPRESSION_THRESHOLD": "0.8",
                "ORIHON_STORE": "sqlite:///contexts.db",
                "ORIHON_LOG_FILE": "orihon.log",
                "GITHUB_TOKEN": "one",
                "GITLAB_TOKEN": "two",
            }
        )
        assert (settings.github.token, settings.gitlab.token) == (Secret("one"), Secret("two"))
        assert settings.context_storage.max_memory_messages == 30
        assert settings.context_storage.compression_threshold == 0.8
        assert settings.store_url == "sqlite:///contexts.db"
        assert settings.log_file == "orihon.log"
        assert {origins[path] for path in ENVIRONMENT.values()} == {f"environment {name}" for name in ENVIRONMENT}

    def test_origins_name_default_file_and_variable(self, write):
        """Every setting has exactly one origin."""
        write("fold_to: 0.4")
        settings, origins = load_with_origins(environ={"COMPRESSION_THRESHOLD": "0.8"})
        assert origins["fold_to"] == "config.yaml"
        assert origins["fold_at"] == "default"
        assert origins["context_storage.compression_threshold"] == "environment COMPRESSION_THRESHOLD"
        assert list(origins) == [setting.path for setting in iter_settings(settings)]

    @pytest.mark.parametrize("text", ["true", "1", "YES", "On", " true "])
    def test_words_for_true(self, write, text):
        """Booleans in the environment are words in any case."""
        write("context_storage: {enabled: false}")
        assert load(environ={"CONTEXT_STORAGE_ENABLED": text}).context_storage.enabled is True

    @pytest.mark.parametrize("text", ["false", "0", "No", "OFF"])
    def test_words_for_false_mean_the_memory_store(self, write, text):
        """Storage that is off means the memory store, whatever else names a store."""
        write("")
        settings = load(environ={"CONTEXT_STORAGE_ENABLED": text, "ORIHON_STORE": "elsewhere"})
        assert settings.store_url == "memory:"

    def test_enabled_false_in_the_file_means_the_memory_store(self, write):
        """`enabled: false` is enough."""
        write("context_storage: {enabled: false}")
        assert load(environ={}).store_url == "memory:"

    def test_an_empty_variable_counts_as_not_set(self, write):
        """An empty ORIHON_STORE does not empty the store's name."""
        write("")
        assert load(environ=dict.fromkeys(ENVIRONMENT, " ")) == Settings()
        assert load(environ={}).store_url == "logs/contexts"

    @pytest.mark.parametrize(
        ("name", "text", "allowed"),
        [
            ("CONTEXT_STORAGE_ENABLED", "maybe", "true or false"),
            ("CONTEXT_STORAGE_MAX_MEMORY", "1.5", "a whole number of at least 1"),
            ("COMPRESSION_THRESHOLD", "nan", "a number above 0 and at most 1"),
        ],
    )
    def test_a_wrong_variable_is_named(self, refusal, name, text, allowed):
        """The error names the variable, what it holds and what is allowed."""
        error = refusal("", **{name: text})
        assert str(error) == f"{name} in the environment is '{text}'; allowed is {allowed}."
        assert (error.where, error.path) == (f"environment {name}", ENVIRONMENT[name])

    def test_the_process_environment_is_the_default(self, write, monkeypatch):
        """Without `environ` the variables of the process count."""
        write("")
        monkeypatch.setenv("COMPRESSION_THRESHOLD", "0.9")
        assert load().context_storage.compression_threshold == 0.9
        assert "COMPRESSION_THRESHOLD" in os.environ


class TestVariables:
    def test_a_variable_stands_for_its_value(self, write):
        """`${NAME}` works anywhere inside a text, several times."""
        write("user_config_api: {url: 'http://${HOST}:${PORT}/'}")
        assert load(environ={"HOST": "h", "PORT": "1"}).user_config_api.url == "http://h:1/"

    def test_two_dollars_stand_for_one(self, write):
        """`$${NAME}` is the text `${NAME}`."""
        write("context_storage: {summary_prompt: 'echo $${HOME} costs $5'}")
        assert load(environ={"HOME": "x"}).context_storage.summary_prompt == "echo ${HOME} costs $5"

    def test_a_value_is_not_expanded_twice(self, write):
        """What a variable holds is never looked at again."""
        write("github: {owner: '${A}'}")
        assert load(environ={"A": "${B}", "B": "no"}).github.owner == "${B}"

    def test_numbers_and_booleans_can_come_from_variables(self, write):
        """A variable can fill a setting that is not a text."""
        write("llm: {function_calling: '${CALLS}', openai: {context_length: '${LENGTH}'}}")
        llm = load(environ={"CALLS": "off", "LENGTH": "8192"}).llm
        assert (llm.function_calling, llm.openai.context_length) == (False, 8192)

    def test_a_missing_variable_is_an_error(self, refusal):
        """The error names the variable and the path."""
        error = refusal("github:\n  owner: '${OWNER}'")
        assert str(error) == (
            "config.yaml, line 2: `github.owner` needs `${OWNER}`, which the environment does not set."
        )

    @pytest.mark.parametrize("environ", [{}, {"OPENAI_API_KEY": ""}])
    def test_a_missing_key_is_only_unset(self, write, environ):
        """Nobody is stopped by the key of a provider they do not use."""
        write("llm: {openai: {api_key: '${OPENAI_API_KEY}'}}")
        assert load(environ=environ).llm.openai.api_key is None


class TestWrongFiles:
    @pytest.mark.parametrize(
        ("content", "line", "path", "rest"),
        [
            (
                "context_storage:\n  compression_threshold: 1.7",
                2,
                "context_storage.compression_threshold",
                f"is 1.7{SHARE}",
            ),
            ("fold_at: .nan", 1, "fold_at", f"is nan{SHARE}"),
            ("fold_at: true", 1, "fold_at", f"is true{SHARE}"),
            ("fold_at:", 1, "fold_at", f"is empty{SHARE}"),
            ("fold_at: {a: 1}", 1, "fold_at", f"is a section{SHARE}"),
            ("retention:\n  delete_after_days: -1", 2, "retention.delete_after_days", f"is -1{DAYS}"),
            ("retention:\n  delete_after_days: 1.5", 2, "retention.delete_after_days", f"is 1.5{DAYS}"),
            ("github: {bot_label: ''}", 1, "github.bot_label", "is ''; allowed is text that is not empty."),
            ("window: {language: fr}", 1, "window.language", "is 'fr'; allowed is `auto`, `ja` or `en`."),
            ("lease: 30", 1, "lease", f"is a number; allowed is a section of {LEASE}."),
            ("lease: {x: 9}", 1, "lease.x", f"{NOT_A_SETTING} {LEASE}."),
            ("lease: {expiry: 9}", 1, "lease.expiry", f"{NOT_A_SETTING} {LEASE}; did you mean `expiry_seconds`?"),
            ("use_rabbitmq: true", 1, "use_rabbitmq", "is not a setting; the store is the queue."),
            ("fold_at: 0.9\nfold_at: 0.8", 2, "fold_at", "is set twice, on lines 1 and 2; allowed is once."),
            ("llm: {}\nfold_at: 1\nllm: {}", 3, "llm", "is set twice, on lines 1 and 3; allowed is once."),
            (
                "history:\n MAX_ACTIONS: 1\n max_actions: 2",
                3,
                "history.max_actions",
                f"{TWICE} 2 and 3; allowed is once.",
            ),
        ],
    )
    def test_the_sentence_says_file_path_found_and_allowed(self, refusal, content, line, path, rest):
        """Each kind of mistake has its sentence."""
        error = refusal(content)
        assert str(error) == f"config.yaml, line {line}: `{path}` {rest}"
        assert (error.where, error.path) == ("config.yaml", path)

    def test_a_near_miss_suggests_the_name(self, refusal):
        """A misspelt key is answered with the right one."""
        error = refusal("context_storage: {max_memory_mesages: 5}")
        assert str(error).endswith("did you mean `max_memory_messages`?")

    def test_a_key_in_the_wrong_place_suggests_the_path(self, refusal):
        """A name that is known elsewhere is answered with its whole path."""
        assert str(refusal("compression_threshold: 0.5")).endswith(
            "did you mean `context_storage.compression_threshold`?"
        )
        assert str(refusal("window: {fold_at: 0.5}")).endswith("did you mean `fold_at`?")

    @pytest.mark.parametrize(
        ("content", "small"),
        [
            ("fold_to: 0.97", "fold_to"),
            ("lease: {expiry_seconds: 30}", "lease.heartbeat_seconds"),
            ("monitor: {disk_critical_gb: 5}", "monitor.disk_warning_gb"),
            ("window: {reserved_output: 128000}", "window.reserved_output"),
            ("llm: {provider: anthropic}", "llm.anthropic.model"),
        ],
    )
    def test_settings_that_do_not_go_together_are_refused(self, refusal, content, small):
        """An order between two settings is checked after both are known."""
        error = refusal(content)
        assert error.path == small
        assert str(error).startswith(f"config.yaml: `{small}` is ")

    def test_all_problems_are_told_at_once(self, refusal):
        """A file with twelve mistakes gives ten sentences and a count."""
        lines = str(refusal("".join(f"x{number}: 1\n" for number in range(12)))).split("\n")
        assert len(lines) == 11
        assert lines[-1] == "And 2 more."
        assert all(line.startswith("config.yaml, line ") for line in lines[:10])

    @pytest.mark.parametrize(
        ("content", "sentence"),
        [
            ("a: b: c", f"config.yaml, line 1, column 5: {UNREADABLE} mapping values are not allowed here."),
            ("a: &x 1\nb: *x", f"config.yaml, line 2, column 4: {UNREADABLE} aliases are not allowed."),
            ("a: !!int 1", f"config.yaml, line 1, column 4: {UNREADABLE} tags are not allowed."),
            ("[" * 100_000, f"config.yaml, line 1, column 22: {UNREADABLE} the nesting is too deep."),
            ("a: 1\nb: \x07", f"config.yaml, line 2, column 4: {UNREADABLE} the character is not allowed."),
            (r'a: "\UFFFFFFFF"', f"config.yaml: {UNREADABLE} an escape or a number is invalid."),
            (b"a: \xff", "config.yaml: byte 4 is not UTF-8."),
            (b"#" * 1_000_001, "config.yaml: the file is larger than 1000000 bytes."),
        ],
    )
    def test_what_is_not_yaml_is_refused_with_its_place(self, refusal, content, sentence):
        """Line and column are given where there are any."""
        assert str(refusal(content)) == sentence

    @pytest.mark.parametrize("content", ["- 1\n- 2", "hello", "3"])
    def test_a_file_that_is_no_mapping_is_refused(self, refusal, content):
        """The file itself must be a section."""
        assert "allowed is a section of context_storage" in str(refusal(content))

    def test_a_billion_laughs_are_refused_at_once(self, refusal):
        """A file of aliases cannot grow in memory."""
        levels = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40))
        assert "aliases are not allowed" in str(refusal(f"a0: &a0 ha\n{levels}"))

    def test_text_that_cannot_be_stored_is_refused(self, refusal):
        """Lone surrogates and NUL are not text, and the message can still be printed."""
        for text, named in (
            (r'github: {owner: "\ud800"}', b"owner"),
            (r'"\ud800": 1', b"ud800"),
            (r'github: {owner: "a\0b"}', b"owner"),
        ):
            assert named in str(refusal(text)).encode()

    def test_an_explicit_path_must_exist(self, tmp_path):
        """A file that was asked for and is not there is an error."""
        with pytest.raises(SettingsError, match=r"none\.yaml: there is no such file\."):
            load(tmp_path / "none.yaml", environ={})

    def test_a_directory_is_not_a_file(self, tmp_path):
        """What cannot be read gives a sentence, too."""
        with pytest.raises(SettingsError, match="cannot be read"):
            load(tmp_path, environ={})


class TestSecrets:
    def test_settings_never_show_a_secret(self, write):
        """Neither a key nor a password inside a URL is in a repr or in the encoded settings."""
        write("llm: {openai: {api_key: '${OPENAI_API_KEY}'}}")
        store = "postgresql://bob:pa@ss/word@db/contexts?sslmode=require&password=hunter22"
        settings = load(environ={"OPENAI_API_KEY": KEY, "ORIHON_STORE": store})
        assert settings.llm.openai.api_key == Secret(KEY)
        assert settings.store_url == store
        for text in (repr(settings), str(settings), f"{settings.llm}", str(settings.context_storage.__rich_repr__())):
            assert KEY not in text
            assert "ss/word" not in text
            assert "hunter22" not in text
        assert "postgresql://[hidden]@db/contexts?sslmode=require&password=[hidden]" in repr(settings)
        assert KEY.encode() not in msgspec.json.encode(settings, enc_hook=enc_hook)

    @pytest.mark.parametrize(
        "content",
        [
            "llm: {openai: {api_key: [sk-live-0123456789abcdef]}}",
            'llm: {openai: {api_key: "sk-live-0123456789abcdef\\0"}}',
            "llm: {openai: {apikey: sk-live-0123456789abcdef}}",
            "llm: {openai: sk-live-0123456789abcdef}",
            "llm: {openai: {context_length: '${KEY}'}}",
            "llm: {openai: {api_key: sk-live-0123456789abcdef: x}}",
            "api_key: sk-live-0123456789abcdef: x",
            "window: {tokens: 'host=db password=sk-live-0123456789abcdef'}",
            "window: {tokens: 'https://bob:sk-live-0123456789abcdef@host'}",
        ],
    )
    def test_an_error_never_shows_a_secret(self, refusal, content):
        """A wrong line with a secret in it is reported without the secret, in the traceback too."""
        assert KEY not in "".join(traceback.format_exception(refusal(content, KEY=KEY)))


SERVERS = """\
mcp_servers:
  - mcp_server_name: git
    command: [uvx, "mcp-server-${KIND}"]
    env: {TOKEN: "${KEY}", PORT: 8080}
  - mcp_server_name: web
    url: https://example.com/mcp
    headers:
      Authorization: Bearer ${KEY}
    timeout_seconds: 5
"""
ITEM = "mcp_server_name, command, env, url, headers, timeout_seconds"


class TestLists:
    def test_servers_are_read(self, write):
        """With the variables of the environment in their places, and nothing of them shown."""
        write(SERVERS)
        settings, origins = load_with_origins(environ={"KIND": "git", "KEY": KEY})
        git, web = settings.mcp_servers
        assert git.command == ("uvx", "mcp-server-git")
        assert {name: value.reveal() for name, value in git.env.items()} == {"TOKEN": KEY, "PORT": "8080"}
        assert (web.url, web.timeout_seconds) == ("https://example.com/mcp", 5)
        assert web.headers == {"Authorization": Secret(f"Bearer {KEY}")}
        assert origins["mcp_servers"] == "config.yaml"
        assert list(origins) == [setting.path for setting in iter_settings(settings)]
        for text in (repr(settings), msgspec.json.encode(settings, enc_hook=enc_hook).decode()):
            assert KEY not in text

    def test_their_secrets_are_known_to_the_store(self, write):
        """So that a server that says its token does not say it into the log."""
        write(SERVERS)
        known = store_options(load(environ={"KIND": "git", "KEY": KEY}), {}).known
        assert "0123456789abcdef" not in mask(f"it is {KEY} indeed", known=known)

    @pytest.mark.parametrize("content", ["mcp_servers:\n", "mcp_servers: []\n"])
    def test_none_is_allowed(self, write, content):
        """An empty list, or one whose lines are all commented out."""
        write(content)
        assert load(environ={}).mcp_servers == ()

    @pytest.mark.parametrize(
        ("content", "line", "path", "rest"),
        [
            ("mcp_servers: 3", 1, "mcp_servers", f"is a number; allowed is a list of sections of {ITEM}."),
            ("mcp_servers: {a: 1}", 1, "mcp_servers", f"is a section; allowed is a list of sections of {ITEM}."),
            ("mcp_servers: [git]", 1, "mcp_servers[0]", f"is a text; allowed is a section of {ITEM}."),
            ("mcp_servers:\n- command: [x]", 2, "mcp_servers[0]", "has no mcp_server_name."),
            ("mcp_servers:\n- mcp_server_name: x", 2, "mcp_servers[0]", "needs either a command or a url."),
            (
                "mcp_servers:\n- mcp_server_name: x\n  command: [x]\n  url: y",
                2,
                "mcp_servers[0]",
                "needs either a command or a url.",
            ),
            (
                "mcp_servers:\n- mcp_server_name: x\n  command: x y",
                3,
                "mcp_servers[0].command",
                "is 'x y'; allowed is a list of texts.",
            ),
            (
                "mcp_servers:\n- mcp_server_name: x\n  command: [x]\n  env: {A: [1]}",
                4,
                "mcp_servers[0].env",
                "is a section; allowed is a section of texts, kept hidden.",
            ),
            (
                "mcp_servers:\n- mcp_server_name: ''\n  url: x",
                2,
                "mcp_servers[0].mcp_server_name",
                "is ''; allowed is text that is not empty.",
            ),
            (
                "mcp_servers:\n- mcp_server_name: x\n  url: y\n  timeout_seconds: 0",
                4,
                "mcp_servers[0].timeout_seconds",
                "is 0; allowed is a number above 0.",
            ),
            (
                "mcp_servers:\n- mcp_server_name: x\n  url: '${NONE}'",
                3,
                "mcp_servers[0].url",
                "needs `${NONE}`, which the environment does not set.",
            ),
        ],
    )
    def test_what_is_wrong_is_said_with_line_and_place(self, refusal, content, line, path, rest):
        """Counted from 0, as the path of a list is."""
        error = refusal(content)
        assert str(error) == f"config.yaml, line {line}: `{path}` {rest}"
        assert error.path == path

    def test_keys_and_names_are_checked(self, refusal):
        """Unknown ones, doubled ones, and two servers of one name."""
        assert "`mcp_servers[0].comand` is not a setting" in str(refusal("mcp_servers:\n- comand: [x]"))
        twice = refusal("mcp_servers:\n- url: x\n  url: y\n  mcp_server_name: z")
        assert "line 3: `mcp_servers[0].url` is set twice, on lines 2 and 3" in str(twice)
        same = "- {mcp_server_name: x, url: y}\n"
        assert "has 2 servers called 'x'; allowed is one." in str(refusal(f"mcp_servers:\n{same}{same}"))

    def test_a_wrong_server_shows_no_secret(self, refusal):
        """Neither its variables nor its headers."""
        for content in (f"env: {{A: {KEY}, A: {KEY}}}", f"headers: [{KEY}]", f"env: {KEY}", f"command: {{a: {KEY}}}"):
            assert KEY not in str(refusal(f"mcp_servers:\n- mcp_server_name: x\n  {content}"))


class TestAnything:
    names = st.sampled_from([part for setting in iter_settings(Settings()) for part in setting.path.split(".")])
    scalars = st.sampled_from(["1", "0.5", "-3", "true", "~", ".inf", "'${X}'", "text", "0x_", "1:60", "2024-99-99"])
    lines = st.builds(
        "{}{}: {}".format, st.sampled_from(["", "  ", "    ", "- "]), names, st.one_of(st.just(""), scalars)
    )
    likely = st.lists(lines, max_size=8).map("\n".join)

    @hypothesis_settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        content=st.one_of(likely.map(str.encode), st.text().map(lambda t: t.encode("utf-8", "replace")), st.binary())
    )
    def test_any_file_loads_or_is_refused(self, tmp_path, content):
        """Whatever the file holds, the answer is settings or a SettingsError whose message can be printed."""
        path = tmp_path / "config.yaml"
        path.write_bytes(content)
        try:
            assert isinstance(load(path, environ={}), Settings)
        except SettingsError as error:
            assert str(error).encode()

    @given(value=st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
    def test_any_variable_loads_or_is_named(self, value):
        """Whatever a variable holds, the answer is settings or an error that names it."""
        for name in ENVIRONMENT:
            try:
                load(os.devnull, environ={name: value})
            except SettingsError as error:
                assert name in str(error)


def test_importing_the_module_does_not_import_yaml():
    """PyYAML is paid for when a file is read, not before."""
    code = "import sys, orihon.settings.load; sys.exit('yaml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
