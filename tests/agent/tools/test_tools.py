"""Read, write, edit, search and list: what a model gets, what it is told when it errs, and who is asked."""

import base64
import os
import re
import stat
import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import orihon
from orihon.agent.tools import globs, search
from orihon.agent.tools import search as searching
from orihon.agent.tools.approval import escape_question
from orihon.agent.tools.files import PAGE_BYTES, PAGE_LINES
from orihon.agent.tools.search import Search
from orihon.errors import ToolError, UsageError
from orihon.settings.schema import Settings
from support import replies as rounds

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 32
CODE = "import os\n\n\ndef first():\n    return 1\n\n\ndef second():\n    return 1\n"


@pytest.fixture
def git(desk):
    """The workspace as a repository."""

    def git(*arguments):
        subprocess.run(["git", *arguments], cwd=desk.root, check=True, capture_output=True)

    git("init", "--quiet")
    return git


class TestSchemas:
    def test_every_tool_is_described(self, desk):
        """Names, descriptions and parameters, in the shape that engine.start takes."""
        described = {schema["function"]["name"]: schema["function"] for schema in desk.box.schemas}
        assert list(described) == ["read", "write", "edit", "search", "list_files", "shell"]
        for function in described.values():
            assert function["description"]
            assert function["parameters"]["additionalProperties"] is False
            assert all("description" in one for one in function["parameters"]["properties"].values())
        assert described["edit"]["parameters"]["required"] == ["path", "old", "new"]

    def test_the_engine_takes_them(self, desk):
        """With its own unfold and recall beside them."""
        with (
            orihon.open("memory:", settings=Settings()) as engine,
            engine.start(rounds.KEY, tools=desk.box.schemas) as task,
        ):
            names = {schema["function"]["name"] for schema in task.config.schemas}
        assert {"unfold", "recall", "read", "shell"} <= names

    @pytest.mark.parametrize(
        ("name", "arguments", "said"),
        [
            ("read", {}, "missing required field `path`. It takes path, lines."),
            ("read", {"path": 3}, "Expected `str`, got `int` - at `$.path`"),
            ("read", {"file": "x"}, "unknown field `file`"),
            ("write", {"path": "x"}, "missing required field `content`"),
            ("shell", {"command": "true", "timeout": -1}, "Expected `float` >= 0.0"),
            ("nothing", {}, "There is no tool 'nothing'; there are read, write"),
        ],
    )
    def test_wrong_arguments_are_said(self, desk, name, arguments, said):
        """In a sentence from which the model can go on."""
        assert said in desk.refusal(name, **arguments)

    def test_numbers_and_booleans_may_come_as_text(self, desk):
        """Some models write them so."""
        desk.put("x", "a a")
        desk.do("edit", path="x", old="a", new="b", all="true")
        assert (desk.root / "x").read_text() == "b b"


