"""The viewer's page in a real browser: its numbers are the recording's, and all of it can be reached and read."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpyro.handlers import seed, trace
from selenium.webdriver.common.keys import Keys

import npro_aif as aif
from npro_aif.analysis.recording import Recording, record_episode
from npro_aif.analysis.view.data import page_data
from npro_aif.analysis.view.drawing import Drawing, Shape, Thing, Tile
from npro_aif.analysis.view.page import make_page
from npro_aif.analysis.view.plans import policy_mass
from npro_aif.analysis.view.worlds import DRAWINGS, drawing_of
from npro_aif.envs import TMaze
from npro_aif.models import tmaze
from npro_aif.program.signature import Signature, Site
from npro_aif.sites import ROLE
from tests.analysis.browser import Browser, browser
from tests.analysis.conftest import quickly

CLOSE = 6e-4  # half of the third digit, and what rounding twice adds
LOOKS = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]


@pytest.fixture(scope="session")
def told_recording() -> Recording:
    """The T-maze with a memory, by F_planning: its plans are contingent."""

    def model(belief: Any, horizon: Any = 4) -> None:
        tmaze.tmaze(belief, horizon, memory="told")

    planner = aif.Planner(model, objective=aif.Planning(), solver=aif.CoordinateSolver(max_sweeps=2))
    with quickly():
        return record_episode(TMaze(), aif.Agent(planner, tmaze.initial_belief(), max_steps=4), seed=0)


@pytest.fixture(scope="session")
def planning_recording() -> Recording:
    """The same maze without it, by F_planning."""
    planner = aif.Planner(tmaze.tmaze, objective=aif.Planning(), solver=aif.CoordinateSolver(max_sweeps=3))
    with quickly():
        return record_episode(TMaze(), aif.Agent(planner, tmaze.initial_belief(), max_steps=4), seed=0)


@pytest.fixture(scope="session")
def page(recording: Recording, planning_recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The T-maze's page with two objectives."""
    with quickly():
        path = tmp_path_factory.mktemp("view") / "tmaze.html"
        return recording.to_html(path, {planning_recording.objective: planning_recording})


@pytest.fixture(scope="session")
def chrome() -> Iterator[Browser]:
    with browser() as found:
        yield found


# --- In the browser ---


def check_numbers(
    chrome: Browser, recording: Recording, steps: tuple[int, ...], run: int = 0, *, costs: bool = True
) -> None:
    """Belief, q(u_1), costs and the terms of F, read out of the page, are those of the recording's own plans."""
    article = f"article:nth-of-type({run + 1}) "
    for step in steps:
        chrome.slide("steps", step)
        plan = recording.plans[step]
        for u, probability in enumerate(np.asarray(plan.control[0])):
            assert chrome.number(f'{article}[data-q="{u}"]') == pytest.approx(float(probability), abs=CLOSE)
        for name, value in plan.terms.items():
            assert chrome.number(f'{article}[data-term="{name}"]') == pytest.approx(float(value), abs=CLOSE)
        assert chrome.number(f'{article}[data-term="F"]') == pytest.approx(float(plan.free_energy[-1]), abs=CLOSE)
        for u, cost in enumerate(np.asarray(plan.control_cost) if costs else ()):
            assert chrome.number(f'{article}[data-cost="{u}"]') == pytest.approx(float(cost), abs=CLOSE)
            parts = chrome.numbers(f'{article}[data-part$=" {u}"]')
            assert sum(parts) == pytest.approx(float(cost), abs=CLOSE * len(parts))
        for site in plan.signature.parameter:
            believed = np.asarray(plan.belief.parameter).reshape([s.size for s in plan.signature.parameter])
            axis = plan.signature.parameter.index(site)
            marginal = believed.sum(tuple(i for i in range(believed.ndim) if i != axis))
            for value in np.argsort(-marginal, kind="stable")[:3]:
                if marginal[value] > CLOSE:
                    shown = chrome.numbers(f'{article}[data-site="{site.name}"]')
                    assert np.abs(np.array(shown) - marginal[value]).min() < CLOSE


def test_the_numbers_are_those_of_the_recording(chrome: Browser, page: Path, recording: Recording) -> None:
    chrome.open(page, width=1280, theme="light")
    check_numbers(chrome, recording, (0, 1, 2))
    chrome.slide("steps", 1)
    assert chrome.text("[data-done]") == "North"
    assert chrome.numbers('article:first-of-type [data-site="theta"]') == [1.0]  # the cue has told it
    assert chrome.number('article:first-of-type [data-entropy="parameter"]') == 0.0
    assert chrome.complaints() == []


