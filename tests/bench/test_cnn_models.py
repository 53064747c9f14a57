"""The harness's models: what they are made of, and that options change what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import poptorch
from softipu.bench import data, harness, layers, models, weights
from softipu.bench.options import MODELS, Options
from softipu.bench.vision import torchvision
from softipu.errors import GroupsUneven, NoSuchLayer, UnknownModel, WeightsUnusable

#: Numbers of parameters, as torchvision's documentation gives them.
PARAMETERS = {
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "resnext50": 25_028_904,
    "resnext101": 88_791_336,
    "mobilenet": 3_504_872,
    "mobilenet-v3-small": 2_542_856,
    "mobilenet-v3-large": 5_483_032,
    "efficientnet-b0": 5_288_548,
    "efficientnet-b4": 19_341_616,
}
FULL = {"precision": "32.32"}


def images(side: int = 64, count: int = 2) -> torch.Tensor:
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(1))


def outputs(model: nn.Module, pictures: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        result: torch.Tensor = model(pictures)
    return result


@pytest.mark.parametrize("name", MODELS)
def test_models_have_as_many_parameters_as_published(name: str) -> None:
    model = models.build(name, **FULL)
    assert sum(one.numel() for one in model.parameters()) == PARAMETERS[name]
    assert not model.training


@pytest.mark.parametrize("name", ["resnet18", "mobilenet-v3-small", "efficientnet-b0"])
def test_models_compute_what_torchvisions_do(name: str) -> None:
    ours = models.build(name, **FULL)
    theirs = getattr(torchvision().models, models.KINDS[name].function)(weights=None).eval()
    theirs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(outputs(ours, images()), outputs(theirs, images()))


def test_efficientnet_b4_is_torchvisions() -> None:
    ours = models.build("efficientnet-b4", **FULL).state_dict()
    theirs = torchvision().models.efficientnet_b4(weights=None).state_dict()
    assert {k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in theirs.items()}


@pytest.mark.parametrize("name", ["efficientnet-b0", "mobilenet-v3-small"])
def test_random_weights_are_the_same_every_time_and_give_outputs_that_differ(name: str) -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first, second = models.build(name), models.build(name)
    assert torch.equal(torch.random.get_rng_state(), before)
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)
    result = outputs(first.float(), images(224))
    assert 0.001 < result.std() < 100
    assert not torch.allclose(result[0], result[1], rtol=0.01)


def test_precision_is_that_of_all_weights() -> None:
    assert {one.dtype for one in models.build("resnet18").parameters()} == {torch.float16}
    assert {one.dtype for one in models.build("resnet18", **FULL).parameters()} == {torch.float32}


def test_input_shapes() -> None:
    assert models.input_shape("resnet50") == (3, 224, 224)
    assert models.input_shape("efficientnet-b4") == (3, 380, 380)
    with pytest.raises(UnknownModel):
        models.input_shape("vgg")


# --- norms, groups, expansion -----------------------------------------------------------------


def kinds(model: nn.Module, kind: type[nn.Module]) -> list[Any]:
    return [one for one in model.modules() if isinstance(one, kind)]


def test_group_norm_replaces_batch_norm() -> None:
    model = models.build("resnet18", norm_type="group", norm_num_groups=16, norm_eps=0.01, **FULL)
    norms = kinds(model, nn.GroupNorm)
    assert len(norms) == 20
    assert {(norm.num_groups, norm.eps) for norm in norms} == {(16, 0.01)}
    assert kinds(model, nn.BatchNorm2d) == []
    assert outputs(model, images()).isfinite().all()


def test_no_norms_at_all() -> None:
    model = models.build("resnet18", norm_type="none", **FULL)
    assert kinds(model, nn.BatchNorm2d) == kinds(model, nn.GroupNorm) == []
    assert outputs(model, images()).shape == (2, 1000)


def test_epsilon_and_momentum_of_batch_norms() -> None:
    model = models.build("resnet18", norm_eps=0.25, batchnorm_momentum=0.75)
    assert {(norm.eps, norm.momentum) for norm in kinds(model, nn.BatchNorm2d)} == {(0.25, 0.75)}
    own = models.build("mobilenet-v3-small")
    assert {(norm.eps, norm.momentum) for norm in kinds(own, nn.BatchNorm2d)} == {(0.001, 0.01)}


def test_groups_that_channels_cannot_make_are_refused() -> None:
    with pytest.raises(GroupsUneven, match="The 64 channels of bn1 don't make 7 groups"):
        models.build("resnet18", norm_type="group", norm_num_groups=7)
    with pytest.raises(GroupsUneven, match="don't make .* groups of one size"):
        models.build("efficientnet-b0", efficientnet_group_dim=7)


def depthwise(model: nn.Module) -> list[Any]:
    """The spatial convolutions of EfficientNet's blocks."""
    return [one for one in kinds(model, nn.Conv2d) if one.kernel_size != (1, 1)][1:]


