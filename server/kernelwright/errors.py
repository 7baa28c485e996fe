"""Our own faults and refusals, as exceptions. A candidate's faults are values (`model.Refuted`), never exceptions.

KernelwrightError              every one carries what to do next in its message
├── UsageError                 the caller asked for something that cannot be: exit status 2
│   ├── TargetNotFound         no such function in the document
│   ├── BadInputs              an input description that does not parse, or that the function does not accept
│   ├── InputsNeeded           no inputs were found: the editor asks, the command line says how to give them
│   └── StaleProposal          the function changed since the proposal was made
├── WorkerError                a worker process died, hung or answered nonsense
│   └── EnvironmentProblem     the user's interpreter lacks torch or Triton, or is too old
├── ProviderError              a model provider failed (network, key, quota, malformed stream)
└── HistoryError               the database cannot be read or written
"""


class KernelwrightError(Exception):
    """The root of everything raised here; its text is shown to people as it stands."""


class UsageError(KernelwrightError):
    """The request itself is wrong."""


class TargetNotFound(UsageError):
    """The document has no function of that qualified name."""


class BadInputs(UsageError):
    """An input description does not parse, or the function rejects what it describes."""


class InputsNeeded(UsageError):
    """Nothing says what the function is called with. `suggestion` is a literal to start from."""

    def __init__(self, message: str, suggestion: str) -> None:
        super().__init__(message)
        self.suggestion = suggestion


class StaleProposal(UsageError):
    """The document no longer holds the function that the proposal was made for."""


class WorkerError(KernelwrightError):
    """A worker process died, hung or answered nonsense."""


class EnvironmentProblem(WorkerError):
    """The user's interpreter cannot run the workers."""


class ProviderError(KernelwrightError):
    """A model provider failed. `retry_after_s` is the provider's own wish, in seconds, where it gave one."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class HistoryError(KernelwrightError):
    """The history database cannot be read or written."""
