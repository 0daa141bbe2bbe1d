"""The one exception for mistakes that a user can mend."""


class UserError(Exception):
    """A user's mistake: one line that names the place, the value and the fix."""
