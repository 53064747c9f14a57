"""Published rows: each can be built, has what it needs, and the page made of them says so."""

from __future__ import annotations

import dataclasses

import pytest

from softipu.accuracy.build import described_row, options_of
from softipu.accuracy.document import page
from softipu.accuracy.figures import Fit, Judged, counted, fits, median_error
from softipu.accuracy.fitting import priced
from softipu.accuracy.latency import LATENCIES, latencies
from softipu.accuracy.memory_rows import FITS
from softipu.accuracy.rows import ROWS
from softipu.accuracy.workloads import Row, Workload
from softipu.graph import Role
from softipu.machine import estimate

EVERY = (*ROWS, *FITS)


def named(start: str) -> Row:
    return next(row for row in EVERY if row.name.startswith(start))


def small(figure: float = 1000.0, **changes: object) -> Row:
    """A row that takes no time to build."""
    workload = Workload("cnn", "bow", 2, arguments={"name": "mobilenet-v3-small"})
    row = Row("Small", "Small", workload, figure, "a test")
    return dataclasses.replace(row, **changes)  # type: ignore[arg-type]


def judged(**changes: object) -> Judged:
    row = small(**changes)  # type: ignore[arg-type]
    return Judged(row, estimate(*described_row(row)))


def test_names_are_unique_and_every_row_has_a_source() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert len({row.name for row in FITS}) == len(FITS)
    assert all(row.source for row in EVERY)
    assert all(row.figure for row in ROWS)
    assert all(row.figure is None for row in FITS)


def test_few_rows_calibrate_and_most_are_validation() -> None:
    fitted = [row for row in ROWS if row.calibrates]
    assert 4 <= len(fitted) <= len(ROWS) / 3
    assert len({row.family for row in fitted}) >= 3
    assert not any(row.doubtful for row in fitted)


@pytest.mark.parametrize(
    ("name", "batch"),
    [
        ("ResNet-50 training, TF1, batch 1920", 1920),
        ("ResNet-50 training, TF1, batch 3520", 3520),
        ("ResNet-50 training, PyTorch, batch 16384", 16384),
        ("BERT-Large training, PopART", 65536),
        ("BERT-Large training, TF1", 65600),
        ("BERT-Large training, TF2, SDK 3.3", 65280),
        ("BERT-Large packed training, PopART", 54784),
        ("BERT-Large packed training, PyTorch, SDK 3.3", 56064),
        ("BERT-Base training, TF2, SDK 3.3", 65280),
        ("EfficientNet-B4 G16 training, PyTorch", 1024),
        ("Conformer-medium training, Bow Pod16", 16128),
        ("ResNet-50 training, TF1, Pod64, batch 2560", 2560),
        ("ResNet-50 training, TF1, Pod64, batch 5120", 5120),
        ("ResNet-50 training, TF1, Pod256, before SDK 2.5", 10240),
        ("EfficientNet-B4 G16 training, TF1", 6144),
        ("EfficientNet-B4 G16 training, TF1, Pod256", 6144),
        ("ResNeXt-101 training, TF1", 768),
        ("ViT-B/16 pretraining", 65536),
        ("ViT-B/16 pretraining, Pod64", 65536),
        ("BERT-Large training, TF2, Pod64", 66560),
        ("BERT-Large packed training, PopART, Pod64", 54784),
        ("BERT-Large packed training, 512 words, PopART", 9600),
        ("BERT-Large packed training, 512 words, PyTorch, Pod64, SDK 3.2", 8192),
        ("BERT-Base training, 512 words, PopART", 16384),
        ("BERT-Base training, 384 words, TF2", 16320),
    ],
)
def test_the_global_batch_is_the_published_one(name: str, batch: int) -> None:
    (row,) = (row for row in ROWS if row.name == name)
    w = row.workload
    assert w.micro_batch * w.accumulation * w.replicas == batch


def test_a_resnet_has_its_weights_and_images_in_bytes() -> None:
    graph, settings = described_row(named("ResNet-50 inference, 90"))
    parameters = sum(t.elements for t in graph.of_role(Role.WEIGHT) if "running" not in t.name)
    assert parameters == pytest.approx(25.56e6, rel=0.001)
    (images,) = graph.of_role(Role.INPUT)
    assert (images.shape, images.dtype) == ((90, 3, 224, 224), "uint8")
    assert settings.convolution_partials == "float16"


def test_an_encoder_has_the_published_size() -> None:
    graph, settings = described_row(named("BERT-Base SQuAD inference, PopRT"))
    parameters = sum(tensor.elements for tensor in graph.of_role(Role.WEIGHT))
    assert parameters == pytest.approx(108.9e6, rel=0.01)
    assert settings.chip == "c600"
    assert "unknown" not in {op.kind for op in graph.ops}