def test_sliders_buttons_and_keys(chrome: Browser, page: Path, recording: Recording) -> None:
    chrome.open(page, width=1280, theme="light")
    assert "T-maze" in chrome.text("h1")
    assert chrome.text("#steps-out") == "0 of 4"
    chrome.click("button[aria-label='One step on']")
    assert chrome.text("#steps-out") == "1 of 4"
    chrome.run("document.activeElement.blur()")
    chrome.keys(Keys.ARROW_RIGHT)
    assert chrome.text("#steps-out") == "2 of 4"
    chrome.keys(Keys.HOME, Keys.ARROW_UP, Keys.ARROW_UP)
    assert (chrome.text("#steps-out"), chrome.text("#ahead-out")) == ("0 of 4", "2 of 4")
    probs = np.asarray(recording.plans[0].control[2])
    said = chrome.text("article:first-of-type .future > p")
    assert said.startswith("In 2 steps: does ")
    assert f"{probs.max():.3f}" in said
    chrome.slide("ahead", 4)
    assert "the plan ends here" in chrome.text("article:first-of-type .future > p")
    chrome.keys(Keys.END)
    assert "the episode is over" in chrome.text("article:first-of-type .now").lower()
    chrome.keys(Keys.SPACE)  # plays from the start again
    assert chrome.text("button.main") == "Pause"
    chrome.keys(Keys.SPACE)
    assert chrome.text("button.main") == "Play"
    chrome.click("[data-bars]")
    assert chrome.text("[data-bars]") == "Show in total"
    chrome.click("button[aria-label='Switch between light and dark']")
    assert chrome.run("return document.documentElement.dataset.theme") == "dark"
    assert chrome.complaints() == []


def test_objectives_are_switched(chrome: Browser, page: Path, planning_recording: Recording) -> None:
    chrome.open(page, width=1280, theme="light")
    shown = (
        "return [...document.querySelectorAll('article')].filter(n => n.checkVisibility())"
        ".map(n => n.querySelector('h2').textContent)"
    )
    assert chrome.run(shown) == ["F_active", "F_planning"]
    chrome.click("input[name=shown][value='1']")
    assert chrome.run(shown) == ["F_planning"]
    check_numbers(chrome, planning_recording, (0,), run=1, costs=False)
    chrome.click("input[name=shown][value='0']")
    assert chrome.run(shown) == ["F_active"]
    assert chrome.complaints() == []


def check_looks(chrome: Browser, note: object) -> None:
    """No sideways scrolling, nothing cut off, nothing over something else, and every word can be read."""
    found = chrome.audit()
    assert found["width"] <= found["room"], note
    assert found["cut"] == [], note
    assert found["overlaps"] == [], note
    assert len(found["texts"]) > 40
    faint = [text for text in found["texts"] if text["contrast"] < 4.5]
    assert faint == [], note


@pytest.mark.parametrize(("width", "theme"), LOOKS)
def test_it_can_be_read(chrome: Browser, page: Path, width: int, theme: str) -> None:
    chrome.open(page, width=width, theme=theme)
    assert chrome.run("return document.documentElement.dataset.theme") == theme
    for step, ahead in ((0, 1), (1, 0), (4, 0)):
        chrome.slide("steps", step)
        chrome.slide("ahead", ahead)
        check_looks(chrome, (width, theme, step))
    chrome.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    chrome.slide("steps", 0)
    check_looks(chrome, (width, theme, "all open"))
    nameless = chrome.run(
        "return [...document.querySelectorAll('button, input, svg[role=img]')]"
        ".filter(n => !(n.getAttribute('aria-label') || n.textContent.trim() || (n.labels && n.labels.length)))"
        ".map(n => n.outerHTML)"
    )
    assert nameless == []
    assert chrome.complaints() == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_world_of_ones_own_has_tables_and_its_tree(
    chrome: Browser, told_recording: Recording, tmp_path: Path, theme: str
) -> None:
    """The model is a function of the test's own, which no drawing is known of."""
    with quickly():
        path = told_recording.to_html(tmp_path / "own.html", title="A maze of one's own <b>&</script>")
    chrome.open(path, width=390, theme=theme)
    assert chrome.text("h1") == "A maze of one's own <b>&</script>"
    check_looks(chrome, theme)
    tree = chrome.text(".tree")
    for words in ("told nothing → South", "told left → North"):
        assert words in tree
    check_numbers(chrome, told_recording, (0, 1), costs=False)
    assert chrome.complaints() == []


@pytest.mark.slow
def test_the_programs_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs" / "viewer.md").read_text()
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(code, names)
    assert (tmp_path / "tmaze.html").read_text().count("F_planning") > 0
    assert names["drawing"].bounds == (-0.5, -0.5, 3.0, 1.0)


