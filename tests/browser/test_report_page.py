"""Reports as a person meets them: opened from disk, in a real browser, at real sizes."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import machine_networks
import pytest

pytest.importorskip("playwright", reason="playwright is not installed: pip install playwright")

from dashboard_harness import FLAGS, chromium
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright
from report_samples import TILES, bert, resnet, small

from softipu import report
from softipu.machine import Settings, estimate
from softipu.report.comparing import call_cycles
from softipu.report.summary import fullest_tile

if chromium() is None:
    pytest.skip("chromium is not installed: apt-get install chromium", allow_module_level=True)

expect.set_options(timeout=30_000)
Open = Callable[..., Page]
HALF = Settings(matmul_partials="float16", convolution_partials="float16")
#: What a page may take to open on a machine that is busy with other things.
PATIENCE = 30.0


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    samples = {"resnet": resnet(), "bert": bert(), "small": small()}
    samples["large"] = small(scale=2.0)
    # The machine model's own, with all their steps and names.
    known = {"accumulation": 64, "replicas": 4}
    convolutions = machine_networks.resnet50(16, True, recomputed_stages=frozenset([0]), **known)
    tight = replace(HALF, available_memory_proportion=0.16)
    samples["real resnet"] = estimate(convolutions, tight, hints=False)
    layers = machine_networks.bert(8, 128, (3, 7, 7, 7), 1024, 16, True, **known)
    samples["real bert"] = estimate(layers, HALF, hints=False)
    found = {
        name: report.write_pages(sample, folder / name)["report.html"]
        for name, sample in samples.items()
    }
    other = replace(bert(seed=2, matmul_partials="float16"), name="halves")
    shorter = replace(other, steps=other.steps[:-7])
    found["compare"] = report.write_comparison(
        bert(), shorter, ("singles", "halves"), folder / "comparison.html"
    )
    return found


@pytest.fixture
def visit(browser: Browser, pages: dict[str, Path]) -> Iterator[Open]:
    """Open a page in a fresh profile; it must ask for nothing else, and the console stay silent."""
    contexts, complaints, requests = [], [], []

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    def run(name: str, *, path: Path | None = None, **options: Any) -> Page:
        options.setdefault("viewport", {"width": 1280, "height": 900})
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", note)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: requests.append(request.url))
        page.goto((path or pages[name]).as_uri())
        expect(page.locator("html[data-ready]")).to_be_attached()
        return page

    yield run
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    assert sum(url.startswith("file:") for url in requests) == len(contexts)


def sideways(page: Page) -> int:
    return int(
        page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    )


def wait_until(page: Page, expression: str) -> None:
    """Playwright's own waiting evaluates texts inside the page, which its policy forbids."""
    deadline = time.monotonic() + PATIENCE
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, expression
        page.wait_for_timeout(100)


def colours_in(page: Page, canvas: str) -> int:
    """How many colours a canvas shows; one or none is a blank canvas."""
    page.locator(canvas).scroll_into_view_if_needed()
    script = """(canvas) => {
      const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
      copy.drawImage(canvas, 0, 0);
      const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
      const found = new Set();
      for (let i = 0; i < data.length; i += 16) found.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
      return found.size;
    }"""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = int(page.locator(canvas).evaluate(script))
        if found > 3 or time.monotonic() > deadline:
            return found
        page.wait_for_timeout(100)


def column(page: Page, name: str) -> list[str]:
    heads = page.locator("#operators-grid th").evaluate_all(
        "all => all.map(one => one.dataset.column)"
    )
    cells = page.locator(
        f"#operators-grid tbody tr[data-number] td:nth-child({heads.index(name) + 1})"
    )
    return [text.strip() for text in cells.all_inner_texts()]


def sort_by(page: Page, name: str) -> None:
    page.locator(f"#operators-grid th[data-column={name}] button").click()


