"""One page of all results, `outputs/report/index.html`: what `reproduce` writes at its end.

    python -m agpo_core.experiments.report_page --profile tiny

The page shows, for every item of the papers and of ours, the outputs of its notebook's cells that are tagged `report`:
the measured table, the figures and the verdicts. A notebook that was executed under the profile is taken from
`outputs/runs/`, another one as it is committed. The table of claims follows. The page holds its pictures itself, so it
needs no network and can be copied as one file.
"""

import argparse
import html
import os
import re
from pathlib import Path

import nbformat
from jinja2 import Environment

from agpo_core import paths
from agpo_core.experiments import claim_tables, published

TAG = "report"  # of cells whose outputs stand on the page
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>AGPO and REINFORCE++: all results</title>
<style>
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 62rem; margin: 0 auto; padding: 1rem; }
h2 { border-top: 1px solid #ccc; padding-top: 1rem; margin-top: 2.5rem; }
img { max-width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.85rem; }
th, td { border-bottom: 1px solid #ddd; padding: 0.25rem 0.6rem; text-align: right; vertical-align: top; }
th:first-child, td:first-child { text-align: left; }
.claims td, .claims th { text-align: left; }
pre { overflow-x: auto; background: #f6f6f6; padding: 0.6rem; font-size: 0.8rem; }
.quiet { color: #666; font-size: 0.9rem; }
</style>
</head>
<body>
<h1>AGPO and REINFORCE++: all results</h1>
<p>Everything below was measured on small models and procedural tasks under the profile <b>{{ profile }}</b>, unless an
item says otherwise. The numbers are not comparable with the papers' own. A claim is <i>supported</i> or
<i>contradicted</i> if the interval of its difference lies on one side of zero after Holm's correction, else
<i>inconclusive</i>.</p>
<ul>
{% for section in sections %}<li><a href="#{{ section.name }}">{{ section.title }}</a>: {{ section.asks }}</li>
{% endfor %}<li><a href="#all_claims">All claims</a></li>
</ul>
{% for section in sections %}
<h2 id="{{ section.name }}">{{ section.title }}</h2>
<p>{{ section.asks }}</p>
<p class="quiet">{{ section.origin }} <a href="{{ section.link }}">{{ section.name }}</a></p>
{% for part in section.parts %}<div class="wide">{{ part }}</div>
{% endfor %}{% endfor %}
<h2 id="all_claims">All claims</h2>
<div class="wide"><table class="claims">
<tr><th>#</th><th>where</th><th>the paper says</th><th>here</th></tr>
{% for claim in claims %}<tr>
<td>{{ claim.number }}</td><td>{{ claim.place }}</td><td>{{ claim.says }}</td><td>{{ claim.here }}</td>
</tr>
{% endfor %}</table></div>
</body>
</html>
"""


def write(profile: str) -> Path:
    """Write the page of a profile, and give its place.

    Args:
        profile: whose executed notebooks are shown, where there are some.
    """
    file = paths.outputs() / "report" / "index.html"
    file.parent.mkdir(parents=True, exist_ok=True)
    known = claim_tables.answers()
    claims = [
        {
            "number": claim.number,
            "place": html.escape(f"{claim.paper} {claim.place}"),
            "says": html.escape(claim.says),
            "here": html.escape("; ".join(known[claim.number])),
        }
        for claim in published.claims()
    ]
    sections = [section for item in published.items() if (section := _section(item, profile, file.parent))]
    file.write_text(Environment().from_string(PAGE).render(profile=profile, sections=sections, claims=claims), "utf-8")
    return file


def _section(item: published.Item, profile: str, start: Path) -> dict | None:
    """What the page says of an item; None where its notebook is to come, or shows nothing there."""
    executed = paths.runs() / item.notebook / profile / "notebook.ipynb"
    committed = paths.notebooks() / f"{item.notebook}.ipynb"
    source = executed if executed.is_file() else committed
    if not source.is_file():
        return None
    link = executed.with_name("notebook.html") if source == executed else committed
    parts = [
        part
        for cell in nbformat.read(source, as_version=4).cells
        if TAG in cell.metadata.get("tags", [])
        for output in cell.get("outputs", [])
        if (part := _part(output))
    ]
    return parts and {
        "name": item.notebook,
        "title": html.escape(item.title),
        "asks": html.escape(item.asks),
        "origin": "From the executed notebook:" if source == executed else "From the committed record:",
        "link": Path(os.path.relpath(link, start)).as_posix(),
        "parts": parts,
    }


def _part(output) -> str:
    """An output of a cell as HTML; "" for what is neither a picture nor a table nor text."""
    data = output.get("data", {})
    if "image/png" in data:
        alt = output.get("metadata", {}).get("image/png", {}).get("alt", "figure of the notebook")
        picture = data["image/png"].replace("\n", "")
        return f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{picture}">'
    if "text/html" in data:
        return re.sub(r"<style.*?</style>", "", data["text/html"], flags=re.DOTALL)
    words = output.get("text") or data.get("text/plain", "")
    return f"<pre>{html.escape(words.rstrip())}</pre>" if words.strip() else ""


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write one page of all results.")
    parser.add_argument("--profile", default="tiny", help="a name in params/; default: tiny")
    print(write(parser.parse_args(argv).profile))


if __name__ == "__main__":
    main()
