"""The page in a real browser, with a real mouse: tabs, filters, search, and text that stays text."""

import json

import pytest

from mgs.report.html import PAGE, report_page
from mgs.report.runs import read_runs

from .browser import Browser, find_browser
from .conftest import EVIL, write_run

pytestmark = pytest.mark.skipif(find_browser() is None, reason="no Chromium here")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def open_page(browser, tmp_path):
    """Write the page of some folders and open it; nothing may be asked for or go wrong until the test's end."""

    def open_(folders, **how):
        file = tmp_path / "report.html"
        file.write_text(report_page(read_runs(folders)), encoding="utf-8")
        browser.open(file, **how)
        return browser

    yield open_
    assert browser.complaints() == []
    assert len(browser.requests()) == 1


def visible(browser):
    return browser.run("[...document.querySelectorAll('[role=tabpanel]')].filter(p => p.offsetHeight).map(p => p.id)")


def prefixes(browser):
    return browser.run("[...document.querySelectorAll('#examples .prefix')].map(p => p.textContent)")


def count(browser):
    return browser.run("document.getElementById('count').textContent")


def test_tabs_show_one_part_at_a_time_and_keep_their_address(run, open_page):
    browser = open_page([run])
    assert visible(browser) == ["panel-figures"]
    for name in ("curves", "texts", "settings", "figures"):
        browser.click(f"#tab-{name}")
        assert visible(browser) == [f"panel-{name}"]
        assert browser.run("location.hash") == f"#{name}"
    assert visible(open_page([run], hash="#curves")) == ["panel-curves"]
    assert visible(open_page([run], hash="#nowhere")) == ["panel-figures"]


def test_filters_choose_and_sort(run, open_page):
    browser = open_page([run], hash="#texts")
    assert count(browser) == "30 of 30"
    assert len(prefixes(browser)) == 20
    browser.click("#more")
    assert len(prefixes(browser)) == 30
    browser.click("[data-filter=endless]")
    assert prefixes(browser) == [f"prefix {i} …" for i in range(6)]
    browser.click("[data-filter=repetitive]")
    assert prefixes(browser) == [f"prefix {i} …" for i in range(3)]
    assert browser.run("[...document.querySelectorAll('mark')].map(m => m.textContent)") == ["ab ab"] * 3
    browser.click("[data-filter=changed]")
    assert count(browser) == "15 of 30"  # every other one
    assert "prefix 0 …" not in prefixes(browser)
    browser.click("[data-filter=endless]")
    browser.run("(v => { v.value = 1; v.dispatchEvent(new Event('change')); })(document.getElementById('voice'))")
    assert count(browser) == "0 of 30"  # the run itself ends on all of them


def test_search_looks_into_all_texts(run, open_page):
    browser = open_page([run], hash="#texts")
    browser.click("#search")
    browser.type("BETTER 1")
    assert prefixes(browser) == [f"prefix {i} …" for i in (1, 11, 13, 15, 17, 19)]
    browser.type("7")
    assert prefixes(browser) == ["prefix 17 …"]
    browser.click("[data-filter=endless]")
    assert prefixes(browser) == []


@pytest.mark.parametrize("which", ["one", "several"])
def test_what_models_and_folders_say_stays_text(run, runs, open_page, which):
    browser = open_page([run] if which == "one" else runs, hash="#texts")
    browser.click("#search")
    browser.type("owned")
    assert count(browser) == "1 of 30"
    said = browser.run("[...document.querySelectorAll('#examples .said')].map(p => p.firstChild.textContent)")
    assert EVIL in said
    assert browser.run("document.querySelectorAll('main img, main script, b > b').length") == 0
    assert browser.run("document.title") != "owned"
    assert ("<b>second" in browser.run("document.body.innerText")) == (which == "several")


def test_a_script_that_got_into_the_page_after_all_would_not_run(run, open_page, browser):
    open_page([run])
    browser.run("document.body.append(Object.assign(document.createElement('script'), {text: 'document.title = 1'}))")
    assert browser.run("document.title") == "run"
    assert "Content Security Policy" in str(browser.complaints())
    browser.events.clear()
    open_page([run])


def test_runs_are_compared_side_by_side_and_hidden_at_a_click(runs, open_page):
    browser = open_page(runs, hash="#settings")
    shown = "[...document.querySelectorAll('.settings tbody tr')].filter(row => row.offsetHeight)"
    rows = shown + ".map(row => row.innerText.split('\\t'))"
    assert browser.run(rows)[-1] == ["temperature", "1.0", "10.0"]
    assert ["decoder", "greedy", "greedy"] not in browser.run(rows)
    browser.click("#only")
    assert ["decoder", "greedy", "greedy"] in browser.run(rows)
    browser.click("#tab-curves")
    lines = "[...document.querySelector('.chart svg').querySelectorAll('.line')]"
    drawn = lines + ".filter(line => line.getClientRects().length).length"
    assert browser.run(drawn) == 2
    browser.click("#legend .chip:nth-child(2)")
    assert browser.run(drawn) == 1


