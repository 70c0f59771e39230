"""Garbage collection is off while virtual time runs, and on again afterwards."""

import gc

import pytest

from local import collection


def test_garbage_collection_is_off_within_the_block() -> None:
    """Garbage collection is off within the block, even if blocks overlap, and on afterwards, whatever was raised."""
    with collection.paused():
        with collection.paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), collection.paused():
        raise ZeroDivisionError
    assert gc.isenabled()
