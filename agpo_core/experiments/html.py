"""An HTML copy of a notebook that needs no network: its equations are MathML, which browsers draw themselves.

Its pictures keep their alternative text, which nbconvert's own page leaves out.
"""

import nbconvert
from jinja2 import pass_context
from latex2mathml.converter import convert
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode

# nbconvert's page without the scripts that it would fetch: for equations, for diagrams, for widgets; and a picture with
# its alternative text.
PAGE = """{% extends "lab/index.html.j2" %}
{% block html_head_js %}{% endblock %}
{% block html_head_js_mathjax %}{% endblock %}
{% block html_head_js_mermaidjs %}{% endblock %}
{% block jupyter_widgets %}{% endblock %}
{% block data_png %}<div class="jp-RenderedImage jp-OutputArea-output">
<img src="data:image/png;base64,{{ output.data['image/png'] }}"
{%- set width = output | get_metadata('width', 'image/png') -%}
{%- if width is not none %} width="{{ width | escape_html }}"{% endif %}
alt="{{ (output | get_metadata('alt', 'image/png') or '') | escape_html }}"></div>{% endblock %}
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
