"""A fixture for pytest: hold any tool against the contract.

Installed with this package, or loaded with ``-p domains.pytest_plugin``. It imports no framework until a test
asks for it::

    def test_refund(contract):
        contract(refund)
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from domains.check import Report


@pytest.fixture(scope="session")
def contract() -> "Callable[..., list[Report]]":
    """Return ``contract(subject, args=None, *, partial=False)``: it fails the test with what to change.

    ``subject`` is a tool, a function that returns tools, several tools, ``module:tool`` or a domain's name;
    ``args`` are those of one ordinary call, if the tool does not declare them. What cannot be checked fails
    as well, unless ``partial`` says that it may.
    """

    def check_contract(
        subject: Any, args: Mapping[str, Any] | None = None, *, partial: bool = False
    ) -> "list[Report]":
        from domains.cases import Refused, cases
        from domains.check import check

        refused, found = "", []
        try:
            found = cases(subject, args)
        except Refused as error:
            refused = str(error)
        if refused:
            pytest.fail(refused, pytrace=False)
        reports = [check(case) for case in found]
        if lines := [line for report in reports for line in _lines(report, partial=partial)]:
            pytest.fail("\n".join(lines), pytrace=False)
        return reports

    return check_contract


def _lines(report: "Report", *, partial: bool) -> Iterator[str]:
    yield from map(str, report.findings)
    if not partial:
        for lacks, names in report.waiting.items():
            yield f"{report.subject}, {', '.join(names)}: not run. Declare {lacks}; or say partial=True."
