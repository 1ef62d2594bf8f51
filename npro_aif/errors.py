"""The errors a user can meet; each names the site or argument, what was found and what was expected."""


class ModelError(ValueError):
    """A program that is not a planning model: the message names the site and says what to write."""


class GuideError(ValueError):
    """A guide that does not fit its model or its objective."""


class ImpossibleObservation(ValueError):
    """An observation to which the model gives probability zero under the current belief."""
