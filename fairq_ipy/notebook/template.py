"""``--template``: fills ``{{ expressions }}`` of a cell from the user's variables, with Jinja2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from IPython.core.error import UsageError

from fairq_ipy.errors import ConfigurationError

__all__ = ["render"]


def render(text: str, names: Mapping[str, Any]) -> str:
    """Return `text` with its expressions filled in; everything else stays byte for byte.

    Args:
        text: the template.
        names: the user's variables.

    Raises:
        UsageError: a variable is missing, or the template is wrong; with its line.
        ConfigurationError: Jinja2 is not installed.
    """
    try:
        from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError
        from jinja2.sandbox import SandboxedEnvironment
    except ImportError as failure:
        raise ConfigurationError(
            "--template needs Jinja2, which is not installed: pip install jinja2", library="jinja2"
        ) from failure
    # Sandboxed, since a template is often pasted; no autoescaping, since a prompt is no HTML.
    environment = SandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
    visible = {name: value for name, value in names.items() if not name.startswith("_")}
    try:
        return environment.from_string(text).render(visible)
    except TemplateSyntaxError as failure:
        raise UsageError(f"--template: line {failure.lineno}: {failure.message}") from failure
    except TemplateError as failure:
        raise UsageError(f"--template: {failure.message}") from failure
    except Exception as failure:  # an expression of the template is the user's code
        raise UsageError(f"--template: {type(failure).__name__}: {failure}") from failure
