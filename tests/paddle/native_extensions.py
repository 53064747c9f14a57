"""Extensions of programs for the IPU: what stands for PopART's operators, what is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from static_programs import built

from softipu.errors import InvalidIpuOption, PaddleCustomOpMissing
from softipu.frontends.paddle import extensions, popart_ops
from softipu.frontends.paddle.program import program_of

paddle.enable_static()
paddle.static.IpuStrategy()

#: As extensions for the IPU are: kernels that say nothing about what the operator means there.
OPERATORS = """
#include "paddle/extension.h"
namespace {
std::vector<paddle::Tensor> Loss(const paddle::Tensor& x, const paddle::Tensor& y) { return {x}; }
std::vector<paddle::Tensor> Backward(const paddle::Tensor& gradient) { return {gradient}; }
std::vector<std::vector<int64_t>> LossShape(std::vector<int64_t> x, std::vector<int64_t> y,
                                            const int& reduction, const std::string& ignored,
                                            const bool& logarithms) {
  if (reduction == 2) return {y};
  return {{1}};
}
std::vector<paddle::DataType> LossType(paddle::DataType x, paddle::DataType y) { return {x}; }
}  // namespace
PD_BUILD_OP(custom_nll_loss)
    .Inputs({"X", "Y"})
    .Outputs({"Out"})
    .Attrs({"reduction: int", "ignoreIndex: std::string", "inputIsLogProbability: bool"})
    .SetInferShapeFn(PD_INFER_SHAPE(LossShape))
    .SetInferDtypeFn(PD_INFER_DTYPE(LossType))
    .SetKernelFn(PD_KERNEL(Loss));
PD_BUILD_GRAD_OP(custom_nll_loss)
    .Inputs({paddle::Grad("Out")})
    .Outputs({paddle::Grad("X")})
    .SetKernelFn(PD_KERNEL(Backward));
"""
PATTERN = """
#include <popart/patterns/patterns.hpp>
static popart::PatternCreator<Mine> creator("MyOwnPattern", true);
"""
X = np.array([[-2.0, -1.0, 3.0], [0.5, 1.0, 2.0]], "float32")
LABELS = np.array([2, 0], "int32")


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x)
    return powers / powers.sum(-1, keepdims=True)


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Built from a source for Paddle and one for PopART."""
    folder = tmp_path_factory.mktemp("extension")
    sources = {"operators.cc": OPERATORS, "pattern.cc": PATTERN}
    for name, text in sources.items():
        (folder / name).write_text(text)
    with pytest.warns(UserWarning, match=r"without its sources for PopART.*pattern\.cc"):
        return paddle.utils.cpp_extension.load(
            name="ipu_operators",
            sources=[str(folder / name) for name in sources],
            extra_cxx_cflags=["-O0", "-DONNX_NAMESPACE=onnx"],
            extra_ldflags=["-lpopfloat"],
            build_directory=str(folder),
        )


def test_a_loss_of_an_extension_is_the_one_of_popart(extension: Any) -> None:
    """Its CPU kernel returns its input, and its gradient is no gradient."""

    def build() -> Any:
        x = paddle.static.data("x", [2, 3], "float32")
        labels = paddle.static.data("labels", [2], "int32")
        weight = paddle.create_parameter(
            [3], "float32", default_initializer=paddle.nn.initializer.Constant(1.0)
        )
        with paddle.static.ipu_shard_guard(index=1, stage=1):
            chances = paddle.nn.functional.softmax(x * weight)
            loss = extension.custom_nll_loss(chances, labels, 1, "None", False)
        paddle.optimizer.SGD(1.0).minimize(loss)
        return ["x", "labels"], [loss]

    program = built(build)
    compiled = program.compile(num_ipus=2, enable_manual_shard=True)
    assert "custom_nll_loss" not in [op["type"] for op in program_of(compiled)["operations"]]
    placed = {op["type"]: op["ipu"] for op in program_of(compiled)["operations"]}
    assert placed["nll_loss"] == 1
    (loss,) = program.run(compiled, {"x": X, "labels": LABELS})
    chances = softmax(X)
    np.testing.assert_allclose(loss, [-np.log(chances[[0, 1], LABELS]).mean()], rtol=1e-5)
    gradient = ((chances - np.eye(3)[LABELS]) * X).sum(0) / 2
    (weight,) = program.weights.values()
    np.testing.assert_allclose(1 - weight, gradient, rtol=1e-4, atol=1e-6)


