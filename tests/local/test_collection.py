"""Garbage collection is off while virtual time runs, and on again afterwards."""

import gc

import pytest

from local import garbage_collection


def test_garbage_collection_is_off_within_the_block() -> None:
    """Garbage collection is off within the block, even if blocks overlap, and on afterwards, whatever was raised."""
    with garbage_collection.no_garbage_collection():
        with garbage_collection.no_garbage_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), garbage_collection.no_garbage_collection():
        raise ZeroDivisionError
    assert gc.isenabled()
