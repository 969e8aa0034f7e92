"""Three domains, one mapping pattern, and the command line that plays them."""

from domains.found import DOMAINS, Domain

__all__ = ["DOMAINS", "Domain"]