def test_a_pattern_of_an_extension_may_be_switched(extension: Any) -> None:
    strategy = paddle.static.IpuStrategy()
    options = strategy._ipu_strategy
    assert not options.is_pattern_enabled("MyOwnPattern")
    with pytest.warns(UserWarning, match=r"MyOwnPattern=True has no effect"):
        strategy.enable_pattern("MyOwnPattern")
    assert options.is_pattern_enabled("MyOwnPattern")
    with pytest.raises(InvalidIpuOption, match="load the extension first"):
        strategy.enable_pattern("SomebodysPattern")


def test_an_extension_for_popart_only_is_refused_with_the_way_out(tmp_path: Path) -> None:
    source = tmp_path / "pattern.cc"
    source.write_text(PATTERN)
    with pytest.raises(PaddleCustomOpMissing, match=r"(?s)SIPU-4005.*pattern\.cc"):
        paddle.utils.cpp_extension.load(
            name="patterns", sources=[str(source)], build_directory=str(tmp_path)
        )


def test_plain_extensions_are_built_as_they_are(tmp_path: Path) -> None:
    written: list[Any] = []
    write = extensions._without_popart(lambda *arguments: written.append(arguments))
    source = str(tmp_path / "missing.cc")  # the compiler's business
    write("name", [source], "setup.py", "build", None, None, ["-g"], [], ["-lm", "-lpopular"])
    assert written == [
        ("name", [source], "setup.py", "build", None, None, ["-g"], [], ["-lm", "-lpopular"], False)
    ]


CASES: dict[str, tuple[dict[str, Any], Any]] = {
    "mean": ({"reduction": 1}, [0.75]),
    "sum": ({"reduction": "Sum"}, [3.0]),
    "none": ({"reduction": 2}, [0.0, 2.0, 0.5, 0.5]),
    "mean of those that count": ({"reduction": 1, "ignoreIndex": "1"}, [1.0 / 3]),
    "ignored in none": ({"reduction": "None", "ignoreIndex": 1}, [0.0, 0.0, 0.5, 0.5]),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("logarithms", [True, False])
def test_likelihood_as_popart_has_it(name: str, logarithms: bool) -> None:
    attributes, expected = CASES[name]
    log = np.array([[0.0, -9, -9], [-9, -2.0, -9], [-0.5, -9, -9], [-9, -9, -0.5]], "float32")
    x = log if logarithms else np.exp(log)
    main = paddle.static.Program()
    with paddle.static.program_guard(main):
        chances = paddle.static.data("chances", [4, 3], "float32")
        labels = paddle.static.data("labels", [4], "int32")
        out = popart_ops._likelihood(
            chances, labels, inputIsLogProbability=logarithms, **attributes
        )
        feed = {"chances": x, "labels": np.array([0, 1, 0, 2], "int32")}
        (found,) = paddle.static.Executor(paddle.CPUPlace()).run(main, feed=feed, fetch_list=[out])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "domain", "moved"), [
    ("Identity", "ai.onnx", X[0]), ("Detach", "ai.graphcore", [0.0, 0.0, 0.0]),
])  # fmt: skip
def test_an_operation_mapped_to_one_of_popart_is_that_one(
    name: str, domain: str, moved: Any
) -> None:
    """Here relu is; its kernel would cut off what is below zero."""

    def build() -> Any:
        x = paddle.static.data("x", [1, 3], "float32")
        weight = paddle.create_parameter(
            [3], "float32", default_initializer=paddle.nn.initializer.Constant(1.0)
        )
        out = paddle.nn.functional.relu(x * weight)
        paddle.optimizer.SGD(1.0).minimize(paddle.sum(out) + 0.0 * paddle.sum(weight))
        return ["x"], [out]

    program = built(build)
    strategy = paddle.static.IpuStrategy()
    strategy.add_custom_op(paddle_op="relu", popart_op=name, domain=domain)
    whole = paddle.static.IpuCompiledProgram(program.main, program.scope, strategy)
    compiled = whole.compile(["x"], [program.fetches[0].name])
    (out,) = program.run(compiled, {"x": X[:1]})
    np.testing.assert_array_equal(out, X[:1])
    (weight,) = program.weights.values()
    np.testing.assert_allclose(1 - weight, moved, atol=1e-6)
