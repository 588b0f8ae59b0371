"""Opens pages of `campanile` in a real Chromium and prints what is wrong with them.

check_pages.py FILE.html…   Exit code 1 if a page has a finding.

Each page is opened at the width of a phone, of a screen and of paper, in light and in dark. It must say nothing on the console, be no
wider than its window, clip no text, pass the accessibility rules of axe-core, show the values of a point under the pointer,
and hold its data as a file that can be read.
"""

import base64
import csv
import io
import json
import pathlib
import shutil
import sys

import selenium_axe_python
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

AXE = (pathlib.Path(selenium_axe_python.__file__).parent / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
# Width in CSS pixels, medium, colour scheme. Paper is A4 without the browser's margins.
VIEWS = [(400, "screen", "light"), (400, "screen", "dark"), (1280, "screen", "light"), (1280, "screen", "dark"),
         (718, "print", "light")]

# Text that sticks out of what clips it, or out of its picture. Tables and listings scroll on a screen, and are left out there.
CLIPPED = """
const found = [];
const print = matchMedia('print').matches;
for (const e of document.querySelectorAll('body *')) {
  if (e.closest('svg') || (!print && e.closest('.scroll'))) continue;
  const style = getComputedStyle(e);
  if (style.overflowX !== 'visible' && e.scrollWidth > e.clientWidth + 1 && e.textContent.trim()) found.push(e.outerHTML.slice(0, 120));
  for (const n of e.childNodes) {
    if (n.nodeType !== Node.TEXT_NODE || !n.textContent.trim()) continue;
    const range = document.createRange(); range.selectNodeContents(n);
    const text = range.getBoundingClientRect(), box = document.documentElement.clientWidth;
    if (text.width && (text.right > box + 1 || text.left < -1)) found.push('outside the page: ' + n.textContent.slice(0, 80));
  }
}
for (const t of document.querySelectorAll('svg text')) {
  const inner = t.getBoundingClientRect(), outer = t.ownerSVGElement.getBoundingClientRect();
  if (inner.left < outer.left - 1 || inner.right > outer.right + 1 || inner.bottom > outer.bottom + 1)
    found.push('outside its picture: ' + t.textContent);
}
for (const bar of document.querySelectorAll('.bar')) {
  const cells = [...bar.querySelectorAll('.name, .total')];
  for (const c of cells) if (c.scrollWidth > c.clientWidth + 1) found.push('wider than its column: ' + c.textContent);
}
return found;
"""


def findings(driver, page):
    """What is wrong with the page, as lines."""
    found = []
    for width, medium, scheme in VIEWS:
        view = f"{page.name}, {width} px, {medium}, {scheme}"
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                               {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                               {"media": medium, "features": [{"name": "prefers-color-scheme", "value": scheme}]})
        driver.get(page.resolve().as_uri())
        found += [f"{view}: console: {entry['message']}" for entry in driver.get_log("browser")]
        wide = driver.execute_script("return document.documentElement.scrollWidth")
        if wide > width:
            found.append(f"{view}: {wide} px wide")
        found += [f"{view}: clipped: {text}" for text in driver.execute_script(CLIPPED)]
        if medium == "screen":
            driver.execute_script(AXE)
            result = driver.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
            for violation in result["violations"]:
                nodes = violation["nodes"]
                found.append(f"{view}: {violation['id']}: {violation['help']}, {len(nodes)} times: {nodes[0]['html'][:160]}")
    return found + once(driver, page)


def once(driver, page):
    """What does not depend on the view."""
    found = []
    links = driver.execute_script("return [...document.querySelectorAll('a[download]')].map(a => [a.download, a.href])")
    if len(links) != 1:
        found.append(f"{page.name}: {len(links)} files to save, and not 1")
    for name, link in links:
        data = base64.b64decode(link.split(",", 1)[1]).decode("utf-8")
        if name.endswith(".json"):
            json.loads(data)
        elif len({len(row) for row in csv.reader(io.StringIO(data))}) != 1:
            found.append(f"{page.name}: {name}: rows of different length")
    points, bare = driver.execute_script(
        "const all = [...document.querySelectorAll('svg .target')];"
        "return [all.length, all.filter(t => !/: .+, .+/.test(t.parentNode.querySelector('title')?.textContent ?? '')).length]")
    lines = driver.execute_script("return document.querySelectorAll('svg polyline[points]:not([points=\"\"])').length")
    if bare or (lines and not points):
        found.append(f"{page.name}: {bare} of {points} points of {lines} lines have no values as a tooltip")
    unscoped = driver.execute_script("return document.querySelectorAll('th:not([scope])').length")
    if unscoped:
        found.append(f"{page.name}: {unscoped} headers without a scope")
    return found


def main(files):
    options = webdriver.ChromeOptions()
    for argument in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.set_script_timeout(120)
    try:
        found = []
        for file in files:
            new = findings(driver, pathlib.Path(file))
            print(f"{file}: {len(new)} findings" if new else f"{file}: {len(VIEWS)} views, nothing found", flush=True)
            found += new
    finally:
        driver.quit()
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
