"""The dashboard as a person meets it: in a real browser, with real processes that come and go."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed: pip install playwright")

from dashboard_harness import FLAGS, Stage, chromium, stage
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

if chromium() is None:
    pytest.skip("chromium is not installed: apt-get install chromium", allow_module_level=True)

expect.set_options(timeout=15_000)
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield running
        running.close()


@dataclass(frozen=True)
class Pod:
    """A dashboard of 16 IPUs that several tests use, one after another."""

    url: str
    env: dict[str, str]


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    folder = tmp_path_factory.mktemp("pod")
    env = {
        "HOME": str(folder),
        "SOFTIPU_HOME": str(folder / "state"),
        "SOFTIPU_SYSTEM": "bow-pod16",
    }
    with stage() as result:
        _, url = result.dashboard(**env)
        yield Pod(url, env)


@pytest.fixture
def world() -> Iterator[Stage]:
    with stage() as result:
        yield result


@pytest.fixture
def tolerated() -> list[str]:
    """Parts of console messages that a test provokes on purpose; it adds them itself."""
    return []


@pytest.fixture
def visit(browser: Browser, tolerated: list[str]) -> Iterator[Open]:
    """Open an address in a fresh profile; afterwards, the console must have stayed silent."""
    contexts = []
    complaints: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    def run(url: str, *, wait: bool = True, **options: Any) -> Page:
        options.setdefault("viewport", {"width": 1280, "height": 800})
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", note)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(url)
        if wait:
            expect(page.locator("#connection")).to_have_attribute("data-state", "live")
        return page

    yield run
    for context in contexts:
        context.close()
    assert [one for one in complaints if not any(part in one for part in tolerated)] == []


def cell(page: Page, ipu: int) -> Any:
    return page.get_by_role("button", name=re.compile(rf"^IPU {ipu},"))


def column(page: Page, name: str) -> list[str]:
    return [text.strip() for text in page.locator(f"tbody td.{name}").all_inner_texts()]


def sideways(page: Page) -> int:
    return int(
        page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    )


def test_an_idle_system_is_shown_whole_and_says_what_is_modelled(world: Stage, visit: Open) -> None:
    _, url = world.dashboard(SOFTIPU_SYSTEM="bow-pod4")
    asked: list[str] = []
    page = visit(url)
    page.on("request", lambda request: asked.append(request.url))
    page.reload()
    expect(page.locator(".cell[data-state=free]")).to_have_count(4)
    expect(page.locator("#systems")).to_contain_text("Bow Pod4: 4 × Bow")
    expect(page.locator("#no-processes")).to_be_visible()
    expect(page.locator("[data-chart=power]")).to_contain_text("modelled, not measured")
    expect(page.locator("[data-chart=busy] .now")).to_have_text("0 of 4")
    expect(page.get_by_role("tab")).to_contain_text("ipuof")
    assert asked
    assert all(one.startswith(url) for one in asked), "something was loaded from elsewhere"


def test_processes_come_go_and_die_and_the_page_follows(
    world: Stage, visit: Open, pod: Pod
) -> None:
    page = visit(pod.url)
    expect(page.locator(".cell[data-state=free]")).to_have_count(16)
    polite = world.worker(2, share=0.6, command="trainer", executable="bert", **pod.env)
    doomed = world.worker(1, **pod.env)
    expect(page.locator("tbody tr")).to_have_count(2)
    row = page.locator("tbody tr", has_text="trainer")
    expect(row.locator("td.pid")).to_have_text(str(polite.pid))
    expect(row.locator("td.ipus")).to_have_text("0–1")
    expect(row.locator("td.executable")).to_have_text("bert")
    expect(row.locator("td.memory")).to_have_text("800 MiB")
    expect(row.locator("td.load .text")).to_have_text(re.compile(r"^[5-6]\d %$"))
    expect(row.locator("td.in")).to_have_text(re.compile(r"^[89]\d\.\d MB/s|^1\d\d MB/s$"))
    expect(cell(page, 2)).to_have_attribute("data-state", "held")
    expect(page.locator("[data-chart=busy] .now")).to_have_text("3 of 16")
    expect(page).to_have_title("3/16 IPUs · softipu dashboard")
    doomed.send(signal.SIGKILL)
    expect(cell(page, 2)).to_have_attribute("data-state", "free")
    polite.finish()
    expect(page.locator(".cell[data-state=free]")).to_have_count(16)
    expect(page.locator("#no-processes")).to_be_visible()


def test_details_follow_pointer_focus_and_click(world: Stage, visit: Open, pod: Pod) -> None:
    worker = world.worker(1, command="trainer", executable="resnet", **pod.env)
    page = visit(pod.url)
    details = page.locator("#details")
    cell(page, 0).hover()
    expect(details).to_contain_text("trainer")
    expect(details).to_contain_text(str(worker.pid))
    for text in ("resnet", "1.85 GHz", "Serial", "400 MiB of 897 MiB", "Die temp."):
        expect(details).to_contain_text(text)
    expect(details.locator(".modelled")).to_contain_text("modelled, not measured")
    cell(page, 5).focus()
    expect(details).to_contain_text("IPU 5")
    page.keyboard.press("ArrowRight")
    expect(details).to_contain_text("IPU 6")
    page.keyboard.press("ArrowUp")
    expect(details).to_contain_text("IPU 4")  # each machine is a square: 4 5 above 6 7
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(cell(page, 0)).to_have_attribute("aria-pressed", "true")
    cell(page, 9).hover()
    expect(details).to_contain_text("IPU 0")
    page.keyboard.press("Escape")
    expect(details).to_contain_text("IPU 9")


def test_a_chosen_process_shows_its_ipus(world: Stage, visit: Open, pod: Pod) -> None:
    world.worker(4, command="one", **pod.env)
    world.worker(2, command="two", **pod.env)
    page = visit(pod.url)
    expect(page.locator("tbody tr")).to_have_count(2)
    page.locator("tbody tr", has_text="two").click()
    expect(page.locator(".cell[data-chosen]")).to_have_count(2)
    expect(cell(page, 4)).to_have_attribute("data-chosen", "true")
    page.get_by_role("button", name="Show the IPUs of process A").press("Enter")
    expect(page.locator(".cell[data-chosen]")).to_have_count(4)
    page.keyboard.press("Escape")
    expect(page.locator(".cell[data-chosen]")).to_have_count(0)


def test_the_table_sorts_by_every_column_both_ways(world: Stage, visit: Open) -> None:
    _, url = world.dashboard(SOFTIPU_SYSTEM="bow-pod64")
    world.crowd(12, 2, SOFTIPU_SYSTEM="bow-pod64")
    page = visit(url)
    expect(page.locator("tbody tr")).to_have_count(12)
    head = page.locator("th.pid")
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    pids = [int(text) for text in column(page, "pid")]
    assert pids == sorted(pids, reverse=True)
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    pids = [int(text) for text in column(page, "pid")]
    assert pids == sorted(pids)
    page.locator("th.executable button").click()
    assert column(page, "executable") == [f"model-{n}" for n in range(12)]
    for name in ("tag", "user", "held", "load", "memory", "in", "out", "device", "partition"):
        page.locator(f"th.{name} button").click()
        expect(page.locator(f"th.{name}")).to_have_attribute("aria-sort", re.compile("ending"))
        expect(page.locator("tbody tr")).to_have_count(12)


def test_256_ipus_with_64_processes_stay_readable(world: Stage, visit: Open) -> None:
    world.crowd(64, 4, SOFTIPU_SYSTEM="bow-pod256")
    _, url = world.dashboard("--interval", "0.5", SOFTIPU_SYSTEM="bow-pod256")
    page = visit(url)
    expect(page.locator(".cell[data-state=held]")).to_have_count(256)
    expect(page.locator(".machine")).to_have_count(64)
    expect(page.locator("tbody tr")).to_have_count(64)
    expect(page.locator("[data-chart=busy] .now")).to_have_text("256 of 256")
    assert sideways(page) == 0
    box = cell(page, 255).bounding_box()
    assert box is not None
    assert box["width"] >= 18
    assert box["height"] >= 40
    clipped = page.evaluate(
        "[...document.querySelectorAll('.cell .id')].filter(n => n.scrollWidth > n.clientWidth).length"
    )
    assert clipped == 0, "ids are cut off"
    page.evaluate("document.querySelectorAll('.cell').forEach(n => { n.mine = true })")
    before = page.locator("#about").evaluate(
        "() => document.querySelectorAll('path.line')[1].getAttribute('d')"
    )
    page.wait_for_function(
        "old => document.querySelectorAll('path.line')[1].getAttribute('d') !== old", arg=before
    )
    kept = page.evaluate("[...document.querySelectorAll('.cell')].filter(n => n.mine).length")
    assert kept == 256, "an update made new cells instead of changing the old ones"


def test_a_directory_that_is_not_ours_is_explained_and_recovery_is_seen(
    world: Stage, visit: Open, state: Path
) -> None:
    _, url = world.dashboard()
    page = visit(url)
    banner = page.get_by_role("alert")
    expect(page.locator(".cell[data-state=free]")).to_have_count(16)
    expect(banner).to_be_empty()
    state.mkdir()
    foreign = state / "holiday.jpg"
    foreign.write_bytes(b"not ours")
    expect(page.locator(".problem")).to_have_count(1)
    expect(banner).to_contain_text("SIPU-1303")
    expect(banner).to_contain_text("Cause:")
    expect(banner).to_contain_text("Set SOFTIPU_HOME to a new or empty directory.")
    expect(page.locator(".cell[data-state=unknown]")).to_have_count(16)
    expect(page.locator("#partition")).to_contain_text("as last known")
    foreign.unlink()
    expect(banner).to_be_empty()
    expect(page.locator(".cell[data-state=free]")).to_have_count(16)


def test_an_unknown_system_gives_a_page_with_the_reason(world: Stage, visit: Open) -> None:
    _, url = world.dashboard(SOFTIPU_SYSTEM="pod-of-whales")
    page = visit(url)
    expect(page.get_by_role("alert")).to_contain_text("SIPU-1002")
    expect(page.locator("#partition")).to_contain_text("No partition can be read")
    expect(page.locator("[data-chart=busy] .now")).to_have_text("–")
    expect(page.locator("#no-processes")).to_have_text("Who holds the IPUs cannot be read.")


def test_a_damaged_record_is_explained_and_its_ipu_stays_held(
    world: Stage, visit: Open, state: Path
) -> None:
    _, url = world.dashboard()
    world.worker(1)
    page = visit(url)
    expect(cell(page, 0)).to_have_attribute("data-state", "held")
    [record] = [path for path in (state / "ipus").glob("*.json") if "telemetry" not in path.name]
    record.write_text("{ half a rec")
    expect(page.get_by_role("alert")).to_contain_text("SIPU-1307")
    expect(page.get_by_role("alert")).to_contain_text("IPU 0 (198.19.16.1 IPU# 3)")
    expect(cell(page, 0)).to_have_attribute("data-state", "held")
    expect(cell(page, 0).locator(".tag")).to_have_text("?")


def test_hostile_names_are_text_and_nothing_else(world: Stage, visit: Open, pod: Pod) -> None:
    evil = "<img src=x onerror=window.hacked=1>"
    world.worker(
        1, command=evil, executable=f"</td><script>window.hacked=2</script>{evil}", **pod.env
    )
    page = visit(pod.url)
    expect(page.locator("tbody td.command")).to_have_text(evil)
    cell(page, 0).click()
    expect(page.locator("#details")).to_contain_text(evil)
    assert page.locator("img:not(.mark)").count() == 0
    assert page.locator("body script").count() == 0
    assert page.evaluate("window.hacked") is None


def test_the_page_survives_a_restart_of_the_server(
    world: Stage, visit: Open, tolerated: list[str]
) -> None:
    tolerated.append("net::ERR_")
    server, url = world.dashboard()
    page = visit(url)
    expect(page.locator(".cell")).to_have_count(16)
    assert server.send(signal.SIGTERM) == 0
    expect(page.locator("#connection")).to_contain_text("Connection lost, trying again")
    expect(page.get_by_role("alert")).to_contain_text("does not answer")
    expect(page.locator(".cell")).to_have_count(16)
    port = int(url.rstrip("/").rsplit(":", 1)[1])
    world.dashboard(port=port)
    world.worker(1)
    expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    expect(page.get_by_role("alert")).to_be_empty()
    expect(cell(page, 0)).to_have_attribute("data-state", "held")


def test_a_phone_needs_no_sideways_scrolling(world: Stage, visit: Open) -> None:
    _, url = world.dashboard(SOFTIPU_SYSTEM="bow-pod64")
    world.worker(8, command="a-program-with-a-very-long-name" * 4, SOFTIPU_SYSTEM="bow-pod64")
    page = visit(url, viewport={"width": 360, "height": 800}, has_touch=True)
    expect(page.locator("tbody tr")).to_have_count(1)
    assert sideways(page) == 0
    cell(page, 3).tap()
    expect(page.locator("#details")).to_be_visible()
    assert sideways(page) == 0
    page.get_by_role("button", name="Unpin").tap()
    expect(page.locator("#details")).to_be_hidden()
    for width in (414, 700, 1000):
        page.set_viewport_size({"width": width, "height": 800})
        assert sideways(page) == 0, f"{width} pixels are too few"
    # Plots are drawn for a new width a moment after the page has it.
    page.evaluate(
        "document.querySelectorAll('.plot svg').forEach(s => s.setAttribute('width', 2000))"
    )
    assert sideways(page) == 0


def test_plots_have_axes_units_and_a_read_out(world: Stage, visit: Open, pod: Pod) -> None:
    world.worker(8, **pod.env)
    page = visit(pod.url)
    power = page.locator("[data-chart=power]")
    expect(power.locator(".axis-unit")).to_have_text("kW")
    expect(power.locator("svg")).to_contain_text("−1 min")
    page.wait_for_function(
        "document.querySelector('[data-chart=power] path.line').getAttribute('d').includes('L')"
    )
    plot = power.locator(".plot")
    box = plot.bounding_box()
    assert box is not None
    plot.hover(position={"x": box["width"] - 12, "y": 40})
    expect(power.locator(".readout")).to_have_text(
        re.compile(r"\d\d:\d\d:\d\d\n[\d.]+ k?W all boards")
    )
    expect(page.locator("[data-chart=io] .readout")).to_contain_text("to IPUs")
    page.mouse.move(0, 0)
    expect(power.locator(".readout")).to_be_hidden()
    plot.focus()
    page.keyboard.press("ArrowLeft")
    expect(power.locator(".readout")).to_be_visible()


def test_several_partitions_are_tabs(world: Stage, visit: Open, start: Any) -> None:
    for name, size in (("left", "4"), ("right", "8")):
        made = start(
            "import sys; from softipu.vipu.cli import main; sys.exit(main(sys.argv[1:]))",
            "create", "partition", name, "--size", size, "--reconfigurable",
        )  # fmt: skip
        assert made.wait(20) == 0
    _, url = world.dashboard()
    world.worker(2, IPUOF_VIPU_API_PARTITION_ID="right")
    page = visit(url)
    tabs = page.get_by_role("tab")
    expect(tabs).to_have_count(2)
    expect(tabs.nth(0)).to_contain_text("active")
    expect(page.locator(".cell")).to_have_count(4)
    tabs.nth(0).focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".cell")).to_have_count(8)
    expect(page.locator("#partition")).to_contain_text("not the active partition")
    tabs.nth(0).click()
    page.locator("tbody tr").click()
    expect(tabs.nth(1)).to_have_attribute("aria-selected", "true")
    expect(page.locator(".cell[data-chosen]")).to_have_count(2)
    expect(page.locator("[data-chart=busy] .now")).to_have_text("2 of 12")


def test_the_key_leaves_the_address_and_stays_in_a_cookie_scripts_cannot_read(
    world: Stage, visit: Open, tolerated: list[str]
) -> None:
    tolerated.append("401 (Unauthorized)")
    _, url = world.dashboard("--access-key", "open-sesame")
    page = visit(url)
    assert page.url == url.partition("?")[0]
    assert page.evaluate("document.cookie") == ""
    page.reload()
    expect(page.locator(".cell")).to_have_count(16)
    stranger = visit(url.partition("?")[0], wait=False)
    expect(stranger.locator("body")).to_contain_text("SIPU-1407")


CONTRASTS = """() => {
  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const style = getComputedStyle(document.documentElement);
  const light = (name) => {
    probe.fillStyle = style.getPropertyValue(name);
    probe.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...probe.getImageData(0, 0, 1, 1).data].slice(0, 3).map((v) => {
      v /= 255;
      return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const pairs = [];
  for (let n = 0; n < 8; n += 1) pairs.push(["--on-lease", `--lease-${n}`]);
  for (const ground of ["--page", "--surface", "--sunken"]) {
    pairs.push(["--text", ground], ["--muted", ground]);
  }
  pairs.push(["--text", "--load-tint"], ["--text", "--bad-tint"], ["--bad", "--bad-tint"]);
  return pairs.map(([a, b]) => {
    const [one, two] = [light(a), light(b)].sort((x, y) => y - x);
    return [`${a} on ${b}`, (one + 0.05) / (two + 0.05)];
  });
}"""


def test_texts_have_enough_contrast_in_light_and_dark(visit: Open, pod: Pod) -> None:
    page = visit(pod.url)
    backgrounds = set()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        weak = {name: round(ratio, 2) for name, ratio in page.evaluate(CONTRASTS) if ratio < 4.5}
        assert weak == {}, scheme
        backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(backgrounds) == 2