def test_pretraining_is_a_pipeline_over_four_ipus_with_the_head_on_the_first() -> None:
    graph, settings = described_row(named("BERT-Base training, PyTorch"))
    assert graph.schedule.stage_ipus == (0, 1, 2, 3, 0)
    assert graph.schedule.recomputed_stages == {0, 1, 2, 3}
    # Of every layer but the last, as the source has it.
    assert len(graph.schedule.checkpoints) == 11
    assert settings.optimiser_state_off_chip
    assert settings.replicated_tensor_sharding
    assert "unknown" not in {op.kind for op in graph.ops}
    words = [op for op in graph.ops if "encoder.words.weight" in op.inputs and op.kind == "gather"]
    assert [op.stage for op in words] == [0]


def test_halves_of_layers_come_back_to_the_first_ipu_in_one_stage_with_the_head() -> None:
    row = named("BERT-Large training, MLPerf v2.0 log, Bow Pod64")
    halves = row.workload.arguments["halves"]
    assert sum(count for _, count in halves) == 2 * 24
    graph, _ = described_row(row)
    assert graph.schedule.stage_ipus == (0, 1, 2, 3, 4, 5, 6, 7, 0)
    head = [op for op in graph.ops if op.stage == 8 and op.kind == "softmax"]
    assert len(head) > 2  # the losses' and that of the attention there


@pytest.mark.parametrize("row", [row for row in ROWS if "MLPerf v" in row.name], ids=str)
def test_every_placement_of_mlperf_has_all_halves_once(row: Row) -> None:
    halves = row.workload.arguments.get("halves", ())
    assert sum(count for _, count in halves) in (0, 2 * 24)
    ipus = [ipu for ipu, _ in halves]
    assert ipus == [*range(1, len(ipus)), 0][: len(ipus)]


def test_packs_send_numbers_of_sequences_and_the_ipu_makes_the_mask() -> None:
    graph, _ = described_row(named("BERT-Large packed training, 512 words, PopART"))
    numbers = {tensor.dtype for tensor in graph.of_role(Role.INPUT)}
    assert not any(kind.startswith("float") for kind in numbers)
    made = [op for op in graph.ops if graph.tensors[op.outputs[0]].shape == (2, 1, 512, 512)]
    assert made


@pytest.mark.parametrize(
    ("name", "millions", "stages"),
    [
        ("ViT-B/16 pretraining", 87.2, (0, 1, 2, 3)),
        ("ResNeXt-101 training, TF1", 44.2, (0, 1)),
        ("GPT-2 training, POD4, CARAML", 124.5, (0, 1, 2, 3, 0)),
    ],
)
def test_a_network_has_its_size_and_stages(
    name: str, millions: float, stages: tuple[int, ...]
) -> None:
    graph, _ = described_row(named(name))
    # A buffer of GPT-2 has which words come earlier; norms of a batch, what they have seen.
    known = ("running", "earlier")
    weights = [t for t in graph.of_role(Role.WEIGHT) if not any(word in t.name for word in known)]
    assert sum(tensor.elements for tensor in weights) == pytest.approx(millions * 1e6, rel=0.005)
    assert graph.schedule.stage_ipus == stages
    assert "unknown" not in {op.kind for op in graph.ops}


def test_rows_that_differ_around_the_graph_share_it() -> None:
    first, _ = described_row(small())
    later = dataclasses.replace(small().workload, chip="mk2", iterations=64)
    second, settings = described_row(small(workload=later))
    assert second.ops is first.ops
    assert second.schedule.device_iterations == 64
    assert settings.chip == "mk2"


def test_options_are_what_the_row_says() -> None:
    options = options_of(named("BERT-Large training, PopART").workload)
    assert options.available_memory_proportion == {0: 0.15, 1: 0.25, 2: 0.25, 3: 0.25}
    assert options.Training.gradient_accumulation == 2048


def test_one_proportion_of_a_row_is_meant_for_all_its_ipus() -> None:
    arguments = {"name": "mobilenet-v3-small", "splits": ("features.3", "features.6")}
    workload = dataclasses.replace(
        small().workload, arguments=arguments, proportion=(0.2,), iterations=3
    )
    graph, settings = described_row(small(workload=workload))
    assert graph.schedule.ipus == 3
    assert settings.available_memory_proportion == (0.2, 0.2, 0.2)


def test_a_packed_row_counts_sequences() -> None:
    plain = judged()
    workload = dataclasses.replace(small().workload, packing=2.0)
    packed = Judged(small(workload=workload), plain.estimate)
    assert packed.predicted == pytest.approx(2 * plain.predicted)
    assert packed.ratio == pytest.approx(2 * plain.ratio)


