"""Errors for the user: the message says what is wrong, where, and what to do."""


class BCQError(Exception):
    """Base class of the errors of this package."""


class InputError(BCQError):
    """Something given to the program is wrong.

    `option` names the setting that helps, if there is one. A library does not know how its caller
    spells settings; the command line adds that (`HINTS` in `bcq.cli.application`).
    """

    def __init__(self, message: str, *, option: str | None = None):
        super().__init__(message)
        self.option = option

    def within(self, place: object) -> "InputError":
        """The same error with the file, or the part of it, that it is about."""
        return InputError(f"{place}: {self}", option=self.option)


class DivergenceError(BCQError):
    """Training produced numbers that are not finite."""


class InterruptionError(BCQError):
    """The user wants to stop; the message says what was saved, if anything was."""


def require_seed(seed: int) -> None:
    """Refuses a seed that does not fit into 31 bits, which JAX takes without rounding."""
    if not 0 <= seed < 2**31:
        raise InputError(f"seed: {seed} is not between 0 and {2**31 - 1}")
