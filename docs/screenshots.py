"""Writes docs/images/dashboard-{light,dark,phone}.png: a real training, as Chromium shows its page. Run by hand.

python docs/screenshots.py [PRESET] [SECONDS]
"""

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

IMAGES = Path(__file__).parent / "images"
SHOTS = {
    "light": {"viewport": {"width": 1360, "height": 1062}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1360, "height": 1062}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light", "device_scale_factor": 2},
}
COLOURS = 256
MOST_BYTES = 200_000
ENDLESS = ["--set", "stop.mean_return=null", "--set", "stop.env_steps=null"]


def main(preset: str, seconds: float) -> None:
    """Trains for a while and takes the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "runs" / preset
        train = [sys.executable, "-m", "distrl", "train", "--plain", "--dashboard", "--preset", preset, *ENDLESS]
        with subprocess.Popen([*train, "--run-dir", str(run_dir)], stdout=subprocess.PIPE, text=True) as training:
            assert training.stdout is not None
            url = next(found[0] for line in training.stdout if (found := re.search(r"http://\S+", line)))
            time.sleep(seconds)
            with sync_playwright() as playwright:
                chromium = playwright.chromium.launch(
                    executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
                )
                for name, options in SHOTS.items():
                    shoot(chromium, url, IMAGES / f"dashboard-{name}.png", options)
                chromium.close()
            training.terminate()
            training.stdout.read()


def shoot(chromium: Browser, url: str, path: Path, options: dict[str, object]) -> None:
    """One picture of what a window of that size shows, with few enough colours to be small."""
    page = chromium.new_page(**options)  # type: ignore[arg-type]
    page.goto(url)
    page.wait_for_timeout(3000)
    page.screenshot(path=path)
    page.close()
    with Image.open(path) as image:
        image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    assert path.stat().st_size < MOST_BYTES, f"{path}: {path.stat().st_size:,} bytes"


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "cartpole-dqn", float(sys.argv[2]) if len(sys.argv) > 2 else 60.0)
