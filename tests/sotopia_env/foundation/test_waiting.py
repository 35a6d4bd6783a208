"""Waiting for coroutines."""

import asyncio

import pytest

from sotopia_env.foundation.waiting import wait


async def doubled(number: int) -> int:
    await asyncio.sleep(0)
    if number < 0:
        raise ArithmeticError
    return 2 * number


def test_a_result_and_an_error_come_out_with_and_without_a_loop():
    async def inside() -> int:
        with pytest.raises(ArithmeticError):
            wait(doubled(-1))
        return wait(doubled(2))

    with pytest.raises(ArithmeticError):
        wait(doubled(-1))
    assert wait(doubled(3)) == 6
    assert asyncio.run(inside()) == 4


def test_a_loop_of_the_callers_is_used_and_left_open():
    loop = asyncio.new_event_loop()

    async def running() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async def inside() -> asyncio.AbstractEventLoop:
        return wait(running(), loop)

    assert wait(running(), loop) is loop
    assert asyncio.run(inside()) is loop
    assert not loop.is_closed()
    loop.close()
