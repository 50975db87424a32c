"""Checks the size that a file claims, before memory is allocated for it."""

from bcq.system.errors import InputError

LARGE = 2**30  # bytes; smaller claims do no harm
MOST_COMPRESSED = 200  # times: logs compress to a half or a tenth, a bomb to a thousandth


def require_plausible(name: str, claimed: int, stored: int) -> None:
    """Refuses an array that would take far more memory than the file stores for it."""
    if claimed > LARGE and claimed > MOST_COMPRESSED * stored:
        raise InputError(
            f"{name}: claims {claimed / 2**30:,.2f} GiB but the file stores {stored:,} bytes for "
            "it; the file is damaged, or made to exhaust memory"
        )
