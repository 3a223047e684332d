"""Prints which walls of the sandbox hold on this machine: `python -m agpo_core.sandbox`."""

from agpo_core.sandbox import WALLS, compiler, missing


def main() -> None:
    """Print, for each kind of sandbox, the walls that hold or what is missing."""
    for kind in ("full", "weak"):
        found = missing(weak=kind == "weak")
        print(f"{kind:4}  {'; '.join(found) if found else 'all walls hold: ' + ', '.join(WALLS)}")
    print(f"cpp   {compiler() or 'no g++ on PATH'}")


if __name__ == "__main__":
    main()
