"""`masking.kinds`: which secrets are masked, and what the model sees."""

import pytest

import orihon
from orihon.errors import SettingsError
from orihon.redaction import MASKS
from orihon.settings.load import load
from orihon.settings.schema import Masking, Settings
from orihon.stores import store_options
from orihon.testing.samples import TOKEN

MAIL = "alice@corp.co.jp"


def loaded(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    return load(tmp_path / "config.yaml", environ={})


@pytest.mark.parametrize(
    ("kinds", "masks"),
    [
        ("[all]", None),
        ("[all, -email]", MASKS - {"EMAIL"}),
        ("[all, -EMAIL, -password]", MASKS - {"EMAIL", "PASSWORD"}),
        ("[password, token]", {"PASSWORD", "TOKEN"}),
        ("[]", frozenset()),
        ("[-email, all]", MASKS - {"EMAIL"}),  # in any order
        ("[-email]", MASKS - {"EMAIL"}),
        ("[all, -all]", frozenset()),
    ],
)
def test_kinds_are_chosen_by_name(tmp_path, kinds, masks):
    """All kinds, all but some, or only some, in capital or small letters."""
    settings = loaded(tmp_path, f"masking:\n  kinds: {kinds}\n")
    assert settings.masking.chosen == masks
    assert store_options(settings, {}).kinds == masks


@pytest.mark.parametrize("kinds", ["[emails]", "[all, -mail]", "email", "[3.5]"])
def test_a_kind_that_does_not_exist_is_refused(tmp_path, kinds):
    """The message lists the allowed values."""
    with pytest.raises(SettingsError) as wrong:
        loaded(tmp_path, f"masking:\n  kinds: {kinds}\n")
    assert "line 2: `masking.kinds`" in wrong.value.message
    assert "`email`" in wrong.value.message
    assert "a `-` in front excludes" in wrong.value.message


def test_settings_from_code_are_checked_when_they_are_used():
    """An unknown name would mask nothing, so it is refused."""
    with pytest.raises(SettingsError, match="'emial'"):
        store_options(Settings(masking=Masking(kinds=("all", "-emial"))))


def test_every_mask_has_a_name_in_the_settings():
    """Each kind can be excluded."""
    for mask in MASKS:
        assert Masking(kinds=("all", f"-{mask.lower()}")).chosen == MASKS - {mask}


def test_the_model_sees_addresses_if_they_are_not_masked(url_at, tmp_path):
    """The model can write the addresses that it was given, and still sees no token."""
    settings = Settings(masking=Masking(kinds=("all", "-email")))
    with orihon.open(url_at("jsonl", tmp_path), settings=settings) as engine:
        task = engine.start("local/x/issue/a")
        task.add("user", f"Set the author to {MAIL}, and push with {TOKEN}.")
        said = str(task.window().openai())
    assert MAIL in said
    assert TOKEN not in said
    with orihon.open(url_at("sqlite", tmp_path), settings=Settings()) as engine:
        task = engine.start("local/x/issue/a")
        task.add("user", f"Set the author to {MAIL}.")
        assert "[EMAIL]" in str(task.window().openai())