def test_a_chart_says_what_is_under_the_pointer(run, open_page):
    browser = open_page([run], hash="#curves")
    box = browser.run(
        "(b => [b.left, b.right, b.top + 50])(document.querySelector('.stage svg').getBoundingClientRect())"
    )
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[1] - 15, y=box[2])
    assert browser.run("document.querySelector('.tip').innerText").split() == ["update", "4", "run", "40"]


def test_runs_of_different_lengths_can_be_drawn_over_their_share(runs, open_page):
    longer = runs[0] / "record.json"
    longer.write_text(json.dumps(json.loads(longer.read_text()) | {"updates": 40}))
    browser = open_page(runs, hash="#curves")
    ends = "[...document.querySelectorAll('.chart .line')].slice(0, 2).map(line => line.getBoundingClientRect().right)"
    first, second = browser.run(ends)
    assert first == second  # both evaluated after update 4
    browser.click("[data-across='share of the run']")
    second, first = sorted(browser.run(ends), reverse=True)
    assert second - first > 200
    assert browser.run("document.querySelector('.chart .unit').textContent") == "share of the run"


def test_a_studys_start_is_a_level_that_can_be_seen_and_hidden(tmp_path, open_page):
    mle = {"method": "mle", "cost": None}
    for name, settings in (("mle", mle), ("mgs", {"method": "mgs", "cost": "lm", "start": mle})):
        record = json.loads((write_run(tmp_path / name) / "record.json").read_text())
        (tmp_path / name / "record.json").write_text(json.dumps(record | {"settings": settings}))
    browser = open_page([tmp_path], hash="#curves")
    assert browser.run("getComputedStyle(document.querySelector('.level')).stroke") == "rgb(42, 111, 219)"
    assert browser.run("document.querySelector('.level').getClientRects().length") == 1
    browser.click("#legend .chip")
    assert browser.run("document.querySelector('.level').getClientRects().length") == 0


def test_runs_of_one_length_need_no_choice(run, open_page):
    assert not open_page([run], hash="#curves").run("!!document.querySelector('.choice')")


@pytest.mark.parametrize("high", [1.0, 1 + 2**-52, 1 + 1e-6, 1e17])
def test_what_hardly_varies_has_ticks_all_the_same(browser, high):
    script = (PAGE / "charts.js").read_text(encoding="utf-8")
    ticks = f"niceTicks(1, {high}, 5), niceTicks(...bounds({{ lines: [{{ points: [[0, 1], [1, {high}]] }}] }}).y, 5)"
    expression = f"{{ {script}; [{ticks}] }}"  # braces: its names end with it
    answer = browser.call("Runtime.evaluate", expression=expression, returnByValue=True, timeout=5000)
    assert all(1 <= len(ticks) <= 11 for ticks in answer["result"]["value"])


def test_each_line_of_figures_has_its_label_however_long_names_are(tmp_path, open_page):
    browser = open_page([write_run(tmp_path / "a-rather-long-name-of-a-run")], width=390, phone=True)
    rows = browser.run("[...document.querySelectorAll('.figures tbody tr')].map(row => row.innerText.split('\\t'))")
    lines = {label: (lm, with_prefix) for label, lm, with_prefix, *_ in rows}
    assert lines["a-rather-long-name-of-a-run"] == ("40.0", "100.0")
    assert lines["since the start"] == ("−50.0%", "−28.6%")
    assert lines["paper: MGS-LM"] == ("", "59.2")
    assert lines["paper’s change"] == ("", "−59.6%")
    place = "(name => { const b = document.querySelector(name).getBoundingClientRect(); return [b.top, b.bottom]; })"
    assert browser.run(f"{place}('.figures .ours td')") == browser.run(f"{place}('.figures .ours th')")


def test_small_numbers_among_settings_are_short_and_whole(tmp_path, open_page):
    browser = open_page([write_run(tmp_path / "run", learning_rate=6.25e-5, noise=0.0)], hash="#settings")
    cells = "[...document.querySelectorAll('.settings tbody tr')].map(row => row.innerText.split('\\t'))"
    assert [row for row in browser.run(cells) if row[0] in ("learning_rate", "noise")] == [
        ["learning_rate", "6.25e-5"],
        ["noise", "0"],
    ]


def test_two_runs_can_be_compared_on_a_phone(tmp_path, open_page):
    folders = [write_run(tmp_path / name, restore_callback_states_from_checkpoint=True) for name in ("a", "b")]
    browser = open_page(folders, hash="#settings", width=390, phone=True)
    browser.click("#only")
    assert browser.run("document.querySelector('.settings thead th:nth-child(3)').getBoundingClientRect().right") <= 390


@pytest.mark.parametrize("hash", ["#figures", "#curves", "#texts", "#settings"])
def test_a_phone_need_not_scroll_sideways(runs, open_page, hash):
    browser = open_page(runs, hash=hash, width=360, height=740, phone=True)
    assert browser.run("document.documentElement.scrollWidth") == 360


def test_colours_follow_the_systems(run, open_page):
    light, dark = (
        open_page([run], dark=dark).run("getComputedStyle(document.body).backgroundColor") for dark in (False, True)
    )
    assert light == "rgb(246, 245, 241)"
    assert dark == "rgb(20, 22, 26)"
