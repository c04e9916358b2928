"""The command line: what it prints, and with which status it ends."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
import yaml

from fairq_ipy import cli

ROOT = Path(__file__).resolve().parents[2]
GOOD = "version: 1\nendpoint: {base_url: demo}\n"
BAD = GOOD + "limits: {concurency: 2}\ntenants: {'a, b: 100%': {weight: 0}}\n"


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(capsys):
    """Run a command, and return its status with what it printed and complained."""

    def call(*words: str) -> tuple[int, str, str]:
        try:
            status = cli.main(words)
        except SystemExit as end:
            status = end.code
        out, err = capsys.readouterr()
        return status, out, err

    return call


def put(name: str, text: str) -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


# ------------------------------------------------------------------------------------------------------------ validate


def test_a_good_policy_ends_with_0(run):
    assert run("validate", put("team.yaml", GOOD)) == (0, "team.yaml: good\n", "")


def test_a_bad_policy_ends_with_1_and_shows_where_what_and_the_remedy(run):
    status, out, err = run("validate", put("team.yaml", BAD))
    assert (status, err) == (1, "")
    assert out.splitlines()[:2] == [
        "team.yaml:3:10: limits.concurency: `concurency` is not a key of this section",
        "    did you mean `concurrency`?",
    ]
    assert out.splitlines()[-1] == "2 problems in 1 of 1 file"


def test_every_file_is_checked_whatever_is_wrong_with_the_others(run):
    files = [put("a.yaml", BAD), "gone.yaml", put("my team.yaml", GOOD), put("b.yaml", "a: [")]
    status, out, _ = run("validate", *files)
    assert status == 1
    assert "gone.yaml:1:1: there is no such file" in out
    assert "my team.yaml: good" in out
    assert "b.yaml:1:5: this is not YAML" in out
    assert out.splitlines()[-1] == "4 problems in 3 of 4 files"


def test_a_finding_without_a_hint_takes_one_line(run):
    _, out, _ = run("validate", put("a.yaml", "a: *b"))
    assert out.splitlines() == ["a.yaml:1:4: the alias *b has no anchor &b before it", "1 problem in 1 of 1 file"]


@pytest.mark.parametrize("name", ["my team.yaml", "a'b.yaml", "ä.yaml", "100%.yaml"])
def test_a_path_keeps_its_blanks_and_signs(run, name):
    assert run("validate", put(name, GOOD))[:2] == (0, f"{name}: good\n")


@pytest.mark.skipif(sys.platform == "win32", reason="a backslash is a separator there")
def test_a_path_keeps_its_backslashes(run):
    assert run("validate", put(r"policies\my team.yaml", GOOD))[0] == 0


def test_for_programs_it_prints_a_list_of_objects(run):
    status, out, _ = run("validate", "--format", "json", put("a.yaml", BAD), put("b.yaml", GOOD))
    found = json.loads(out)
    assert status == 1
    assert [set(each) for each in found] == [{"file", "line", "column", "path", "message", "hint"}] * 2
    assert (found[0]["file"], found[0]["line"], found[0]["column"]) == ("a.yaml", 3, 10)
    assert (found[0]["path"], found[0]["hint"]) == ("limits.concurency", "did you mean `concurrency`?")


def test_for_programs_nothing_wrong_is_an_empty_list(run):
    status, out, _ = run("validate", "--format=json", put("a.yaml", GOOD))
    assert (status, json.loads(out)) == (0, [])


def test_for_a_pull_request_it_prints_annotations(run):
    status, out, _ = run("validate", put("a.yaml", BAD), "--format", "github")
    first, second = out.splitlines()
    assert status == 1
    assert first == (
        "::error file=a.yaml,line=3,col=10,title=limits.concurency::`concurency` is not a key of this section"
        "%0Adid you mean `concurrency`?"
    )
    assert 'title=tenants."a%2C b%3A 100%25".weight::' in second


def test_for_a_pull_request_a_file_name_cannot_smuggle_a_command(run):
    _, out, _ = run("validate", "--format", "github", "x.yaml,line=9::\r\n::error ::y")
    assert len(out.splitlines()) == 1
    assert "file=x.yaml%2Cline=9%3A%3A%0D%0A%3A%3Aerror %3A%3Ay,line=1" in out


def test_for_a_pull_request_nothing_wrong_prints_nothing(run):
    assert run("validate", "--format", "github", put("a.yaml", GOOD)) == (0, "", "")


def test_a_terminal_without_an_alphabet_shows_escapes(monkeypatch):
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    assert cli.main(["validate", put("ä.yaml", GOOD)]) == 0
    assert out.buffer.getvalue() == b"\\xe4.yaml: good\n"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["validate"],
        ["validate", "--format", "xml", "a.yaml"],
        ["valdate", "a.yaml"],
        ["--vers"],
        ["init", "--forc"],
    ],
)
def test_a_wrong_command_line_ends_with_2(run, words):
    status, out, err = run(*words)
    assert (status, out) == (2, "")
    assert "usage: fairq" in err


def test_the_policies_that_come_along_are_good(run):
    assert run("validate", *map(str, sorted((ROOT / "policies").glob("*.yaml"))))[0] == 0


# -------------------------------------------------------------------------------------------------------------- schema


def test_the_schema_is_printed(run):
    status, out, _ = run("schema")
    assert status == 0
    assert json.loads(out) == json.loads((ROOT / "fairq_ipy" / "policy" / "schema.json").read_text(encoding="utf-8"))


# ---------------------------------------------------------------------------------------------------------------- init


def test_a_policy_is_written_that_is_good(run):
    status, out, _ = run("init")
    assert status == 0
    assert out.splitlines()[:2] == [
        f"wrote {Path('policies/team.yaml')}",
        f"wrote {Path('policies/fairq.schema.json')}",
    ]
    assert run("validate", "policies/team.yaml")[0] == 0


def test_the_endpoint_and_the_path_can_be_named(run):
    assert run("init", "--endpoint", "http://localhost:8000/v1", "--path", "my own/p.yaml")[0] == 0
    assert "  base_url: http://localhost:8000/v1\n" in Path("my own/p.yaml").read_text(encoding="utf-8")


def test_what_is_there_is_not_overwritten(run):
    Path("policies").mkdir()
    put("policies/team.yaml", "mine")
    status, out, err = run("init")
    assert (status, out) == (1, "")
    assert "is there already (--force overwrites it" in err
    assert Path("policies/team.yaml").read_text(encoding="utf-8") == "mine"


def test_what_is_there_is_overwritten_by_force(run):
    Path("policies").mkdir()
    put("policies/team.yaml", "mine")
    assert run("init", "--force")[0] == 0
    assert run("validate", "policies/team.yaml")[0] == 0


def test_a_wrong_endpoint_is_a_wrong_command_line(run):
    status, _, err = run("init", "--endpoint", "http://me:hunter2@host/v1")
    assert status == 2
    assert err.startswith("fairq: --endpoint: ")
    assert "hunter2" not in err
    assert not Path("policies").exists()


def test_a_path_that_cannot_be_written_is_told(run):
    put("file", "")
    status, _, err = run("init", "--path", "file/team.yaml")
    assert status == 1
    assert err == f"fairq: {Path('file/team.yaml')} cannot be written: Not a directory\n"


# ---------------------------------------------------------------------------------------------------------------- demo


@pytest.fixture
def demo(monkeypatch) -> types.ModuleType:
    """Stand in for the demo's own command."""
    module = types.ModuleType("fairq_ipy.demo.command")

    def add_arguments(parser):
        parser.add_argument("--seed", type=int)

    def main(options):
        return options.seed

    vars(module).update(add_arguments=add_arguments, main=main)
    monkeypatch.setitem(sys.modules, "fairq_ipy.demo.command", module)
    return module