class TestRead:
    def test_lines_are_numbered(self, desk):
        """As cat -n does it, which every model knows."""
        desk.put("x.py", "one\n\nthree")
        assert desk.do("read", path="x.py") == "     1\tone\n     2\t\n     3\tthree"

    @pytest.mark.parametrize(
        ("lines", "shown"), [("2-3", [2, 3]), ("4-", [4, 5]), ("3", [3]), (" 2 - 3 ", [2, 3]), ("", [1, 2, 3, 4, 5])]
    )
    def test_a_range_can_be_asked_for(self, desk, lines, shown):
        """With a note when there is more."""
        desk.put("x", "".join(f"line {number}\n" for number in range(1, 6)))
        text = desk.do("read", path="x", lines=lines)
        assert [int(number) for number in re.findall(r"^ *(\d+)\t", text, re.MULTILINE)] == shown
        assert ("of 5" in text) == (shown[-1] != 5)

    @pytest.mark.parametrize("lines", ["0-3", "5-2", "a-b", "-3", "1,2", "-", "9" * 30])
    def test_a_range_that_is_none_is_refused(self, desk, lines):
        """With the forms that there are."""
        desk.put("x", "one\n")
        assert desk.refusal("read", path="x", lines=lines).startswith("lines cannot be ")

    def test_long_files_come_in_pages(self, desk):
        """Following the notes gives every line once, and then it ends."""
        desk.put("x", "".join(f"line {number}\n" for number in range(1, 2 * PAGE_LINES + 10)))
        lines, seen = "", []
        while True:
            text = desk.do("read", path="x", lines=lines)
            seen += [int(number) for number in re.findall(r"^ *(\d+)\t", text, re.MULTILINE)]
            more = re.search(r'continue with lines="(\d+-)"', text)
            if more is None:
                break
            assert f"of {2 * PAGE_LINES + 9:,};" in text
            lines = more[1]
        assert seen == list(range(1, 2 * PAGE_LINES + 10))

    def test_long_lines_are_cut_and_pages_are_bounded(self, desk):
        """A minified file does not fill the window."""
        desk.put("x.js", ("x" * 100_000 + "\n") * 100)
        text = desk.do("read", path="x.js")
        assert len(text) < 2 * PAGE_BYTES
        assert "(96,001 more bytes in this line)" in text
        assert 'continue with lines="' in text

    def test_binaries_are_refused(self, desk):
        """With a way to look at them all the same."""
        desk.put("x.bin", b"\x7fELF\0\0\0")
        assert "is binary (7 bytes); inspect it in the shell" in desk.refusal("read", path="x.bin")

    def test_pictures_are_shown(self, desk):
        """As parts that the log can hold."""
        desk.put("x.txt", PNG)
        text, image = desk.do("read", path="x.txt")
        assert "image/png" in text.text
        assert (image.type, image.media_type) == ("image", "image/png")
        assert base64.b64decode(image.data) == PNG
        desk.put("big.png", PNG + b"\0" * 6_000_000)
        assert "make a smaller one" in desk.refusal("read", path="big.png")

    def test_odd_texts_are_shown_as_well_as_can_be(self, desk):
        """A byte order mark, Windows line ends, bytes that are not UTF-8, nothing at all."""
        desk.put("bom", "\ufeffone\r\ntwo\r\n")
        assert desk.do("read", path="bom") == "     1\tone\n     2\ttwo"
        desk.put("latin", "caf\u00e9\n".encode("latin-1"))
        assert "stands for other bytes" in desk.do("read", path="latin")
        desk.put("empty", "")
        assert desk.do("read", path="empty") == "The file is empty."
        assert "past its end" in desk.do("read", path="bom", lines="9-")

    def test_a_wrong_name_is_answered_with_a_near_one(self, desk):
        """Models misremember names."""
        desk.put("src/parser.py", "")
        assert desk.refusal("read", path="src/parsers.py").endswith("Did you mean parser.py?")
        assert "There is no directory" in desk.refusal("read", path="source/parser.py")


class TestWrite:
    def test_a_new_file_gets_its_directories(self, desk):
        """And the mode that the umask says."""
        assert desk.do("write", path="a/b/c.txt", content="hi\n") == "Created a/b/c.txt: 1 line."
        umask = os.umask(0)
        os.umask(umask)
        assert stat.S_IMODE((desk.root / "a/b/c.txt").stat().st_mode) == 0o666 & ~umask

    def test_mode_line_ends_and_mark_are_kept(self, desk):
        """A script stays a script, and a file of Windows one of Windows."""
        place = desk.put("run.bat", b"\xef\xbb\xbfone\r\ntwo\r\n")
        place.chmod(0o751)
        desk.do("write", path="run.bat", content="one\nthree\n")
        assert place.read_bytes() == b"\xef\xbb\xbfone\r\nthree\r\n"
        desk.do("edit", path="run.bat", old="one\nthree", new="1\n2\n3")
        assert place.read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n3\r\n"
        assert stat.S_IMODE(place.stat().st_mode) == 0o751

    def test_nobody_sees_half_a_file(self, desk, monkeypatch):
        """A disk that is full leaves the old bytes, and nothing beside them."""
        place = desk.put("x", "old")

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("orihon.agent.tools.files.write_all", full)
        assert desk.refusal("write", path="x", content="new") == "x: No space left on device."
        assert place.read_text() == "old"
        assert os.listdir(desk.root) == ["x"]

    def test_a_read_only_file_is_left_alone(self, desk):
        """Replacing it would go round the wish of whoever made it so."""
        desk.put("x", "old").chmod(0o444)
        assert "is read-only" in desk.refusal("write", path="x", content="new")

    def test_half_a_character_is_refused(self, desk):
        """JSON can say it, a file cannot hold it."""
        assert "half a character" in desk.refusal("write", path="x", content="\ud83d")
        assert not (desk.root / "x").exists()

    def test_what_changed_meanwhile_is_not_overwritten(self, make):
        """While a person thinks about the question, another program writes."""
        desk = make(approve="ask", ask=lambda _: bool((desk.root / "x").write_text("theirs, later")))
        place = desk.put("x", "old")
        assert "was changed by another program" in desk.refusal("edit", path="x", old="old", new="ours")
        assert place.read_text() == "theirs, later"

    def test_a_file_that_came_meanwhile_is_not_overwritten(self, make):
        """The same for one that was not there."""
        desk = make(approve="ask", ask=lambda _: bool((desk.root / "x").write_text("theirs")))
        assert "was changed by another program" in desk.refusal("write", path="x", content="ours")
        assert (desk.root / "x").read_text() == "theirs"


