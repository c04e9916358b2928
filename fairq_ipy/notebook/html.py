"""HTML that cannot be broken from outside: every text is escaped unless it was made here.

Names of tenants, answers and errors come from outside. They reach a page only as text of an element or as the value of
an attribute, and both are escaped where they are put in.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

__all__ = ["Html", "page", "tag"]

_VOID = frozenset({"br", "hr", "wbr"})

# Colours and fonts are the front end's own (Jupyter's variables), so that light and dark follow it; the fallbacks are
# for VS Code and for pages without a theme. No scripts, no images, nothing from the network.
_STYLE = """
.fq{font:var(--jp-ui-font-size1,13px)/1.5 var(--jp-ui-font-family,system-ui,sans-serif);
color:var(--jp-ui-font-color1,inherit);max-width:72em}
.fq p{margin:0 0 .3em}
.fq .fq-soft{color:var(--jp-ui-font-color2,inherit);opacity:.85}
.fq .fq-scroll{overflow-x:auto;margin:.3em 0 .7em}
.fq table{border-collapse:collapse;margin:0;font-size:inherit;color:inherit}
.fq th,.fq td{padding:.15em .8em .15em 0;border:0;border-bottom:1px solid var(--jp-border-color2,rgba(128,128,128,.3));
text-align:left;vertical-align:top;background:none;white-space:pre-wrap;overflow-wrap:break-word;max-width:28em}
.fq th{font-weight:600;color:var(--jp-ui-font-color2,inherit)}
.fq .fq-n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.fq pre{margin:.3em 0;padding:.5em .7em;white-space:pre-wrap;overflow-wrap:anywhere;color:inherit;
background:var(--jp-layout-color2,rgba(128,128,128,.1));font-family:var(--jp-code-font-family,monospace);
font-size:var(--jp-code-font-size,12px)}
.fq .fq-chip{white-space:nowrap}
.fq .fq-chip::before{content:"";display:inline-block;width:.55em;height:.55em;margin-right:.45em;border-radius:50%;
background:currentColor}
.fq .fq-good::before{color:var(--jp-success-color1,#2e7d32)}
.fq .fq-busy::before{color:var(--jp-brand-color1,#1976d2)}
.fq .fq-warn::before{color:var(--jp-warn-color1,#b26a00)}
.fq .fq-bad::before{color:var(--jp-error-color1,#c62828)}
.fq .fq-idle::before{opacity:.35}
""".strip().replace("\n", "")


class Html(str):
    """Markup that was made by `tag`: the only text that is put into a page as it is."""

    __slots__ = ()


def tag(name: str, *children: str | Html | Iterable[str | Html], cls: str = "") -> Html:
    """Return an element.

    Args:
        name: of the element.
        children: texts, which are escaped, elements, or several of them.
        cls: its classes.
    """
    attribute = f' class="{escape(cls)}"' if cls else ""
    if name in _VOID:
        return Html(f"<{name}{attribute}>")
    return Html(f"<{name}{attribute}>{_inner(children)}</{name}>")


def _inner(children: Iterable[str | Html | Iterable[str | Html]]) -> str:
    parts: list[str] = []
    for child in children:
        if isinstance(child, Html):
            parts.append(child)
        elif isinstance(child, str):
            parts.append(escape(child))
        else:
            parts.append(_inner(child))
    return "".join(parts)


def page(*children: str | Html | Iterable[str | Html]) -> str:
    """Return what a cell shows: the elements under our own class, and the style that belongs to it."""
    return f"<style>{_STYLE}</style>{tag('div', *children, cls='fq')}"
