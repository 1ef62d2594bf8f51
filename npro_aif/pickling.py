"""Plans, planners and agents as bytes: compiled code is left out, and made again when they are read.

A model written in a notebook, and an Optax optimizer, are functions that plain ``pickle`` cannot name; with cloudpickle
(the extra ``pickle``) they travel by value.
"""

from __future__ import annotations

import pickle
from typing import Any, ClassVar


def dumps(value: Any) -> bytes:
    """The bytes of a value, made with cloudpickle where that is installed."""
    try:
        import cloudpickle
    except ImportError:
        try:
            return pickle.dumps(value)
        except (AttributeError, pickle.PicklingError) as error:
            raise pickle.PicklingError(
                f"{error}: found a function that has no name in a module, expected one that has, or cloudpickle: "
                "pip install 'npro-aif[pickle]'"
            ) from error
    return cloudpickle.dumps(value)


class Portable:
    """An object that can be pickled even after it was used."""

    transient: ClassVar[tuple[str, ...]] = ()  # attributes that stay behind

    def __reduce__(self) -> Any:
        attributes = {name: value for name, value in vars(self).items() if name not in self.transient}
        return _restore, (type(self), dumps(attributes))

    def restore(self) -> None:
        """Make the attributes again that were left out."""


def _restore(cls: type, content: bytes) -> Any:
    value: Any = object.__new__(cls)
    vars(value).update(pickle.loads(content))  # not setattr: some are frozen
    value.restore()
    return value
