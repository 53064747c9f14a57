"""Running a notebook as a benchmark: its printed output goes to standard output.

Started by the runner as `python3 -m examples_utils.benchmarks.notebook_utils FILE DIRECTORY`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...errors import BenchDependency, NotebookFailed, UsageError
from ...tools import cli

DEFAULT_TIMEOUT = 600
_REMEDY = "Run `pip install nbclient nbformat ipykernel`."


def run_notebook(
    notebook_filename: str, working_directory: str, timeout: int = DEFAULT_TIMEOUT
) -> str:
    """Run all cells (each for at most `timeout` seconds); what they printed."""
    try:
        import nbclient
        import nbformat
    except ImportError as error:
        what = f"Running notebooks needs {error.name}, which is not installed."
        raise BenchDependency(what, remedy=_REMEDY) from None
    path = Path(notebook_filename)
    if not path.is_file():
        raise UsageError(f"There is no notebook {path}.")
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook,
        timeout=timeout,
        kernel_name="python3",
        resources={"metadata": {"path": working_directory}},
    )
    try:
        client.execute()
    except Exception as error:
        # What was printed before is worth as much as the error.
        print(printed(notebook))
        raise NotebookFailed(f"{path}: {error}") from error
    return printed(notebook)


def printed(notebook: Any) -> str:
    """What a notebook's cells wrote to their streams."""
    return "\n".join(_streams(notebook))


def _streams(notebook: Any) -> Iterator[str]:
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            for output in cell.get("outputs", ()):
                if output.get("output_type") == "stream":
                    yield output.get("text", "")


def main(argv: Sequence[str] | None = None) -> int:
    parser = cli.Parser(prog="notebook_utils", description="Run a notebook; print its output.")
    parser.add_argument("filename", metavar="FILE", help="the notebook")
    parser.add_argument("working_dir", metavar="DIR", help="the directory to run it in")
    parser.add_argument(
        "--timeout", type=cli.whole_number, default=DEFAULT_TIMEOUT, help="seconds for each cell"
    )
    options = parser.parse_args(argv)
    print(run_notebook(options.filename, options.working_dir, options.timeout), file=sys.stdout)
    return 0


entry = cli.run(main)
