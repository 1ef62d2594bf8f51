"""The errors a user can meet; each names the site or argument, what was found and what was expected."""


class ModelError(ValueError):
    """A program that is not a planning model: the message names the site and says what to write.

    >>> import npro_aif as aif
    >>> try:
    ...     aif.update_belief(lambda belief, horizon: None, aif.Belief(state=[1.0]), None, None)
    ... except aif.ModelError as error:
    ...     print(error)
    model: found no aif.rollout, expected exactly one
    """


class GuideError(ValueError):
    """A guide that does not fit its model or its objective.

    >>> import jax, npro_aif as aif
    >>> from npro_aif.models.tmaze import initial_belief, tmaze
    >>> try:
    ...     aif.Planner(tmaze, lambda belief, horizon: None)(jax.random.key(0), initial_belief())
    ... except aif.GuideError as error:
    ...     print(error)
    site 'theta': found in the model and not in the guide, expected it in both
    """


class ImpossibleObservation(ValueError):
    """An observation to which the model gives probability zero under the current belief.

    >>> import npro_aif as aif
    >>> from npro_aif.models.tmaze import LEFT, SOUTH, initial_belief, tmaze
    >>> try:
    ...     aif.update_belief(tmaze, initial_belief(), control=SOUTH, observation={"place": LEFT})
    ... except aif.ImpossibleObservation as error:
    ...     print(str(error).split(",")[0])
    site 'place': observed left (2)
    """


class PomdpError(ValueError):
    """A mistake in a `.POMDP` file, with its place.

    >>> print(PomdpError("tiger.POMDP", 3, 9, "found 'x', expected a number"))
    tiger.POMDP, line 3, column 9: found 'x', expected a number
    """

    def __init__(self, file: str, line: int, column: int, problem: str):
        super().__init__(file, line, column, problem)
        self.file, self.line, self.column, self.problem = file, line, column, problem

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}, column {self.column}: {self.problem}"
