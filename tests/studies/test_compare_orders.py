"""The comparison of turn orders, on a few tasks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sotopia_env.tasks import generate
from sotopia_env.world import TurnOrder
from studies.compare_orders import difference

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "studies" / "compare_orders.py"


def test_orders_are_compared_with_the_first_and_shorter_waits_give_more_turns():
    out = subprocess.run([sys.executable, str(SCRIPT), "-n", "3"], capture_output=True, text=True, check=True, cwd=ROOT)
    first, second = ([*map(cells, table.splitlines()[2:])] for table in out.stdout.split("\n\n"))
    assert {row[2] for row in first} == {order.value for order in TurnOrder}
    assert all((row[5] == "") == (row[2] == TurnOrder.ROUND_ROBIN) for row in first)
    assert all(0 <= float(number) <= 1 for row in first for number in row[3:5])
    turns = {(*row[:2], row[2]): float(row[3]) for row in second}
    for family, policy, _ in turns:
        assert turns[family, policy, "1"] > turns[family, policy, "10"]


def test_equal_shares_are_not_certainly_equal():
    """The same in a few tasks leaves room for others; a constant difference is shown as one."""
    sample = generate("bargaining", 3, 0)
    text = difference([0.4, 0.4, 0.5], [0.4, 0.4, 0.5], sample)
    assert text.startswith("the same in all: +0.000 [-")
    assert difference([0.5, 0.5, 0.6], [0.4, 0.4, 0.5], sample).startswith("+0.100 [-")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]
