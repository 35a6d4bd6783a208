"""Old names of modules: an import of one, and a pickle that holds one, say the new name."""

import importlib
import importlib.util
import pickle

import pytest

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.moved import MOVED, present_name
from sotopia_env.naming.policies import make_policy
from tests.errors import raises


@pytest.mark.parametrize("old", [name for name in MOVED if name.startswith("sotopia_env.")])
def test_an_old_import_names_a_module_that_exists(old):
    with pytest.raises(ModuleNotFoundError, match=MOVED[old].replace(".", r"\.")):
        importlib.import_module(old)
    assert importlib.util.find_spec(MOVED[old]) is not None


def test_a_module_inside_a_package_that_has_moved_is_named_too():
    assert present_name("training.harm.injury") == "studies.harm.injury"
    assert present_name("training_of_mine.harm") is None
    assert present_name("sotopia_env.tablet") is None


def test_an_old_pickle_names_the_new_module_of_its_class():
    with pytest.raises(ModuleNotFoundError, match=r"sotopia_env\.world\.play\.table"):
        pickle.loads(b"csotopia_env.table\nTable\n.")


def test_an_old_configuration_gets_the_new_name():
    with raises(InvalidValueError, field="policy", hint="it is now studies.harm.injury:tasks"):
        make_policy("training.harm.injury:tasks")
