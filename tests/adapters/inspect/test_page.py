"""The page's blocks run as they are."""

from tests.adapters.libraries import need, run_page

need("inspect_ai")


def test_the_blocks_of_the_page_run_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page("inspect", "inspect")
