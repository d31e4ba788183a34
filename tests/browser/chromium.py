"""A headless Chromium by its command line: what a page comes to, what it says on its console, how it looks."""

import html
import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

_AROUND = """<!DOCTYPE html><html style="color-scheme: light dark"><head><meta charset="utf-8"></head><body>{frames}<script>
function probed(frame) {{
  const page = frame.contentWindow, root = page.document.documentElement, all = what => [...page.document.querySelectorAll(what)];
  const outside = all("body *").filter(one => {{
    const box = one.getBoundingClientRect();
    return box.width > 0 && (box.right > page.innerWidth + 1 || box.left < -1) && !one.closest(".scroll, .code");
  }});
  const font_px = one => {{
    const svg = one.ownerSVGElement, wide = svg.getBoundingClientRect().width;
    return wide ? parseFloat(page.getComputedStyle(one).fontSize) * wide / svg.viewBox.baseVal.width : 99;
  }};
  return {{
    inner: page.innerWidth, wide: root.scrollWidth, high: root.scrollHeight,
    outside: outside.slice(0, 5).map(one => one.tagName + " " + one.textContent.slice(0, 60)),
    resources: page.performance.getEntriesByType("resource").map(one => one.name),
    ground: page.getComputedStyle(page.document.body).backgroundColor, ink: page.getComputedStyle(page.document.body).color,
    figures: all("svg.figure").length,
    shown: all("svg.figure").filter(one => one.getBoundingClientRect().width > 0).length,
    smallest: Math.min(99, ...all("svg.figure text").map(font_px)),
    selects: all("pre").map(one => page.getComputedStyle(one).userSelect),
    cut: all("pre").filter(one => one.scrollWidth > one.clientWidth).map(one => one.textContent),
  }};
}}
addEventListener("load", () => {{
  document.documentElement.dataset.probe = JSON.stringify([...document.querySelectorAll("iframe")].map(probed));
}});
</script></body></html>"""
"""A page that has others in frames, since the window of --dump-dom is never as narrow as a phone; it looks into them from outside."""


def found() -> str | None:
    """The command, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name)) is not None), None)


@dataclass(frozen=True)
class View:
    """How wide the window is, and whether its user likes it dark."""

    width: int
    is_dark: bool = False
    height: int = 1000


@dataclass(frozen=True)
class Chromium:
    """``home``: an empty folder for what it writes."""

    command: str
    home: Path

    def probe(self, pages: list[tuple[Path, int]], is_dark: bool = False) -> list[dict[str, Any]]:
        """Sizes, colours and requests of each page, as they are, in a window of that width."""
        frames = (f'<iframe src="{page.as_uri()}" style="border:0;width:{width}px;height:900px"></iframe>' for page, width in pages)
        around = self.home / "around.html"
        around.write_text(_AROUND.format(frames="".join(frames)), "utf-8")
        document = self._run(View(1400, is_dark), "--allow-file-access-from-files", "--dump-dom", around.as_uri()).stdout
        probe = re.search(r'data-probe="([^"]*)"', document)
        assert probe is not None, document[:300]
        found: list[dict[str, Any]] = json.loads(html.unescape(probe[1]))
        assert [one["inner"] for one in found] == [width for _, width in pages]
        return found

    def console(self, *pages: Path) -> list[str]:
        """What pages, or the browser about them, wrote on the console."""
        around = self.home / "around.html"
        around.write_text("".join(f'<iframe src="{page.as_uri()}"></iframe>' for page in pages), "utf-8")
        said = self._run(View(1280), "--enable-logging=stderr", "--v=0", "--dump-dom", around.as_uri()).stderr
        return [line for line in said.splitlines() if ":CONSOLE" in line]

    def screenshot(self, page: Path, view: View, target: Path) -> None:
        """What the window shows."""
        target.parent.mkdir(parents=True, exist_ok=True)
        self._run(view, f"--screenshot={target}", page.as_uri())

    def print(self, page: Path, target: Path) -> None:
        """As PDF."""
        target.parent.mkdir(parents=True, exist_ok=True)
        self._run(View(1280), "--no-pdf-header-footer", f"--print-to-pdf={target}", page.as_uri())

    def _run(self, view: View, *more: str) -> subprocess.CompletedProcess[str]:
        arguments = [self.command, "--headless", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-dev-shm-usage"]
        arguments += ["--disable-background-networking", "--disable-component-update", f"--user-data-dir={self.home}"]
        arguments += [f"--blink-settings=preferredColorScheme={0 if view.is_dark else 1}", f"--window-size={view.width},{view.height}"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")
        return subprocess.run([*arguments, *more], check=True, capture_output=True, text=True, timeout=180)