@pytest.mark.parametrize("name", ["efficientnet-b0", "efficientnet-b4"])
def test_the_g16_variants(name: str) -> None:
    model = models.build(
        name, norm_type="group", norm_num_groups=4, efficientnet_group_dim=16,
        efficientnet_expand_ratio=4, **FULL,
    )  # fmt: skip
    assert all(one.in_channels // one.groups in (16, 24) for one in depthwise(model))
    expansions = [
        one for one in kinds(model, nn.Conv2d)
        if one.kernel_size == (1, 1) and one.bias is None and one.out_channels == 4 * one.in_channels
    ]  # fmt: skip
    assert len(expansions) >= 15
    result = outputs(model, images(128))
    assert result.isfinite().all()
    assert result.std() > 0.001


def test_expansion_of_six_and_depthwise_groups_by_default() -> None:
    model = models.build("efficientnet-b0")
    assert all(one.groups == one.in_channels for one in depthwise(model))


# --- images -----------------------------------------------------------------------------------


def test_a_padded_input_changes_no_result() -> None:
    plain = models.build("resnet18", **FULL)
    padded = models.build("resnet18", input_image_padding=True, **FULL)
    assert isinstance(padded.conv1, layers.PaddedConvolution)
    assert padded.conv1.conv.weight.shape == (64, 4, 7, 7)
    torch.testing.assert_close(outputs(padded, images()), outputs(plain, images()))


@pytest.mark.parametrize("eight_bit", [False, True])
def test_normalising_on_the_ipu_is_the_same_as_on_the_host(eight_bit: bool) -> None:
    host = Options(model="mobilenet-v3-small", **FULL)  # type: ignore[arg-type]
    ipu = Options(
        model="mobilenet-v3-small", precision="32.32", normalization_location="ipu",
        eight_bit_io=eight_bit,
    )  # fmt: skip
    sent = data.batch_of_noise(ipu)
    assert sent.dtype == (torch.uint8 if eight_bit else torch.float32)
    torch.testing.assert_close(
        outputs(models.build_model(ipu), sent),
        outputs(models.build_model(host), data.batch_of_noise(host)),
        rtol=1e-3, atol=1e-4,
    )  # fmt: skip


# --- weights ----------------------------------------------------------------------------------


@pytest.fixture
def state() -> dict[str, torch.Tensor]:
    model = models.build("mobilenet-v3-small", **FULL)
    return {name: torch.full_like(tensor, 0.5) for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("wrapped", [None, "state_dict", "model_state_dict"])
def test_weights_from_a_file(tmp_path: Path, state: dict[str, Any], wrapped: str | None) -> None:
    file = tmp_path / "weights.pt"
    torch.save({wrapped: state, "epoch": 3} if wrapped else state, file)
    model = models.build("mobilenet-v3-small", weights=str(file), **FULL)
    assert all((one == 0.5).all() for one in model.parameters())


def test_weights_from_safetensors(tmp_path: Path, state: dict[str, Any]) -> None:
    from safetensors.torch import save_file

    file = tmp_path / "weights.safetensors"
    save_file(state, file)
    model = models.build("mobilenet-v3-small", weights=str(file))
    assert all((one == 0.5).all() for one in model.parameters())


def test_weights_from_before_batch_norms_counted(tmp_path: Path, state: dict[str, Any]) -> None:
    """As torch takes them; of anything else nothing may be missing."""
    file = tmp_path / "weights.pt"
    old = {name: one for name, one in state.items() if not name.endswith("num_batches_tracked")}
    assert len(old) < len(state)
    torch.save(old, file)
    model = models.build("mobilenet-v3-small", weights=str(file), **FULL)
    assert all((one == 0.5).all() for one in model.parameters())
    del old["features.0.1.running_mean"]
    torch.save(old, file)
    with pytest.raises(WeightsUnusable, match=r"model: features.0.1.running_mean is missing\."):
        weights.load(model, str(file))


@pytest.mark.parametrize("name", ["weights.pt", "weights.safetensors"])
def test_files_that_hold_no_weights(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    with pytest.raises(WeightsUnusable, match="can't be read: No such file"):
        models.build("mobilenet-v3-small", weights=str(file))
    file.write_bytes(b"no weights, just words")
    with pytest.raises(WeightsUnusable, match="is no file of weights"):
        models.build("mobilenet-v3-small", weights=str(file))


def test_weights_of_another_model_are_named(tmp_path: Path, state: dict[str, Any]) -> None:
    file = tmp_path / "weights.pt"
    model = models.build("mobilenet-v3-small", **FULL)
    state["classifier.3.weight"] = torch.zeros(10, 1024)
    torch.save(state, file)
    with pytest.raises(WeightsUnusable, match=r"classifier.3.weight is \[10, 1024\], not \[1000"):
        weights.load(model, str(file))
    del state["classifier.3.weight"]
    torch.save(state | {"more": torch.zeros(1)}, file)
    with pytest.raises(WeightsUnusable, match="classifier.3.weight is missing; more is unknown"):
        weights.load(model, str(file))
    torch.save([1, 2], file)
    with pytest.raises(WeightsUnusable, match="holds no state dict"):
        weights.load(model, str(file))
    torch.save({"a": 1}, file)
    with pytest.raises(WeightsUnusable, match="not all of its values are tensors"):
        weights.load(model, str(file))


def test_a_file_of_weights_executes_nothing(tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "owned",))

    file = tmp_path / "weights.pt"
    torch.save({"a": Hostile()}, file)
    with pytest.raises(WeightsUnusable):
        models.build("mobilenet-v3-small", weights=str(file))
    assert not (tmp_path / "owned").exists()


# --- pipelines --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("splits", "first_of_each"),
    [
        (("layer2",), ["layer2"]),
        (("layer1/0/conv2", "layer3.1"), ["layer1.0.conv2", "layer3.1"]),
    ],
)
def test_stages_begin_at_the_layers_named(
    splits: tuple[str, ...], first_of_each: list[str]
) -> None:
    model = models.build("resnet18", pipeline_splits=splits)
    begun = [name for name, one in model.named_modules() if one._forward_pre_hooks]
    assert begun == first_of_each


@pytest.mark.parametrize(
    ("splits", "message", "remedy"),
    [
        (("layr2",), "no layer 'layr2'", "Did you mean layer2?"),
        (("layer1/conv",), "no layer 'layer1/conv'", "Did you mean layer1/0/conv1?"),
        (("blocks/3",), "no layer 'blocks/3'", "The model's parts: conv1, bn1"),
        (("",), "no layer ''", "The model's parts"),
        (("layer3", "layer2"), "layer2 is no later than layer3", "in the order"),
        (("layer2", "layer2"), "layer2 is no later than layer2", "each layer once"),
    ],
)
def test_layers_that_are_not_there(splits: tuple[str, ...], message: str, remedy: str) -> None:
    with pytest.raises(NoSuchLayer, match=message) as found:
        models.build("resnet18", pipeline_splits=splits)
    assert remedy in found.value.remedy


# --- what PopTorch is told --------------------------------------------------------------------


def test_options_of_poptorch(tmp_path: Path) -> None:
    settings = harness.poptorch_options(
        Options(
            replicas=2, device_iterations=3, half_partial=True, enable_fast_groupnorm=True,
            num_io_tiles=32, model_cache_path=str(tmp_path), data="synthetic", compile_only=True,
            offline_target_ipu_version=21, exchange_memory_target="memory",
        )
    )  # fmt: skip
    settings.outputMode(poptorch.OutputMode.All)
    found = settings.toDict()
    assert (settings.replication_factor, settings.device_iterations) == (2, 3)
    assert found["partialsTypeMatMuls"] == "half"
    assert found["groupNormStridedChannelGrouping"] is True
    assert found["numIOTiles"] == 32
    assert found["cachePath"] == str(tmp_path)
    assert found["engineOptions"]["opt.internalExchangeOptimisationTarget"] == "memory"
    assert (found["ipu_version"], found["syntheticDataMode"] > 0) == (21, True)
