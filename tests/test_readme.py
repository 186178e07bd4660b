"""What the README and the docs say holds: the example runs, options exist, links lead somewhere."""

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from mgs.cli.main import COMMANDS
from mgs.experiments.inputs import DataOptions
from mgs.training import MGSConfig

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("results/**/README.md")])


def test_the_python_example_runs(tmp_path, gpt2, tokenizer, sentences):
    """As printed, but for the names of model and folder, the data, and one update instead of an epoch."""
    gpt2.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    code = code.replace('"gpt2"', repr(str(tmp_path / "model")))
    code = code.replace(
        'output_dir="out", max_steps=30', f"output_dir={str(tmp_path / 'out')!r}, max_steps=1, context=3"
    )
    code, found = re.subn(r"train_dataset=\[.*?\]", "train_dataset=sentences", code)
    assert found == 1
    scope = {"sentences": sentences}
    exec(code, scope)
    assert scope["trainer"].state.global_step == 1
    assert (tmp_path / "out" / "metrics.jsonl").read_text().count("\n") == 1


def test_tables_are_what_results_say(tmp_path):
    script = [sys.executable, ROOT / "scripts" / "fill_tables.py"]
    files = [file for file in {*PAGES, *ROOT.glob("results/**/*.md")} if "<!-- table" in file.read_text("utf-8")]
    assert ROOT / "README.md" in files
    subprocess.run([*script, "--check", *files], check=True)
    changed = tmp_path / "README.md"
    changed.write_text(README.replace("| 42.02 |", "| 43.02 |"), encoding="utf-8")
    refused = subprocess.run([*script, "--check", changed], capture_output=True, text=True)
    assert refused.returncode == 1
    assert "not what results say" in refused.stderr
    subprocess.run([*script, changed], check=True)
    assert changed.read_text(encoding="utf-8") == README


def test_options_in_tables_exist():
    known = {f.name for f in (*fields(MGSConfig), *fields(DataOptions))}
    table = re.findall(r"^\| (`--.*?) \|", README, flags=re.MULTILINE)
    options = re.findall(r"--(\w+)", " ".join(table))
    assert len(options) > 5
    assert set(options) <= known


def test_commands_shown_exist():
    shown = set(re.findall(r"^mgs (\w+)", README, flags=re.MULTILINE))
    assert {"train", "evaluate", "generate", "data"} <= shown <= set(COMMANDS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page):
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        file, _, heading = link.partition("#")
        if link.startswith("http"):
            continue
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not heading or heading in anchors(target), link


def anchors(page):
    """What a browser of repositories calls a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_paper_map_names_real_files_and_functions():
    for path, name in re.findall(
        r"`([\w/]+\.py):([\w.]+)`", (ROOT / "docs" / "paper_map.md").read_text(encoding="utf-8")
    ):
        source = (ROOT / "src" / "mgs" / path).read_text(encoding="utf-8")
        assert re.search(rf"(def|class) {name.split('.')[-1]}\b", source), f"{path}:{name}"
    for test in re.findall(r"`(tests/[\w/]+\.py)`", (ROOT / "docs" / "paper_map.md").read_text(encoding="utf-8")):
        assert (ROOT / test).exists(), test