# --- opening -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["resnet", "bert", "compare", "real resnet", "real bert"])
def test_a_page_of_real_size_opens_soon(visit: Open, pages: dict[str, Path], name: str) -> None:
    began = time.monotonic()
    page = visit(name)
    took = time.monotonic() - began
    size = pages[name].stat().st_size
    print(f"{name}: {size / 1e3:.0f} kB, ready {took:.2f} s after the click")
    expect(page.locator("h1")).to_be_visible()
    assert took < PATIENCE


def test_the_figures_of_the_estimate_are_on_the_page(visit: Open) -> None:
    estimate = bert()
    page = visit("bert")
    expect(page).to_have_title("bert-large: softipu report")
    expect(page.locator("h1")).to_have_text("bert-large")
    expect(page.locator("#top")).to_contain_text("Training on 16 × Bow, 4 replicas of 4 IPUs")
    expect(page.locator("#card-throughput .value")).to_have_text(
        f"{estimate.throughput:.0f} samples/s"
    )
    expect(page.locator("#card-call .value")).to_have_text(f"{estimate.seconds:.2f} s")
    expect(page.locator("#card-memory")).to_contain_text("493 of 624 KiB")
    expect(page.locator("#verdict")).to_have_text("✓ Fits in memory")
    expect(page.locator("#warnings")).to_contain_text("IPU 3 has 4 % of its memory left.")
    expect(page.locator("#warnings")).to_contain_text("aten.special_erfcx (2×)")
    expect(page.locator("footer")).to_contain_text("modelled, not measured")
    expect(page.locator("#hints li")).to_have_count(2)
    expect(page.locator("#hints")).to_contain_text("1.21× as fast")


def test_what_does_not_fit_is_said_first(visit: Open) -> None:
    page = visit("large")
    expect(page.locator("#verdict")).to_have_text("✗ Does not fit in memory")
    expect(page.locator("#warnings .worse")).to_contain_text("fullest tile of IPU 1")
    expect(page.locator("#card-memory")).to_contain_text("too much")


def test_options_are_there_when_asked_for(visit: Open) -> None:
    page = visit("small")
    expect(page.locator("#options dl")).not_to_be_visible()
    page.locator("#options summary").click()
    expect(page.locator("#options dl")).to_contain_text("micro batch2")
    expect(page.locator("#options dl")).to_contain_text("matmul partialsfloat32")


