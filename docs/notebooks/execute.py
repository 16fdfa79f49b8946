"""Executes the notebooks and keeps their outputs: `make notebooks`, after a change that shows in them.

python docs/notebooks/execute.py [NAME ...]
"""

from __future__ import annotations

import base64
import io
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image

HERE = Path(__file__).resolve().parent
SECONDS = 300  # for one cell, on a machine that is busy
COLOURS = 64  # of a picture: a third of the bytes, and nobody sees a difference
read_notebook: Callable[..., nbformat.NotebookNode] = nbformat.read  # published without types
write_notebook: Callable[..., None] = nbformat.write


def executed(path: Path, folder: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of its cells, executed in the folder; what differs each time left out."""
    notebook = read_notebook(path, as_version=4)
    where = {"metadata": {"path": str(folder)}}
    NotebookClient(
        notebook, timeout=SECONDS, resources=where, record_timing=False, coalesce_streams=True
    ).execute()
    notebook.metadata.pop("language_info", None)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "metadata" in output:
                output.metadata.clear()
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = _smaller(output.data["image/png"])
    return notebook


def _smaller(png: str) -> str:
    """The picture with few colours."""
    stored = io.BytesIO()
    with Image.open(io.BytesIO(base64.b64decode(png))) as picture:
        picture.convert("RGB").quantize(COLOURS).save(stored, "png", optimize=True)
    return base64.b64encode(stored.getvalue()).decode()


def main() -> None:
    """Executes the notebooks that are named, or all of them."""
    for path in sorted(HERE.glob("*.ipynb")):
        if not sys.argv[1:] or path.stem in sys.argv[1:]:
            write_notebook(executed(path, HERE), path)
            print(f"{path.name}: {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