class TestEdit:
    def test_one_piece_is_replaced_and_shown(self, desk):
        """With the lines around it."""
        desk.put("x.py", CODE)
        said = desk.do("edit", path="x.py", old="def first():\n    return 1", new="def first():\n    return 10")
        assert (desk.root / "x.py").read_text() == CODE.replace("return 1", "return 10", 1)
        assert "     5\t    return 10" in said

    def test_several_places_are_named(self, desk):
        """The model chooses, or says all."""
        desk.put("x.py", CODE)
        said = desk.refusal("edit", path="x.py", old="return 1", new="return 2")
        assert "2 times in x.py, on lines 5, 9" in said
        assert "in 2 places" in desk.do("edit", path="x.py", old="return 1", new="return 2", all=True)
        assert (desk.root / "x.py").read_text() == CODE.replace("return 1", "return 2")

    @pytest.mark.parametrize(
        ("old", "said"),
        [
            ("def first():\n  return 1", "Only the white space differs:\n     4\tdef first():"),
            ("def frist():\n    return 1", "The most similar lines are:\n     4\tdef first():\n     5\t    return 1"),
            ("completely different words", "Nothing in it is similar"),
            ("   \n", "Read the file"),
        ],
    )
    def test_what_is_not_there_is_answered_with_the_nearest(self, desk, old, said):
        """So that the next try succeeds."""
        desk.put("x.py", CODE)
        assert said in desk.refusal("edit", path="x.py", old=old, new="x")
        assert (desk.root / "x.py").read_text() == CODE

    def test_other_mistakes_have_their_sentences(self, desk):
        """Nothing to replace, nothing to change, nothing there."""
        desk.put("x.py", CODE)
        assert "old is empty" in desk.refusal("edit", path="x.py", old="", new="x")
        assert "are the same" in desk.refusal("edit", path="x.py", old="import", new="import")
        assert "There is no file y.py" in desk.refusal("edit", path="y.py", old="a", new="b")

    def test_bytes_that_are_not_utf8_survive(self, desk):
        """An edit changes what it was told and nothing else."""
        place = desk.put("x", b"caf\xe9\nold\n\xff\xfe\n")
        desk.do("edit", path="x", old="old", new="new")
        assert place.read_bytes() == b"caf\xe9\nnew\n\xff\xfe\n"

    @given(before=st.text(max_size=20), old=st.text(min_size=1, max_size=8), new=st.text(max_size=8))
    def test_any_edit_is_a_replacement_or_a_sentence(self, tmp_path_factory, before, old, new):
        """What comes out is what str.replace says, byte for byte."""
        from orihon.agent.tools.files import Edit, edit  # noqa: PLC0415
        from orihon.agent.tools.workspace import Workspace  # noqa: PLC0415

        root = tmp_path_factory.mktemp("edit")
        (root / "x").write_bytes(before.encode())
        with Workspace(root) as workspace:
            try:
                edit(workspace, Edit("x", old, new), lambda _: None)
            except ToolError:
                assert (root / "x").read_bytes() == before.encode()
                return
        crlf = "\r\n" in before and "\n" not in before.replace("\r\n", "")
        if not crlf:
            assert (root / "x").read_bytes() == before.encode().replace(old.encode(), new.encode())


