"""`python -m gateway` is `thinkgate`."""

from gateway.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