def test_the_demo_takes_its_own_arguments_and_gives_the_status(run, demo):
    assert run("demo", "--seed", "7")[0] == 7


def test_an_interrupt_ends_without_a_traceback(run, demo):
    def interrupted(_options):
        raise KeyboardInterrupt

    demo.main = interrupted
    assert run("demo") == (130, "", "")


def test_help_lists_the_commands_without_loading_them(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "fairq_ipy.demo.command", None)  # importing it would fail
    status, out, _ = run("--help")
    assert status == 0
    assert {"validate", "schema", "init", "demo"} <= set(re.findall(r"^    (\w+)", out, re.MULTILINE))


# ------------------------------------------------------------------------------------------------------------- process


def python(code: str, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **options)


def test_the_version_is_that_of_the_package(run):
    from importlib.metadata import version

    assert run("--version") == (0, f"fairq {version('fairq-ipy')}\n", "")


HEAVY = ["IPython", "asyncio", "attr", "httpx", "ipykernel", "ipywidgets", "jsonschema", "referencing", "socket", "ssl"]


def test_a_check_before_a_commit_loads_neither_the_notebook_nor_http():
    put("a.yaml", BAD)
    code = "import sys; from fairq_ipy.cli import main; main(['validate', 'a.yaml']); print(sorted(sys.modules))"
    loaded = python(code).stdout
    assert "'fairq_ipy.policy.schema'" in loaded
    assert not [name for name in HEAVY if f"'{name}'" in loaded]


def test_the_command_alone_loads_no_yaml():
    loaded = python("import sys, fairq_ipy.cli; print(sorted(sys.modules))").stdout
    assert "'fairq_ipy.cli'" in loaded
    assert not [name for name in [*HEAVY, "yaml", "fairq_ipy.policy"] if f"'{name}'" in loaded]


@pytest.mark.skipif(sys.platform == "win32", reason="pipes break otherwise there")
def test_a_reader_that_goes_away_ends_it_quietly():
    code = (
        "import os, sys; reader, writer = os.pipe(); os.dup2(writer, 1); os.close(writer); os.close(reader);"
        "from fairq_ipy.cli import main; sys.exit(main(['schema']))"
    )
    done = python(code)
    assert (done.returncode, done.stderr) == (141, "")


def test_it_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "fairq_ipy.cli", "validate", put("a.yaml", GOOD)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "a.yaml: good\n")


def test_the_hook_for_commits_checks_what_is_found_by_itself():
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert (hook["id"], hook["entry"]) == ("fairq-validate", "fairq validate")
    files = re.compile(hook["files"])
    assert all(files.search(name) for name in ("policies/team.yaml", "fairq.yaml", "a b/policies/team.yaml"))
    assert not any(files.search(name) for name in ("policies/network.yaml", "xfairq.yaml", "fairq.yamlx"))
