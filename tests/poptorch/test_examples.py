"""The programs in examples/ do what their first lines promise, and fast."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from script_support import number, run

EXAMPLES = Path(__file__).parents[2] / "examples"
torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")


def test_the_readme_lists_every_example():
    listed = re.findall(r"\[`(\w+\.py)`\]", (EXAMPLES / "README.md").read_text())
    assert sorted(listed) == sorted(path.name for path in EXAMPLES.glob("*.py"))


def test_digits_are_learnt_saved_and_recognised(tmp_path: Path):
    saved = tmp_path / "weights.pt"
    output, _ = run(EXAMPLES / "digits_training.py", "--save", str(saved), cwd=tmp_path)
    losses = [float(loss) for loss in re.findall(r"epoch \d+: loss ([\d.]+)", output)]
    assert len(losses) == 8
    assert losses[-1] < losses[0] / 10
    assert number(r"accuracy on 360 unseen digits: ([\d.]+)%", output) > 96
    # The file is PyTorch's own, without a class of ours in it.
    state = torch.load(saved, weights_only=True)
    assert state["classify.2.bias"].shape == (10,)


def test_the_transformer_learns_in_a_pipeline_of_four_ipus(tmp_path: Path):
    output, _ = run(EXAMPLES / "pipelined_bert_like.py", cwd=tmp_path)
    first = number(r"loss: ([\d.]+) at first", output)
    last = number(r"at first, ([\d.]+) at last", output)
    assert first == pytest.approx(3.6, abs=0.2)  # Guessing among 32 tokens costs ln 32 = 3.5.
    assert last < 0.5
    assert number(r"filled in correctly: ([\d.]+)% of 1024", output) > 90


def test_four_replicas_take_the_same_steps_as_one(tmp_path: Path):
    output, _ = run(EXAMPLES / "replicated_training.py", cwd=tmp_path)
    assert re.findall(r"(\d) replica\(s\): 32 images per step, 56 steps", output) == ["1", "4"]
    accuracies = re.findall(r"last epoch ([\d.]+)%", output)
    assert all(float(accuracy) > 90 for accuracy in accuracies)
    assert number(r"largest difference between the weights: ([\d.e+-]+)", output) < 1e-4


def test_device_iterations_change_the_speed_and_not_the_results(tmp_path: Path):
    output, _ = run(EXAMPLES / "inference_device_iterations.py", cwd=tmp_path)
    calls = re.findall(r"(\d+) device iterations: +(\d+) images per call", output)
    assert calls == [("1", "2"), ("4", "8"), ("16", "32")]
    assert number(r"largest difference to PyTorch: ([\d.e+-]+)", output) < 1e-5
    assert number(r"loaded from a file: ([\d.e+-]+)", output) < 1e-5


def test_the_code_in_the_documentation_runs_and_prints_what_it_says(tmp_path: Path):
    page = (EXAMPLES.parent / "docs" / "poptorch.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    assert len(blocks) == 3
    script = tmp_path / "documentation.py"
    script.write_text("\n\n".join(blocks))
    output, _ = run(script, cwd=tmp_path)
    promised = re.findall(r"^print\(.*\)  # (.*)$", "\n".join(blocks), re.M)
    assert output.splitlines() == promised
