"""What a batch that cannot be used is refused with."""

import time
from pathlib import Path
from typing import Any

import pytest

import bcq
from bcq.system.errors import InputError


def refusal(path: Path, **options: Any) -> str:
    """The one line that loading it gives, which names the file once and comes soon."""
    begun = time.perf_counter()
    with pytest.raises(InputError) as caught:
        bcq.load(path, **options)
    assert time.perf_counter() - begun < 2
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert message.count(str(path)) == 1
    assert "\n" not in message
    return message
