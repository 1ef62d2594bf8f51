"""A headless Chromium that opens pages from files, and what a test asks a page about."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)

AUDIT = (Path(__file__).parent / "audit.js").read_text()


class Browser:
    """A page in the browser."""

    def __init__(self, driver: Any):
        self.driver = driver

    def open(self, path: Path, *, width: int, theme: str) -> None:
        """Open a file at a width, for somebody who prefers light or dark."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        self.driver.get(path.as_uri())

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def slide(self, name: str, value: int) -> None:
        """Move a slider, as a mouse would."""
        script = (
            "const s = document.getElementById(arguments[0]); s.value = arguments[1];"
            "s.dispatchEvent(new Event('input', {bubbles: true}));"
        )
        self.run(script, name, value)

    def keys(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def click(self, selector: str) -> None:
        from selenium.webdriver.common.by import By

        self.driver.find_element(By.CSS_SELECTOR, selector).click()

    def text(self, selector: str) -> str:
        """What a reader sees there (also in what is folded away)."""
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def number(self, selector: str) -> float:
        return float(self.text(selector).replace("−", "-"))

    def numbers(self, selector: str) -> list[float]:
        found = self.run("return [...document.querySelectorAll(arguments[0])].map(n => n.textContent)", selector)
        return [float(text.replace("−", "-")) for text in found]

    def complaints(self) -> list[str]:
        """What the console says since the last time."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def audit(self) -> dict[str, Any]:
        """Texts with their contrast, what is cut off, and what overlaps."""
        return self.run(AUDIT)


@contextmanager
def browser() -> Iterator[Browser]:
    """Debian's chromium; where there is none the test is skipped, and under CI it fails."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        missing = "chromium and chromium-driver are not installed (apt-get install chromium chromium-driver)"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    folder = tempfile.mkdtemp(prefix="npro-aif-browser-")
    for option in (*OPTIONS, f"--user-data-dir={folder}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=driver)  # this one: selenium then looks for no other
    chrome = webdriver.Chrome(options=options, service=service)
    try:
        yield Browser(chrome)
    finally:
        chrome.quit()
        shutil.rmtree(folder, ignore_errors=True)
