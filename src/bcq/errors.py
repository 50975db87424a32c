"""The exceptions a user is meant to read: the message says what, where, and what to do."""


class BCQError(Exception):
    """Anything this package refuses or gives up on, with its reason."""


class InputError(BCQError):
    """Something given to the program is wrong."""


class DivergenceError(BCQError):
    """Training produced numbers that are not finite."""
