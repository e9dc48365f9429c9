"""One tree of errors, each with a message, a hint and an answer to "again?"."""

import inspect

import pytest

import orihon
import orihon.ingest  # masks errors once it is loaded; opening a store loads it
from orihon import errors
from orihon.errors import AccessDenied, OrihonError, UsageError
from orihon.settings.schema import Settings

CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, OrihonError)]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_is_complete(kind):
    """Each class stands in the drawing, speaks without arguments, and knows whether a retry can help."""
    error = kind()
    assert f"─ {kind.__name__}" in (errors.__doc__ or "") or kind is OrihonError
    assert error.message.endswith(".")
    assert str(error) == error.message
    assert error.hint.endswith(".")
    assert isinstance(error.retryable, bool)
    assert error.exit_code in {70, 2, 3, 4, 5}


def test_every_error_can_be_imported_from_orihon():
    """`except orihon.LeaseHeld` works without knowing a module."""
    assert {getattr(orihon, kind.__name__) for kind in CLASSES} == set(CLASSES)
    assert {kind.__name__ for kind in CLASSES} <= set(orihon.__all__)


def test_the_drawing_says_which_can_be_retried():
    """The word "retry" stands in the drawing exactly where the class says so."""
    drawn = {line.split("─ ")[1].split()[0]: "retry" in line for line in errors.__doc__.splitlines() if "─ " in line}
    drawn["ModelError"] = False  # only when the provider says so
    said = {kind.__name__: kind().retryable for kind in CLASSES if kind is not OrihonError}
    assert {name for name, again in drawn.items() if again} == {name for name, again in said.items() if again}


def test_branches_have_their_own_exit_codes():
    """Usage, store, context and run errors can be told apart by a shell script."""
    branches = (errors.UsageError, errors.StoreError, errors.ContextError, errors.RunError)
    assert [branch.exit_code for branch in branches] == [2, 3, 4, 5]


def test_usage_errors_are_value_errors():
    """A caller who knows nothing of Orihon still catches a wrong argument."""
    assert issubclass(errors.UsageError, ValueError)


def test_a_caller_can_say_more():
    """Message, hint and retry can be given where the error is raised."""
    error = errors.ModelError("429 from the provider.", hint="Wait a minute.", retryable=True)
    assert (error.message, error.hint, error.retryable) == ("429 from the provider.", "Wait a minute.", True)


def test_errors_mask_what_they_quote():
    """The message, the hint, and what is printed; the default texts stay."""
    token = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1eF3hJ5"
    error = UsageError(f"There is no {token}.", hint=f"Not {token}.")
    assert (error.message, error.hint) == ("There is no [GITHUB_TOKEN].", "Not [GITHUB_TOKEN].")
    assert str(error) == error.message
    assert token not in repr(error)


@pytest.mark.parametrize(
    "name", ["language", "summariser", "tokens", "window", "ghp_aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1eF3hJ5"]
)
def test_a_refused_option_is_not_quoted_raw(name):
    """Of `start`, whatever the option is."""
    token = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1eF3hJ5"
    with orihon.open("memory:", settings=Settings()) as engine, pytest.raises(UsageError) as refused:
        engine.start("local/issue/k", **{name: token})
    assert token not in str(refused.value) + refused.value.hint


def test_another_user_is_not_quoted_raw():
    """A token that stands where a name should."""
    token = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1eF3hJ5"
    with orihon.open("memory:", settings=Settings(), user="bob") as engine, pytest.raises(AccessDenied) as refused:
        engine.start("local/issue/k", user=token)
    assert token not in str(refused.value)
