"""What the documents say is there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fairq_ipy import policy


@pytest.fixture(scope="module")
def readme(root: Path) -> str:
    return (root / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def project(root: Path) -> dict:
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_every_make_command_of_the_readme_exists(root, readme):
    named = set(re.findall(r"\bmake ([a-z][a-z-]*)\b", "\n".join(code_of(readme))))
    assert {"demo", "test"} <= named
    targets = set(re.findall(r"^([a-z][a-z-]*):", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert named <= targets


def test_make_alone_lists_what_there_is(root):
    done = subprocess.run(["make"], cwd=root, capture_output=True, text=True, check=True, timeout=30)
    listed = set(re.findall(r"^  make ([a-z-]+)", done.stdout, re.MULTILINE))
    assert {"demo", "lab", "test", "test-real", "check", "bench", "clean", "help"} <= listed


def test_every_extra_of_the_readme_exists(project, readme):
    named = {extra for extras in re.findall(r"fairq-ipy\[([\w,-]+)\]", readme) for extra in extras.split(",")}
    assert named <= set(project["optional-dependencies"])


@pytest.mark.parametrize(
    "document", ["README.md", "CHANGELOG.md", "docs/policy.md", "docs/how-it-decides.md", "docs/guard.md"]
)
def test_every_link_to_a_file_leads_to_one(root, document):
    text = (root / document).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)|(?:src|href)=\"([^\"#]+)", text)
    local = {link for pair in links for link in pair if link and "://" not in link}
    folder = (root / document).parent
    assert not [link for link in local if not (folder / link).exists()]


def test_every_link_within_the_readme_leads_to_a_heading(readme):
    headings = {anchor(title) for title in re.findall(r"^#+ (.+)$", readme, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", readme)) <= headings


def test_every_python_example_of_the_readme_compiles(readme):
    blocks = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        compile(block, "README.md", "exec", flags=0x2000)  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, as in a notebook


def test_every_policy_of_the_readme_can_be_used(readme):
    blocks = re.findall(r"^```yaml\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        assert policy.loads(block, "README.md").endpoint.base_url


def test_the_changelog_tells_of_the_present_version(root, project):
    assert f"## {project['version']} - 20" in (root / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_license_is_the_one_that_is_named(root, project):
    assert project["license"] == "Apache-2.0"
    assert "Apache License" in (root / "LICENSE").read_text(encoding="utf-8")[:200]


def test_every_key_of_the_policy_is_described_in_the_schema(root):
    schema = json.loads((root / "fairq_ipy" / "policy" / "schema.json").read_text(encoding="utf-8"))
    assert not [path for path, part in properties(schema) if not described(part, schema)]


def test_the_reference_of_the_policy_says_what_the_schema_says(root):
    command = [sys.executable, "docs/reference.py", "--check"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr


def properties(schema: dict, path: str = "") -> list[tuple[str, dict]]:
    found = []
    for key, value in schema.items():
        if isinstance(value, dict):
            if key == "properties":
                found += [(f"{path}.{name}", part) for name, part in value.items()]
            found += properties(value, f"{path}.{key}" if key != "properties" else path)
    return found


def described(part: dict, schema: dict) -> bool:
    if part.get("description"):
        return True
    reference = part.get("$ref", "")
    target = schema
    for step in filter(None, reference.removeprefix("#/").split("/")):
        target = target[step]
    return bool(reference and target.get("description"))


def code_of(markdown: str) -> list[str]:
    return re.findall(r"```\w*\n.*?```|`[^`\n]+`", markdown, re.DOTALL)


def anchor(title: str) -> str:
    """The anchor that a code host gives to a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")
