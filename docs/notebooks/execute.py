"""Executes the notebooks and keeps their outputs: `make notebooks`, after a change that shows in them.

python docs/notebooks/execute.py [NAME ...]
"""

from __future__ import annotations

import base64
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # tests import this module in every process that collects them
    import nbformat

HERE = Path(__file__).resolve().parent
SECONDS = 300  # for one cell, on a machine that is busy
COLOURS = 64  # of a picture: a third of the bytes, and nobody sees a difference


def read_notebook(path: Path) -> nbformat.NotebookNode:
    """The notebook of a file."""
    import nbformat  # noqa: PLC0415

    read: Any = nbformat.read  # published without types
    notebook: nbformat.NotebookNode = read(path, as_version=4)
    return notebook


def executed(path: Path, folder: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of its cells, executed in the folder; what differs each time left out."""
    from nbclient import NotebookClient  # noqa: PLC0415

    notebook = read_notebook(path)
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
    from PIL import Image  # noqa: PLC0415

    stored = io.BytesIO()
    with Image.open(io.BytesIO(base64.b64decode(png))) as picture:
        picture.convert("RGB").quantize(COLOURS).save(stored, "png", optimize=True)
    return base64.b64encode(stored.getvalue()).decode()


def main() -> None:
    """Executes the notebooks that are named, or all of them."""
    import nbformat  # noqa: PLC0415

    write: Any = nbformat.write
    for path in sorted(HERE.glob("*.ipynb")):
        if not sys.argv[1:] or path.stem in sys.argv[1:]:
            write(executed(path, HERE), path)
            print(f"{path.name}: {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
