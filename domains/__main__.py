"""``python -m domains``, and the ``domains`` command."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback, while it loads too."""
    try:
        from domains.cli import app

        # Receipts and arrows are not in a legacy code page: a Windows pipe would raise on the first.
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(encoding="utf-8", errors="replace")
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except RuntimeError as error:
        # Python 3.11 wraps what comes while a class is made, and loading a framework makes thousands.
        if isinstance(error.__cause__, KeyboardInterrupt):
            sys.exit(130)
        raise


if __name__ == "__main__":
    main()