def test_a_latency_is_what_is_in_flight_over_the_predicted_rate() -> None:
    one = judged(name=LATENCIES[0].row)
    (found,) = latencies([one, judged()])
    assert found.predicted == pytest.approx(1e3 * LATENCIES[0].in_flight / one.predicted)
    assert found.alone == pytest.approx(1e3 * one.estimate.latency_seconds)
    assert f"| {found.predicted:.2f} | 50.42 | {found.ratio:.2f} |" in page([one], {}, [])
    assert "## Latency" not in page([judged()], {}, [])


def test_a_known_configuration_that_does_not_fit_is_shown_so() -> None:
    large = dataclasses.replace(small().workload, micro_batch=3000)
    row = small(figure=None, workload=large)
    (found,) = fits([row], ())
    assert not found.estimate.fits
    text = page([judged()], {}, [found, Fit(small(), judged().estimate, 2.0)])
    assert "1 of 2 configurations that are known to have run fit" in text
    assert "| **no** | 1 × |" in text


def test_weights_in_single_precision_are_rounded_where_they_are_used() -> None:
    plain = named("ResNet-50 training, 16.32").workload
    arguments = {"name": "mobilenet-v3-small", "single_weights": True}
    row = small(workload=dataclasses.replace(plain, arguments=arguments, micro_batch=2))
    graph, _ = described_row(row)
    weights = [tensor for tensor in graph.of_role(Role.WEIGHT) if tensor.name.endswith("original")]
    assert weights
    assert {tensor.dtype for tensor in weights} == {"float32"}
    products = [op for op in graph.ops if op.kind == "convolution"]
    assert products
    assert all(graph.tensors[name].dtype == "float16" for op in products for name in op.inputs)


def test_a_u_net_has_the_sizes_and_stages_of_its_program() -> None:
    graph, settings = described_row(named("U-Net training"))
    assert graph.schedule.stage_ipus == (0, 1, 2, 3)
    parameters = sum(tensor.elements for tensor in graph.of_role(Role.WEIGHT))
    assert parameters == pytest.approx(31.03e6, rel=0.001)
    (images, known) = graph.of_role(Role.INPUT)
    assert (images.shape, known.shape) == ((1, 1, 572, 572), (1, 388, 388))
    assert "unknown" not in {op.kind for op in graph.ops}
    assert settings.available_memory_proportion == (0.7, 0.3, 0.45, 0.7)


def test_contradicted_rows_are_shown_but_not_counted() -> None:
    good, bad = judged(), judged(doubtful="another source says otherwise")
    assert counted([good, bad]) == [good]
    assert [one.row for one in priced([good.row, bad.row])] == [good.row]
    text = page([good, bad], {}, [])
    assert "(Small)" in text
    assert "another source says otherwise" in text


def test_errors_are_shares_of_the_figure() -> None:
    one = judged()
    exact = Judged(small(figure=one.predicted / 1.1), one.estimate)
    assert exact.error == pytest.approx(0.1)
    assert median_error([exact]) == pytest.approx(0.1)
    slow = Judged(small(figure=one.predicted / 0.7), one.estimate)
    assert median_error([exact, slow]) == pytest.approx(0.2)


def test_the_page_has_prediction_and_figure_of_each_row() -> None:
    one = judged()
    fit = Fit(small(), one.estimate, 2.0)
    text = page([one], {"Small": [0.1, 0.3]}, [fit])
    assert f"| {one.predicted:,.0f} | 1,000 |" in text
    assert "Known wrong terms" in text
    assert "| 2 × |" in text
    assert fit.right
    assert not Fit(small(), one.estimate, None).right
    assert "Small 20.0%" in text
    assert "1 of these stop fitting" in text
    quick = page([one], {}, [dataclasses.replace(fit, stops_at=None, tried=False)])
    assert "not tried" in quick


def test_a_larger_micro_batch_is_tried_until_it_fits_no_more() -> None:
    tight = dataclasses.replace(small(figure=None).workload, micro_batch=250, chip="mk2")
    never, soon = fits([small(figure=None), small(figure=None, workload=tight)], (1.5, 2.5))
    assert (never.stops_at, never.right) == (None, False)
    assert soon.estimate.fits
    assert soon.stops_at in (1.5, 2.5)
    assert soon.right


def test_a_row_that_was_not_chosen_to_fill_memory_says_why() -> None:
    roomy = Fit(small(roomy="the batch was somebody's favourite number"), judged().estimate, None)
    assert roomy.right
    assert "favourite number" in page([judged()], {}, [roomy])
    assert all(row.roomy == "" or row.figure is None for row in EVERY)