class TestMasks:
    def test_a_mask_never_lands_in_a_file(self, desk):
        """Neither by write nor by edit, in an old file or a new one."""
        place = desk.put("x.py", "MAIL = 'bob@example.com'\n")
        for sentence in (
            desk.refusal("write", path="x.py", content="MAIL = '[EMAIL]'\n"),
            desk.refusal("write", path="y.py", content="KEY = '[GITHUB_TOKEN]'\n"),
            desk.refusal("edit", path="x.py", old="MAIL", new="[EMAIL]"),
        ):
            assert "which stands for a value that you were not shown" in sentence
        assert place.read_text() == "MAIL = 'bob@example.com'\n"
        assert not (desk.root / "y.py").exists()

    def test_a_mask_to_be_replaced_is_explained(self, desk):
        """The model saw a mask where the file has a value."""
        desk.put("x.py", "MAIL = 'bob@example.com'\n")
        assert "Choose a piece without it" in desk.refusal("edit", path="x.py", old="MAIL = '[EMAIL]'", new="x")

    def test_a_mask_that_the_file_has_is_text(self, desk):
        """The documentation of a masker may speak of masks; but only of those that it has."""
        place = desk.put("doc.md", "We write [EMAIL].\n")
        desk.do("edit", path="doc.md", old="We write [EMAIL].", new="We put [EMAIL] there.")
        desk.do("write", path="doc.md", content="Now [EMAIL] again.\n")
        assert place.read_text() == "Now [EMAIL] again.\n"
        assert "[TOKEN]" in desk.refusal("edit", path="doc.md", old="again", new="[TOKEN]")


