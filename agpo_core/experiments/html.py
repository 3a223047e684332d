"""An HTML copy of a notebook that needs no network: its equations are MathML, which browsers draw themselves."""

import nbconvert
from jinja2 import pass_context
from latex2mathml.converter import convert
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode

# nbconvert's page without the scripts that it would fetch: for equations, for diagrams, for widgets.
PAGE = """{% extends "lab/index.html.j2" %}
{% block html_head_js %}{% endblock %}
{% block html_head_js_mathjax %}{% endblock %}
{% block html_head_js_mermaidjs %}{% endblock %}
{% block jupyter_widgets %}{% endblock %}
"""


class _Renderer(IPythonRenderer):
    """nbconvert's renderer, with equations as MathML and not left to a script."""

    def inline_math(self, body: str) -> str:
        return convert(body)

    def block_math(self, body: str) -> str:
        return convert(body, display="block")

    def latex_environment(self, name: str, body: str) -> str:
        return convert(f"\\begin{{{name}}}{body}\\end{{{name}}}", display="block")


class _Exporter(nbconvert.HTMLExporter):
    @pass_context
    def markdown2html(self, context, source):
        renderer = _Renderer(escape=False, anchor_link_text=self.anchor_link_text)
        return MarkdownWithMath(renderer=renderer).render(source)


def page(notebook: NotebookNode, name: str) -> str:
    """The notebook as one HTML file.

    Args:
        notebook: as it was executed.
        name: the page's title.
    """
    exporter = _Exporter(raw_template=PAGE)
    html, _ = exporter.from_notebook_node(notebook, resources={"metadata": {"name": name}})
    return html
