"""The pages' modules: their rules, one script of them for a page that is a file, and their own tests."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import page_cases
import witness
from conftest import ROOT
from witness.serve.routes import home
from witness.web import bundle

SOURCE = Path(witness.__file__).parent
MODULES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.js"))
DESK = ("transcript", "home", "notes", "live")
ENTRIES = (bundle.FILE, *(f"web/desk/{name}.js" for name in DESK))


def test_every_module_belongs_to_a_page_and_is_given_out():
    assert {name for entry in ENTRIES for name in bundle.needed(entry)} == set(MODULES)
    assert set(MODULES) < set(home.files())


def test_a_module_says_that_its_types_are_checked():
    for name in MODULES:
        text = (SOURCE / name).read_text()
        assert text.startswith("// @ts-check\n"), name
        assert not re.search(r"@ts-(ignore|expect-error|nocheck)|eslint-disable", text), name


def test_a_module_shares_nothing_but_what_it_exports():
    """Refuse writes into the global object, and texts that are read as markup or as a program."""
    for name in MODULES:
        text = (SOURCE / name).read_text()
        assert not re.search(r"\b(globalThis|self)\b|window\.\w+ = |\bvar\b", text), name
        assert not re.search(
            r"\b(innerHTML|outerHTML|insertAdjacentHTML|srcdoc|eval|Function)\b|document\.write", text
        ), name
        assert not re.search(r"^export (let|default)", text, re.MULTILINE), name


def test_no_module_is_longer_than_800_lines():
    assert {name: n for name in MODULES if (n := len((SOURCE / name).read_text().splitlines())) > 800} == {}


@pytest.mark.parametrize("entry", ENTRIES)
def test_no_module_imports_itself_in_a_circle(entry):
    order = bundle.needed(entry)
    assert order[-1] == entry
    for place, name in enumerate(order):
        needed = {bundle._resolve(name, given) for _, given in bundle.IMPORT.findall(bundle.text(name))}
        assert needed <= set(order[:place])


def test_modules_of_a_page_that_is_a_file_know_no_server():
    for name in bundle.needed(bundle.FILE):
        assert not name.startswith("serve/")
        assert not re.search(r"\bfetch\(|XMLHttpRequest|EventSource|WebSocket|sendBeacon", bundle.text(name))


# --- one script ---


@pytest.fixture
def script(monkeypatch):
    """What `bundle.script` makes of modules that are given as name -> text; the entry is `main`."""

    def made(**texts: str) -> str:
        for known in (bundle.needed, bundle.script, bundle._exported):
            known.cache_clear()
        monkeypatch.setattr(bundle, "text", lambda name: texts[name.removesuffix(".js")])
        return bundle.script("main.js")

    yield made
    for known in (bundle.needed, bundle.script, bundle._exported):
        known.cache_clear()


def run(text: str, tmp_path: Path) -> str:
    """What node prints when it runs the text as a script that is no module."""
    node = shutil.which("node") or pytest.skip("node is not here; Debian: apt-get install nodejs")
    path = tmp_path / "script.cjs"
    path.write_text(text)
    return subprocess.run([node, path], capture_output=True, text=True, check=True).stdout


def test_modules_as_one_script_do_what_they_do_as_modules(script, tmp_path):
    text = script(
        main='import "./first.js";\nimport { one, two as second, $, Three } from "./b.js";\n'
        'import {\n  field,\n  other,\n} from "./c.js";\n\n'
        "console.log(one(), second, $, new Three().value, field, other);\n",
        b="/** @import { X } from './c.js' */\n/**\n * export const lost = 1;\n * @returns {number}\n */\n"
        'import { counted } from "./c.js";\n'
        "export function one() { return counted(); }\nexport const two = 2;\nexport const $ = 's';\n"
        "export class Three { value = 3; }\nconst field = 'mine';\n",
        c="let count = 0;\nexport const { field, other } = { field: 'f', other: 'o' };\n"
        "export function counted() { count += 1; return `${count} // ${field}`; }\n"
        "export async function never() {}\n",
        first='import { counted } from "./c.js";\nconsole.log("first", counted());\n',
    )
    assert run(text, tmp_path) == "first 1 // f\n2 // f 2 s 3 f o\n"
    assert "lost" not in text
    assert run(f"{text}console.log(typeof count, typeof one, typeof $0);", tmp_path).endswith(
        "undefined undefined undefined\n"
    )


@pytest.mark.parametrize(
    "line",
    [
        "export let a = 1;",
        "export default 1;",
        'export { a } from "./b.js";',
        'export * from "./b.js";',
        "export { a };",
        "export const a = 1, b = 2;",
        'import a from "./b.js";',
        'import * as a from "./b.js";',
        'import { a } from "./b.js"',
        'import { nothing } from "./b.js";',
        'import { a } from "b";',
        'import("./b.js");',
        "const here = import.meta.url;",
    ],
)
def test_what_one_script_cannot_have_is_refused(script, line):
    uses = 'import { a, b } from "./main.js";\n' if "b = 2" in line else ""
    texts = {"main": 'import "./c.js";\n', "b": "export const a = 1;\n", "c": f"{line}\n"}
    if uses:
        texts = {"main": 'import { a, b } from "./c.js";\n', "c": f"{line}\n"}
    with pytest.raises(ValueError, match=r"main\.js|c\.js"):
        script(**texts)


def test_modules_in_a_circle_are_refused(script):
    with pytest.raises(ValueError, match="import each other"):
        script(main='import "./b.js";\n', b='import "./main.js";\n')


# --- their own tests ---


def test_the_table_of_cases_is_what_witness_does():
    """If it is not, and the page is to do the same: docs/develop.md says how the table is made anew."""
    assert page_cases.table() == page_cases.PATH.read_text("utf-8")


def test_the_state_of_the_page():
    """The page's own tests, among them those of the table, in node."""
    node = shutil.which("node") or pytest.skip("node is not here; Debian: apt-get install nodejs")
    files = sorted((ROOT / "tests" / "web").glob("*.test.js"))
    assert files
    result = subprocess.run(
        [node, "--test", "--test-reporter=tap", *files], capture_output=True, text=True, cwd=ROOT
    )
    assert result.returncode == 0, result.stdout[-4000:]
    assert not re.search(r"^# (skipped|todo) [1-9]", result.stdout, re.MULTILINE)