class TestSearch:
    @pytest.fixture(params=["git", "plain"])
    def tree(self, desk, request):
        """A tree with things to leave out, as a repository and as a plain directory."""
        if request.param == "git":
            subprocess.run(["git", "init", "--quiet"], cwd=desk.root, check=True)
        desk.put(".gitignore", "build/\n*.log\n!keep.log\n/top.txt\n")
        desk.put("src/a.py", "def needle():\n    pass\n")
        desk.put("src/deep/b.ts", "// a needle\n")
        desk.put("src/.gitignore", "made.py\n")
        desk.put("src/top.txt", "needle below\n")
        for ignored in ("build/x.py", "src/build/y.py", "a.log", "src/made.py", "top.txt"):
            desk.put(ignored, "needle\n")
        desk.put("keep.log", "needle\n")
        desk.put("x.bin", b"needle\0\0")
        (desk.root / "link.py").symlink_to("/etc/passwd")
        return desk

    def test_it_finds_what_git_would(self, tree):
        """Ignored files, binaries and links are left out; the counts are there."""
        text = tree.do("search", pattern="needle")
        found = re.findall(r"^(\S+)$", text, re.MULTILINE)
        assert sorted(found) == ["keep.log", "src/a.py", "src/deep/b.ts", "src/top.txt"]
        assert "     1\tdef needle():" in text
        assert re.search(r"\(Matches: 4 in 4 of \d+ files\.\)", text)

    def test_it_can_be_narrowed(self, tree):
        """By a directory, a file, a glob with and without a slash."""
        assert "src/deep/b.ts" in tree.do("search", pattern="needle", path="src/deep")
        assert "1 in 1 of 1 files" in tree.do("search", pattern="needle", path="src/a.py")
        assert "1 in 1 of 1 files" in tree.do("search", pattern="needle", glob="*.ts")
        assert "2 in 2 of" in tree.do("search", pattern="needle", glob="src/**/*.{py,ts}")
        assert "No line matches" in tree.do("search", pattern="needle", glob="*.md")

    def test_an_ignored_directory_can_be_named(self, tree):
        """Whoever asks for build/ wants to see it."""
        assert "build/x.py" in tree.do("search", pattern="needle", path="build")

    def test_list_files_shows_the_same_files(self, tree):
        """One level with counts, or all that fit."""
        top = tree.do("list_files")
        assert "src/  4 files" in top
        assert "keep.log  7 bytes" in top
        assert "build" not in top
        assert tree.do("list_files", glob="*.py").split() == ["link.py", "src/a.py"]
        assert tree.do("list_files", path="src/deep") == "b.ts  12 bytes"
        assert tree.do("list_files", glob="*.rs").startswith("There are no files")

    def test_the_answer_is_bounded(self, desk):
        """However many lines match, however long they are."""
        desk.put("x", "needle " * 100 + "\n" + "needle\n" * 1000)
        text = desk.do("search", pattern="needle")
        assert "(Matches: 1,001 in 1 of 1 files; the first 200 are shown.)" in text
        assert len(text.splitlines()) == 202
        assert max(map(len, text.splitlines())) < 400

    def test_a_pattern_without_end_is_stopped(self, desk):
        """Python cannot interrupt an expression; a process can be ended."""
        desk.put("x", "a" * 60 + "b\n")
        with pytest.raises(ToolError, match=r"was stopped after 0\.5 s"):
            searching.search(desk.box.workspace, Search(r"(a+)+$"), desk.box.environ, max_seconds=0.5)

    def test_a_pattern_is_compiled_where_the_limit_holds(self, desk):
        """Some patterns take longer to compile than to match; no pattern is without bound."""
        desk.put("x", "a\n")
        slow = "(?i)" + "[\x01-\U0010ffff]" * 390
        before = time.process_time()
        with pytest.raises(ToolError, match=r"was stopped after 0\.2 s"):
            searching.search(desk.box.workspace, Search(slow), desk.box.environ, max_seconds=0.2)
        assert time.process_time() - before < 1  # of this process; to compile it takes several seconds
        assert "the maximum is 2,000" in desk.refusal("search", pattern=slow * 2)
        assert "No line matches" in desk.do("search", pattern="b" * 2000)

    def test_a_pattern_that_is_none_is_explained(self, desk):
        """With what to do about it."""
        assert "Put \\ before a character" in desk.refusal("search", pattern="foo(")
        assert "no directory" in desk.refusal("search", pattern="x", path="none")

    def test_a_hostile_repository_runs_nothing(self, desk, git):
        """The settings of a repository can name programs; listing its files starts none of them."""
        bad = desk.root.parent / "bad.sh"
        bad.write_text(f"#!/bin/sh\ntouch {desk.root.parent}/ran\n")
        bad.chmod(0o755)
        git("config", "core.fsmonitor", str(bad))
        desk.put("x", "needle\n")
        assert "needle" in desk.do("search", pattern="needle")
        assert not (desk.root.parent / "ran").exists()

    @pytest.mark.usefixtures("git")
    def test_without_git_it_works_too(self, make):
        """The walk minds .gitignore itself."""
        desk = make(environ={"PATH": "/nonexistent"})
        desk.put(".gitignore", "*.log\n")
        desk.put("a.log", "needle\n")
        desk.put("b.txt", "needle\n")
        assert "1 in 1 of 2 files" in desk.do("search", pattern="needle")

    @given(
        pattern=st.text(alphabet="ab*?/.[]!-\\", min_size=1, max_size=6),
        path=st.text(alphabet="ab/.", min_size=1, max_size=6),
    )
    def test_any_pattern_fits_or_does_not(self, pattern, path):
        """No glob and no line of a .gitignore makes it fail."""
        globs.is_ignored(path, globs.parse_gitignore(pattern, "x"), is_directory=True)
        try:
            search.parse_glob(pattern)
        except ToolError as error:
            assert "cannot be read" in str(error)

    @pytest.mark.usefixtures("git")
    def test_patterns_are_those_of_git(self, desk):
        """Our own matcher says the same as git's, pattern for pattern."""
        names = ["a", "b.o", "d/a", "d/b.o", "d/e/a", "d/e/x.c", "foo", "d/foo/z", "f]x", "#h", "!n"]
        for name in names:
            if not (desk.root / name).is_dir():
                desk.put(name, "")
        patterns = [
            "a",
            "/a",
            "*.o",
            "d/",
            "d/*",
            "d/**",
            "**/a",
            "d/**/a",
            "e",
            "[ab]",
            "[!a]",
            "?",
            "foo/",
            "\\#h",
            "\\!n",
        ]
        patterns += ["d/e/*.c", "*", "!a", "d/e", "f[]]x", "**/foo", "foo/**"]
        for pattern in patterns:
            desk.put(".gitignore", f"{pattern}\n")
            listed = set(search._list_by_git(desk.box.workspace, ".", desk.box.environ))
            with desk.box.workspace.open_directory(".") as (fd, _):
                walked = set(search._walk(desk.box.workspace, ".", fd))
            assert walked == listed, pattern