def test_names_stay_names_whatever_is_in_them(visit: Open, tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
    steps = tuple(replace(step, op=evil, path=evil, kind=evil, plan=evil) for step in small().steps)
    estimate = replace(small(), name=evil, steps=steps, warnings=(evil,))
    page = visit("", path=report.write_pages(estimate, tmp_path)["report.html"])
    expect(page.locator("h1")).to_have_text(evil)
    assert page.locator("img").count() == 0
    page.locator("#operators-grid tbody tr[data-number]").first.click()
    expect(page.locator("#chosen-row h3")).to_have_text(evil)


def test_an_estimate_without_steps_still_has_a_page(visit: Open, tmp_path: Path) -> None:
    estimate = replace(small(), steps=(), memory=(), hints=(), warnings=(), unknown={})
    page = visit("", path=report.write_pages(estimate, tmp_path)["report.html"])
    expect(page.locator("h1")).to_have_text("small")
    expect(page.locator("nav a")).to_have_text(["Summary", "What if"])


@pytest.mark.parametrize(
    ("tried", "said"),
    [(False, "No changes were tried"), (True, "none makes the program clearly better")],
)
def test_a_page_without_hints_says_why(visit: Open, tmp_path: Path, tried: bool, said: str) -> None:
    estimate = replace(small(), hints=(), hints_tried=tried)
    page = visit("", path=report.write_pages(estimate, tmp_path)["report.html"])
    expect(page.locator("#hints")).to_contain_text(said)


# --- memory and liveness -----------------------------------------------------------------------


def test_memory_shows_the_tightest_ipu_first_and_others_on_request(visit: Open) -> None:
    page = visit("bert")
    memory = bert().memory
    expect(page.locator("#memory input:checked")).to_have_value("3")
    expect(page.locator("#categories tfoot")).to_contain_text(f"{memory[3].used / 1024:.0f} KiB")
    assert colours_in(page, "#memory canvas") > 3
    page.locator("#memory label", has_text="IPU 1").click()
    expect(page.locator("#categories tfoot")).to_contain_text(f"{memory[1].used / 1024:.0f} KiB")
    expect(page.locator("#categories tbody tr")).to_have_count(len(memory[1].fullest_tile))


def test_pointing_at_a_tile_says_what_it_holds(visit: Open) -> None:
    page = visit("resnet")
    canvas = page.locator("#memory canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    tile = fullest_tile(resnet().memory[0])
    inner = box["width"] - 68 - 14
    canvas.hover(position={"x": 68 + inner * (tile + 8) / TILES, "y": 120})
    expect(page.locator("#tip")).to_contain_text("Tiles 592 to 607 (the fullest)")
    expect(page.locator("#tip")).to_contain_text(f"{resnet().memory[0].used / 1024:.0f} KiB")
    canvas.hover(position={"x": 68 + inner * 8 / TILES, "y": 120})
    expect(page.locator("#tip")).to_contain_text("Tiles 0 to 15 (assumed)")
    expect(page.locator("#memory .head")).to_contain_text("which tile is the fullest, is assumed")
    page.locator("h1").hover()
    expect(page.locator("#tip")).to_be_hidden()


def test_liveness_can_be_walked_with_the_keyboard(visit: Open) -> None:
    page = visit("small")
    assert colours_in(page, "#liveness canvas") > 3
    page.locator("#liveness label", has_text="IPU 0").click()
    page.locator("#liveness canvas").focus()
    page.keyboard.press("ArrowRight")
    mine = [step for step in small().steps if step.ipu == 0]
    expect(page.locator("#tip b").first).to_have_text(mine[1].op)
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tip b").first).to_have_text(mine[2].op)
    expect(page.locator("#tip")).to_contain_text("on the fullest tile")


# --- timeline and pipeline ---------------------------------------------------------------------


def test_the_timeline_zooms_from_a_call_down_to_a_step(visit: Open) -> None:
    page = visit("bert")
    assert colours_in(page, "#timeline canvas") > 5
    canvas = page.locator("#timeline canvas")
    canvas.focus()
    for _ in range(40):
        page.keyboard.press("+")
    for _ in range(4):
        page.keyboard.press("ArrowLeft")
    canvas.click(position={"x": 640, "y": 45})
    expect(page.locator("#chosen-step h3")).to_have_text(re.compile(r"layer\.\d+|host|gradients"))
    expect(page.locator("#chosen-step")).to_contain_text("stage 0, IPU 0")
    page.keyboard.press("0")
    canvas.click(position={"x": 62, "y": 45})
    expect(page.locator("#chosen-step h3")).to_have_text("host input")
    expect(page.locator("#chosen-step")).to_contain_text("forward of micro-batch 0, stage 0")


def test_the_timeline_moves_with_the_pointer_and_lets_the_page_scroll(visit: Open) -> None:
    page = visit("small")
    canvas = page.locator("#timeline canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    x, y = box["x"] + 500, box["y"] + 40
    page.mouse.move(x, y)
    expect(page.locator("#tip")).to_be_visible()
    before = page.evaluate("scrollY")
    page.mouse.wheel(0, 200)
    wait_until(page, f"scrollY !== {before}")
    # With Ctrl the wheel zooms, and the page stays where it is.
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 62, box["y"] + 45)
    page.keyboard.down("Control")
    for _ in range(3):
        page.mouse.wheel(0, -400)
    page.keyboard.up("Control")
    canvas.click(position={"x": 900, "y": 45})
    expect(page.locator("#chosen-step h3")).to_have_text("host input")
    # Dragging to the left shows what comes later.
    page.mouse.move(box["x"] + 900, box["y"] + 45)
    page.mouse.down()
    page.mouse.move(box["x"] + 100, box["y"] + 45, steps=5)
    page.mouse.up()
    canvas.click(position={"x": 900, "y": 45})
    expect(page.locator("#chosen-step h3")).not_to_have_text("host input")


def test_keys_reach_the_steps_of_every_ipu(visit: Open) -> None:
    page = visit("small")
    canvas = page.locator("#timeline canvas")
    canvas.focus()
    for _ in range(3):
        page.keyboard.press("+")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#chosen-step")).to_contain_text("IPU 0")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#chosen-step")).to_contain_text("IPU 1")


def test_what_is_out_of_sight_is_drawn_a_little_later(visit: Open) -> None:
    """So that a picture of the whole page has no holes."""
    page = visit("bert")
    script = """(canvas) => {
      const copy = new OffscreenCanvas(8, 8).getContext("2d", { willReadFrequently: true });
      copy.drawImage(canvas, 0, 0, 8, 8);
      return copy.getImageData(0, 0, 8, 8).data.some((value) => value > 0);
    }"""
    for name in ("memory", "liveness", "timeline"):
        wait_until(page, f"({script})(document.querySelector('#{name} canvas'))")
    assert page.evaluate("scrollY") == 0


def test_buttons_zoom_as_the_keys_do(visit: Open) -> None:
    page = visit("small")
    page.locator("#timeline canvas").scroll_into_view_if_needed()
    for _ in range(12):
        page.locator("#timeline").get_by_role("button", name="Zoom in").click()
    page.locator("#timeline canvas").click(position={"x": 640, "y": 45})
    inside = page.locator("#chosen-step").inner_text()
    page.locator("#timeline").get_by_role("button", name="Show everything").click()
    page.locator("#timeline canvas").click(position={"x": 64, "y": 45})
    expect(page.locator("#chosen-step")).not_to_have_text(inside)


def test_a_pipeline_is_pictured_turn_by_turn(visit: Open) -> None:
    page = visit("bert")
    picture = page.locator("#pipeline svg")
    for text in ("F0", "B0", "F127", "B127", "update"):
        expect(picture.locator("text", has_text=re.compile(f"^{text}$")).first).to_be_attached()
    expect(page.locator("#pipeline")).to_contain_text("128 micro-batches take 134 turns")
    expect(page.locator("#balance .bar")).to_have_count(4)
    expect(page.locator("#balance")).to_contain_text("sets the pace")


def test_an_interleaved_pipeline_waits_for_the_longest_half_of_a_turn(
    visit: Open, tmp_path: Path
) -> None:
    made = small(pipeline_schedule="interleaved")
    page = visit("", path=report.write_pages(made, tmp_path)["report.html"])
    expect(page.locator("#pipeline")).to_contain_text("a forward stage, then a backward stage")
    expect(page.locator("#balance .bar", has_text="waits")).to_have_count(2)


def test_one_ipu_has_no_pipeline(visit: Open) -> None:
    page = visit("resnet")
    expect(page.locator("#pipeline")).to_have_count(0)
    expect(page.locator("nav")).not_to_contain_text("Pipeline")


# --- the table ---------------------------------------------------------------------------------


def test_ten_thousand_rows_scroll_and_only_those_in_sight_exist(visit: Open) -> None:
    page = visit("bert")
    count = len(bert().steps)
    grid = page.locator("#operators-grid")
    grid.scroll_into_view_if_needed()
    expect(page.locator("#operators-count")).to_contain_text(f"{count:,} of {count:,} steps, 100 %")
    assert page.locator("#operators-grid tbody tr").count() < 120
    script = """async (grid) => {
      const times = [];
      for (let k = 0; k < 60; k += 1) {
        const began = performance.now();
        grid.scrollTop += 150;
        await new Promise(requestAnimationFrame);
        times.push(performance.now() - began);
      }
      times.sort((a, b) => a - b);
      return [times[30], times[59]];
    }"""
    middle, worst = grid.evaluate(script)
    print(f"frames while scrolling: median {middle:.0f} ms, worst {worst:.0f} ms")
    assert middle < 1000
    grid.evaluate("grid => { grid.scrollTop = grid.scrollHeight; }")
    expect(page.locator(f"#operators-grid tr[data-number='{count - 1}']")).to_be_visible()
    height = grid.evaluate("grid => grid.scrollHeight")
    assert height == pytest.approx(count * 30 + 33, abs=5)


def test_sorting_puts_the_largest_first_then_last(visit: Open) -> None:
    page = visit("resnet")
    steps = resnet().steps
    by_cycles = sorted((step.cycles.total for step in steps), reverse=True)

    def shown() -> list[int]:
        return [int(text.replace(",", "")) for text in column(page, "cycles")[:10]]

    assert shown() == pytest.approx(by_cycles[:10], abs=1)
    sort_by(page, "cycles")
    head = page.locator("#operators-grid th[data-column=cycles]")
    expect(head).to_have_attribute("aria-sort", "ascending")
    assert shown() == pytest.approx(by_cycles[:-11:-1], abs=1)
    sort_by(page, "op")
    assert column(page, "op")[:5] == sorted(step.op for step in steps)[:5]
    sort_by(page, "live")
    most = max(step.live_bytes for step in steps)
    assert column(page, "live")[0] == f"{most / 1024:.0f} KiB"


def test_searching_finds_words_and_columns(visit: Open) -> None:
    page = visit("bert")
    steps = bert().steps
    search = page.locator("#operators-search")

    def found(text: str) -> int:
        before = page.locator("#operators-count").inner_text()
        search.fill(text)
        expect(page.locator("#operators-count")).not_to_have_text(before)
        return int(page.locator("#operators-count").inner_text().split(" of ")[0].replace(",", ""))

    assert found("kind:softmax") == sum(step.kind == "softmax" for step in steps)
    both = sum("layer.41." in step.op and step.phase == "backward" for step in steps)
    assert found("LAYER.41. phase:backward") == both
    assert found("nothing at all") == 0
    expect(page.locator("#operators-grid .empty")).to_have_text("Nothing matches.")
    assert found("") == len(steps)


def test_filters_and_sums_agree_with_the_estimate(visit: Open) -> None:
    page = visit("bert")
    estimate = bert()
    page.get_by_label("Phase").select_option("backward")
    page.get_by_label("IPU", exact=True).select_option("2")
    mine = [s for s in estimate.steps if s.phase == "backward" and s.ipu == 2]
    expect(page.locator("#operators-count")).to_contain_text(f"{len(mine):,} of")
    page.get_by_label("Sum by").select_option("kind")
    counts = Counter(step.kind for step in mine)
    assert dict(zip(column(page, "name"), column(page, "steps"), strict=True)) == {
        kind: f"{number:,}" for kind, number in counts.items()
    }
    page.get_by_label("Phase").select_option("")
    page.get_by_label("IPU", exact=True).select_option("")
    page.get_by_label("Sum by").select_option("ipu")
    cycles = call_cycles(estimate)
    for name, text in zip(column(page, "name"), column(page, "cycles"), strict=True):
        ipu = int(name.removeprefix("IPU "))
        whole = sum(c for c, step in zip(cycles, estimate.steps, strict=True) if step.ipu == ipu)
        assert int(text.replace(",", "")) == pytest.approx(whole, rel=1e-6)


def test_the_table_works_with_keys_alone(visit: Open) -> None:
    page = visit("resnet")
    grid = page.locator("#operators-grid")
    grid.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(grid.locator("tr[aria-selected=true]")).to_have_attribute("data-number", "1")
    ordered = sorted(resnet().steps, key=lambda step: -round(step.cycles.total, 1))
    expect(page.locator("#chosen-row h3")).to_have_text(ordered[1].op)
    expect(page.locator("#chosen-row")).to_contain_text(ordered[1].plan)
    page.keyboard.press("End")
    last = str(len(ordered) - 1)
    expect(grid.locator("tr[aria-selected=true]")).to_have_attribute("data-number", last)
    expect(grid.locator("tr[aria-selected=true]")).to_be_in_viewport()
    page.keyboard.press("Home")
    expect(page.locator("#chosen-row h3")).to_have_text(ordered[0].op)


def test_everything_that_acts_has_a_name_and_can_be_reached(visit: Open) -> None:
    page = visit("small")
    nameless = page.evaluate("""() => [...document.querySelectorAll("button, a, input, select, canvas, [tabindex='0']")]
      .filter((node) => !(node.textContent.trim() || node.getAttribute("aria-label") || node.labels?.length
        || node.querySelector("[aria-label]")))
      .map((node) => node.outerHTML)""")
    assert nameless == []
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()


# --- looks -------------------------------------------------------------------------------------


def test_light_and_dark_follow_the_system_and_the_button(visit: Open) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = visit("small", color_scheme="light")
    dark = visit("small", color_scheme="dark")
    bright, dim = light.evaluate(ground), dark.evaluate(ground)
    assert bright != dim
    button = dark.locator("#theme")
    button.click()
    expect(button).to_have_text("Theme: light")
    assert dark.evaluate(ground) == bright
    button.click()
    assert dark.evaluate(ground) == dim
    assert colours_in(dark, "#memory canvas") > 3


@pytest.mark.parametrize("name", ["bert", "compare"])
def test_a_phone_shows_all_of_it_without_scrolling_sideways(visit: Open, name: str) -> None:
    page = visit(name, viewport={"width": 360, "height": 740}, has_touch=True)
    assert sideways(page) == 0
    page.locator("#operators-grid").scroll_into_view_if_needed()
    page.locator("#operators-grid tbody tr[data-number]").first.tap()
    expect(page.locator("#chosen-row h3").first).to_be_visible()
    assert sideways(page) == 0


def test_links_lead_to_their_sections(visit: Open) -> None:
    page = visit("bert")
    links = page.locator("nav a")
    expect(links).to_have_text(
        ["Summary", "Memory", "Liveness", "Timeline", "Pipeline", "Operators", "What if"]
    )
    links.nth(3).click()
    expect(page.locator("#timeline h2")).to_be_in_viewport()
    expect(links.nth(3)).to_have_attribute("aria-current", "true")


# --- comparing ---------------------------------------------------------------------------------


def test_two_reports_are_shown_side_by_side_with_their_differences(visit: Open) -> None:
    page = visit("compare")
    expect(page.locator("h1")).to_have_text("singles and halves")
    row = page.locator("#figures tbody tr", has_text="Throughput")
    one, two = bert().throughput, bert(seed=2).throughput
    expect(row).to_contain_text(f"{one:.0f} samples/s")
    expect(row).to_contain_text(f"{two:.0f} samples/s")
    expect(row.locator("td").last).to_have_text(re.compile("better" if two > one else "worse"))
    expect(page.locator("#differences")).to_contain_text("matmul partials")
    expect(page.locator("#memory table")).to_have_count(4)
    count = len(bert().steps)
    expect(page.locator("#operators .head")).to_contain_text(
        f"{count - 7:,} steps in both, 7 only in singles, 0 only in halves"
    )


def test_the_steps_of_two_reports_are_compared_one_by_one(visit: Open) -> None:
    page = visit("compare")
    page.get_by_label("Which steps").select_option("one")
    expect(page.locator("#operators-count")).to_have_text(f"7 of {len(bert().steps):,} steps")
    assert set(column(page, "change")) == {"gone"}
    assert set(column(page, "b")) == {"–"}
    page.get_by_label("Which steps").select_option("")
    page.locator("#operators-search").fill("kind:softmax phase:forward")
    expect(page.locator("#operators-count")).to_have_text(re.compile("^416 of"))
    sort_by(page, "difference")
    largest = column(page, "difference")[0]
    assert largest.startswith("+")
    sort_by(page, "difference")
    assert column(page, "difference")[0].startswith("−")
    page.locator("#operators-grid tbody tr[data-number]").first.click()
    expect(page.locator("#chosen-row h3")).to_have_count(3)
