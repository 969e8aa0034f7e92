"""The domains there are: every folder of this package that holds a ``rules.py``.

Found, not registered, and loaded when asked for: a table needs no agent framework.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

    from domains.mapping import RuleBook
    from domains.scenario import Ask, Forced, Scenario
    from orchestration.reasons import Reason

_HERE: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Domain:
    """One folder: a table, a flow, scenarios. Each part is imported when it is asked for."""

    name: str
    """The folder's name."""

    def _part(self, module: str) -> ModuleType:
        return import_module(f"domains.{self.name}.{module}")

    @property
    def book(self) -> "RuleBook":
        """The table."""
        return self._part("rules").BOOK  # type: ignore[no-any-return]

    @property
    def tools(self) -> Callable[..., "list[BaseTool]"]:
        """``tools(*, client=None, async_client=None, ...)``: the domain's tools over these clients."""
        return self._part("tool").tools  # type: ignore[no-any-return]

    @property
    def scenarios(self) -> "tuple[Scenario, ...]":
        """What can be played."""
        return self._part("scenarios").SCENARIOS  # type: ignore[no-any-return]

    @property
    def sample(self) -> "Ask":
        """One ordinary call."""
        return self._part("scenarios").SAMPLE  # type: ignore[no-any-return]

    @property
    def forced(self) -> "Mapping[Reason, tuple[Mapping[str, Any], tuple[Forced, ...]]]":
        """Reason -> the settings of the vendor's fake, and its answers, that make ``sample`` end so."""
        return self._part("scenarios").FORCED  # type: ignore[no-any-return]

    @property
    def vendor(self) -> str:
        """The vendor's fake, as ``module:class``."""
        return self._part("scenarios").VENDOR  # type: ignore[no-any-return]


def unknown(name: str, known: Iterable[str]) -> str:
    """Return what somebody reads who names a domain that is not there."""
    names = list(known)
    near = get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"there is no domain {name!r}.{hint} There are: {', '.join(names)}."


class _Domains(Mapping[str, Domain]):
    """Name -> domain. An unknown name is a KeyError that names the nearest."""

    def __getitem__(self, name: str) -> Domain:
        if name not in set(self):
            raise KeyError(unknown(name, self))
        return Domain(name)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(path.parent.name for path in _HERE.glob("*/rules.py")))

    def __len__(self) -> int:
        return sum(1 for _ in self)


DOMAINS: Final[Mapping[str, Domain]] = _Domains()


def scenarios() -> "dict[str, Scenario]":
    """Return every scenario by id: each domain's, then those across domains."""
    journeys: tuple[Scenario, ...] = import_module("domains.journeys").SCENARIOS
    own = (scenario for domain in DOMAINS.values() for scenario in domain.scenarios)
    return {scenario.id: scenario for scenario in (*own, *journeys)}