class TestApproval:
    CALLS = (
        ("write", {"path": "new.txt", "content": "x\n"}, "edit"),
        ("edit", {"path": "old.txt", "old": "a", "new": "b"}, "edit"),
        ("shell", {"command": "touch ran"}, "run"),
    )

    @pytest.mark.parametrize(("approve", "asked"), [("ask", {"edit", "run"}), ("edits", {"run"}), ("all", set())])
    @pytest.mark.parametrize("wanted", CALLS, ids=lambda wanted: wanted[0])
    @pytest.mark.parametrize("answer", [True, False])
    def test_who_is_asked(self, make, approve, asked, wanted, answer):
        """A refusal changes nothing and is told to the model."""
        name, arguments, kind = wanted
        questions = []
        desk = make(approve=approve, ask=lambda question: questions.append(question) or answer)
        desk.put("old.txt", "a\n")
        if kind in asked and not answer:
            assert desk.refusal(name, **arguments).startswith("The user did not allow ")
            assert os.listdir(desk.root) == ["old.txt"]
            assert (desk.root / "old.txt").read_text() == "a\n"
        else:
            desk.do(name, **arguments)
        assert len(questions) == (kind in asked)

    def test_reading_asks_nobody(self, make):
        """Nothing is changed by it."""
        desk = make(approve="ask", ask=lambda _: pytest.fail("asked"))
        desk.put("x", "hello")
        desk.do("read", path="x")
        desk.do("search", pattern="hello")
        desk.do("list_files")

    def test_a_question_shows_what_will_happen(self, make):
        """The difference, or the command."""
        questions = []
        desk = make(approve="ask", ask=lambda question: bool(questions.append(question)))
        desk.put("x", "one\ntwo\n")
        desk.refusal("edit", path="x", old="two", new="three")
        desk.refusal("shell", command="rm -rf /tmp/x")
        assert "Change x?" in questions[0]
        assert "-two\n+three" in questions[0]
        assert "rm -rf /tmp/x" in questions[1]

    def test_without_a_terminal_the_answer_is_no(self, make):
        """And a hint says what to do about it."""
        desk = make(approve="ask")
        with pytest.raises(ToolError, match="There is no one to allow") as caught:
            desk.do("shell", command="touch ran")
        assert "--approve" in caught.value.hint
        assert os.listdir(desk.root) == []

    def test_a_question_cannot_lie(self):
        """Escapes, carriage returns and marks that turn the writing round are shown as what they are."""
        assert escape_question("rm x\r\x1b[2Kls \u202e") == "rm x\\r\\x1b[2Kls \\u202e"
        assert escape_question("全角\u3000の空白 👨\u200d👩\n\tx") == "全角\u3000の空白 👨\u200d👩\n\tx"
        assert escape_question("x" * 5000).endswith("… and 1,000 more characters")

    def test_another_word_is_refused(self, make):
        """The caller hears of it."""
        with pytest.raises(UsageError, match="approve cannot be 'yolo'"):
            make(approve="yolo")


def test_a_task_uses_the_tools(desk):
    """From the reply of a model to results in the log, errors included."""
    desk.put("x.py", "def f():\n    return 1\n")
    with orihon.open("memory:", settings=Settings()) as engine:
        with engine.start(rounds.KEY, tools=desk.box.schemas) as task:
            task.add("user", "Make f return 2.")
            task.window()
            task.add_reply(
                rounds.calling(
                    ("read", {"path": "x.py"}),
                    ("edit", {"path": "x.py", "old": "return 1", "new": "return 2"}),
                    ("shell", {"command": "python3 -c 'import x; print(x.f())'"}),
                    ("read", {"path": "../secret"}),
                )
            )
            for waiting in task.pending_calls():
                with task.tool(waiting) as run:
                    run.result = desk.box.run(waiting)
            task.add_reply(rounds.saying("Done."))
            uuid = task.uuid
        results = [message for message in engine.read(uuid).messages() if message.role == "tool"]
    assert [message.is_error for message in results] == [False, False, False, True]
    assert results[2].text.startswith("2\n")
    assert results[3].text.startswith("ToolError: ../secret is outside of the workspace")