@pytest.mark.slow
def test_doorkey(chrome: Browser, tmp_path: Path) -> None:
    """The largest page: plans of a whole grid, whose costs are split into terms."""
    from npro_aif.experiments.agents import vfe_agent
    from npro_aif.experiments.tasks import Settings, make_task

    task = make_task("doorkey")
    recording = record_episode(task.environment(), vfe_agent(task, Settings(solver="coordinate", seed=1000)), 1000)
    path = recording.to_html(tmp_path / "doorkey.html")
    assert path.stat().st_size < 5e6
    for width, theme in LOOKS:
        chrome.open(path, width=width, theme=theme)
        for step, ahead in ((0, 3), (2, 6), (recording.episode.steps, 0)):
            chrome.slide("steps", step)
            chrome.slide("ahead", ahead)
            check_looks(chrome, (width, theme, step))
    check_numbers(chrome, recording, (0, 1, 5))
    assert chrome.complaints() == []


def test_a_small_doorkey(chrome: Browser, doorkey_recording: Recording, tmp_path: Path) -> None:
    with quickly():
        path = doorkey_recording.to_html(tmp_path / "doorkey.html")
    chrome.open(path, width=390, theme="dark")
    check_numbers(chrome, doorkey_recording, (0, 1))
    check_looks(chrome, "doorkey")
    ghosts = chrome.run(
        "return [...document.querySelectorAll('.part:nth-child(2) [data-thing=key]')].map(n => n.outerHTML)"
    )
    plan = doorkey_recording.plans[1]
    assert len(ghosts) == int((np.asarray(aif.Plan.marginal(plan, "key")) > 1e-5).sum())
    assert chrome.complaints() == []


# --- Without it ---


def test_the_page_loads_nothing(page: Path) -> None:
    text = page.read_text()
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!data:)[^"']+|url\(|@import|https?://(?!www\.w3\.org)""", text)


def test_flows_are_the_plans_own(recording: Recording, told_recording: Recording) -> None:
    """q(x_{t-1}, u_t) sums to the plan's marginals, with and without a memory."""
    for plan in (recording.plans[0], told_recording.plans[0]):
        mass = policy_mass(plan)
        np.testing.assert_allclose(mass.sum(1), plan.control, atol=1e-6)
        np.testing.assert_allclose(mass.sum(2), np.asarray(plan.state)[:-1], atol=1e-6)


@pytest.mark.parametrize("model", list(DRAWINGS), ids=lambda model: model.__name__)
def test_every_drawing_fits_its_world(model: Any) -> None:
    """By the sites that plain NumPyro meets in one step of the world."""
    belief = importlib.import_module(model.__module__).initial_belief()
    sites: dict[str, list[Site]] = {"parameter": [], "state": [], "control": []}
    for name, site in trace(seed(model, 0)).get_trace(belief, horizon=1).items():
        role = site.get("infer", {}).get(ROLE)
        if role is not None and role.kind in sites and name != f"{role.site}_0":
            size = site["fn"].enumerate_support(expand=False).size
            sites[role.kind].append(Site(role.site, size, role.labels, role.hidden))
    found = {kind: tuple(each) for kind, each in sites.items()}
    signature = Signature(**found, observation=(), sensor=(), preference=())
    assert (signature.num_parameters, signature.num_states) == belief.state.shape
    drawing = drawing_of(model)
    assert drawing is not None
    drawing.check(signature)
    assert {tuple(place) for place in drawing.places} <= {(tile.x, tile.y) for tile in drawing.tiles}


def test_a_drawing_of_ones_own_and_what_is_refused(recording: Recording) -> None:
    places = np.arange(10.0).reshape(5, 2)
    line = Drawing(
        title="A line",
        sites=("x",),
        places=places,
        tiles=tuple(Tile(*place) for place in places),
        target=np.full((5, 4), -1),
        things=(Thing("prize", Shape("M0 0H.2V.2Z", "reward"), np.eye(2, 5, dtype=bool)),),
    )
    with quickly():
        data = page_data({"one": recording}, title=None, drawing=line, depth=2)
    step = data["runs"][0]["steps"][0]
    assert step["belief"]["things"] == [[0, 0.5, 1, 0.5]]
    assert data["runs"][0]["truth"][0]["place"] == tmaze.START
    assert "A line" in make_page(data)
    with pytest.raises(ValueError, match="drawing: found the site 'y', expected a state: x"):
        page_data({"one": recording}, title=None, drawing=Drawing("", ("y",), places, (), line.target), depth=2)
    with pytest.raises(ValueError, match=r"drawing, target: found the shape \(5, 3\), expected \(5, 4\)"):
        page_data({"one": recording}, title=None, drawing=Drawing("", ("x",), places, (), np.zeros((5, 3))), depth=2)
    with pytest.raises(ValueError, match="colour: found 'pink'"):
        Shape("", "pink")
    with pytest.raises(ValueError, match="recording 'one': found no plans"):
        page_data({"one": recording._replace(plans=())}, title=None, drawing=None, depth=2)
