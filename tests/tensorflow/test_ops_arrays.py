"""Slicing, matrix products, histograms, dropout, eight-bit and generic floats, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.plugin.poplar.ops import gen_popops_ops, gen_poprand_ops, gen_poputil_ops
from tensorflow.python.ipu.ops import (
    f8_ops,
    image_ops,
    math_ops,
    rand_ops,
    slicing_ops,
    statistics_ops,
)
from tensorflow.python.ipu.ops.experimental.popfloat_cast_to_gfloat import GenericFloat


def test_slices_land_at_their_offsets_and_gradients_flow_back_from_there():
    src = tf.reshape(tf.range(12.0), [6, 2])
    dst = tf.fill([7, 2], -1.0)
    with tf.GradientTape() as tape:
        tape.watch([src, dst])
        kept = slicing_ops.sequence_slice(dst, src, [2, 1], [3, 0], [1, 5], False)
    expected = np.full([7, 2], -1.0)
    expected[1:3], expected[5] = src[3:5], src[0]
    np.testing.assert_array_equal(kept, expected)
    to_src, to_dst = tape.gradient(kept, [src, dst])
    np.testing.assert_array_equal(to_src[:, 0], [1, 0, 0, 1, 1, 0])
    np.testing.assert_array_equal(to_dst[:, 0], [1, 0, 0, 1, 1, 0, 1])
    zeroed = slicing_ops.sequence_slice(dst, src, [2, 1], [3, 0], [1, 5], True)
    np.testing.assert_array_equal(zeroed, np.where(expected < 0, 0, expected))


def test_unpack_and_pack_are_inverse():
    src = tf.reshape(tf.range(12), [6, 2])
    unpacked = slicing_ops.sequence_slice_unpack(src, [2, 1], [3, 0], 3)
    np.testing.assert_array_equal(unpacked, tf.gather(src, [3, 4, 0]))
    packed = slicing_ops.sequence_slice_pack(tf.zeros_like(src), unpacked, [2, 1], [3, 0], True)
    np.testing.assert_array_equal(packed, src * [[1], [0], [0], [1], [1], [0]])
    with pytest.raises(ValueError, match="matching, nonzero shapes"):
        slicing_ops.sequence_slice_unpack(src, [2, 1], [3], 3)


def test_serialised_products_are_products_and_factors_must_divide():
    a, b = tf.random.normal([2, 4, 6]), tf.random.normal([8, 6])
    result = math_ops.serialized_matmul(a, b, 3, "a_rows_b_columns", transpose_b=True)
    np.testing.assert_allclose(result, a @ tf.transpose(b), rtol=1e-6)
    with pytest.raises(ValueError, match=r"\(3\) to divide the columns dimension of 'a' \(4\)"):
        math_ops.serialized_matmul(a, b, 3, "a_columns", transpose_b=True)
    with pytest.raises(ValueError, match="Invalid serialization_dimension=rows"):
        math_ops.serialized_matmul(a, b, 2, "rows", transpose_b=True)


def test_segment_sum_has_as_many_rows_as_segments():
    data = tf.reshape(tf.range(8.0), [4, 2])
    sums = math_ops.segment_sum(data, [0, 0, 2, 2], 4)
    np.testing.assert_array_equal(sums, [[2, 4], [0, 0], [10, 12], [0, 0]])


def test_a_value_on_a_level_counts_above_it():
    levels = [0.5, 1.0]
    counts = statistics_ops.histogram([-0.6, 0.5, 0.7, 1.0], levels)
    np.testing.assert_array_equal(counts, [1, 2, 1])
    more = statistics_ops.histogram_update(counts, [-0.6], levels, absolute_of_input=True)
    np.testing.assert_array_equal(more, [1, 3, 1])
    np.testing.assert_allclose(statistics_ops.histogram_normalize(more), [0.2, 0.6, 0.2])
    np.testing.assert_allclose(statistics_ops.fixed_width_bins([1.0, 3.0, 2.0], 3), [1, 2, 3])


def test_images_get_a_fourth_channel():
    image = tf.constant([[[1, 2, 3]]], tf.uint8)
    output = image_ops.normalise_image(image, [1, 1, 1], [1, 10, 100], scale=2)
    assert output.dtype == tf.float16
    np.testing.assert_array_equal(output, [[[1, 30, 500, 0]]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="has 2 channels, expected 3"):
        image_ops.normalise_image(tf.zeros([4, 2]), [1, 1, 1], [1, 1, 1])


def test_dropout_keeps_the_mean_and_its_gradient_has_the_same_mask():
    x = tf.ones([64, 64])
    with tf.GradientTape() as tape:
        tape.watch(x)
        output = rand_ops.dropout(x, rate=0.25, noise_shape=[64, 1])
    np.testing.assert_array_equal(tape.gradient(output, x), output)
    assert set(np.unique(output).round(4)) == {0, np.float32(1.3333)}
    assert np.all(output == output[:, :1])
    assert 0.7 < np.mean(rand_ops.dropout(x, rate=0.25)) < 1.3


def test_a_seed_fixes_the_mask_and_none_changes_it():
    x = tf.ones([100])
    run = tf.function(lambda seed: rand_ops.dropout(x, seed=seed))
    np.testing.assert_array_equal(run([1, 2]), run([1, 2]))
    assert np.any(run([1, 2]) != run([1, 3]))
    free = tf.function(lambda: gen_poprand_ops.ipu_dropout(x, rate=0.5, scale=1.0)[1])
    assert np.any(free() != free())
    with pytest.raises(ValueError, match="The rate must be in the range"):
        rand_ops.dropout(x, rate=1.0)
    with pytest.raises(TypeError, match="unexpected arguments: sed"):
        rand_ops.dropout(x, sed=[1, 2])


@pytest.mark.parametrize(
    ("fmt", "dtype"),
    [
        (f8_ops.Format.F143, ml_dtypes.float8_e4m3fnuz),
        (f8_ops.Format.F152, ml_dtypes.float8_e5m2fnuz),
    ],
)
@pytest.mark.parametrize("scale", [-3, 0, 2])
def test_eight_bit_codes_are_those_of_the_standard_formats(fmt, dtype, scale):
    metadata = f8_ops.create_metadata(fmt, scale)
    largest = float(ml_dtypes.finfo(dtype).max) * 2.0**scale
    values = np.random.default_rng(0).normal(size=500) * 2.0 ** np.linspace(-14, 7, 500)
    values = np.clip(values, -largest, largest).astype(np.float16)
    values[:3] = [0.0, -0.0, np.nan]
    ours = f8_ops.convert_to_f8(tf.constant(values), metadata)
    expected = (values.astype(np.float32) / 2.0**scale).astype(dtype)
    np.testing.assert_array_equal(ours.data, expected.view(np.uint8))
    back = (expected.astype(np.float32) * 2.0**scale).astype(np.float16)
    np.testing.assert_array_equal(f8_ops.convert_from_f8(ours), back)


def test_eight_bit_operands_multiply_and_convolve():
    meta = f8_ops.create_metadata(f8_ops.Format.F143, 1)
    a, b = tf.constant([[1.0, 2.0], [-4.0, 0.5]]), tf.constant([[2.0], [3.0]])
    product = f8_ops.f8_matmul(f8_ops.convert_to_f8(a, meta), b)
    assert product.dtype == tf.float16
    np.testing.assert_array_equal(product, a @ b)
    image, kernel = tf.ones([1, 3, 5, 5]), tf.ones([2, 2, 3, 4])
    quarters = f8_ops.convert_to_f8(image, meta)
    first = f8_ops.f8_conv_2d(quarters, kernel, 2, "VALID", data_format="NCHW")
    np.testing.assert_array_equal(first, np.full([1, 4, 2, 2], 12))
    one = f8_ops.f8_conv_1d(f8_ops.convert_to_f8(tf.ones([1, 5, 3]), meta), kernel[0], 1, "VALID")
    np.testing.assert_array_equal(one, np.full([1, 4, 4], 6))


def test_quarter_tensors_hold_codes_only():
    with pytest.raises(TypeError, match="only uint8 are supported"):
        f8_ops.QuarterTensor(tf.zeros([2]), 0)
    assert f8_ops.QuarterTensor(np.zeros(2), 0) == f8_ops.QuarterTensor(np.zeros(2), 0)


@pytest.mark.parametrize(
    ("man", "exp", "bias", "dtype"),
    [(2, 5, 15, ml_dtypes.float8_e5m2), (7, 8, 127, ml_dtypes.bfloat16), (10, 5, 15, np.float16)],
)
def test_generic_floats_round_like_known_formats(man, exp, bias, dtype):
    values = (np.random.default_rng(0).normal(size=300) * 2.0 ** np.linspace(-12, 12, 300)).astype(
        np.float32
    )
    generic = GenericFloat(man, exp, bias)
    stored = generic.cast_native_to_gfloat(values)
    assert stored.dtype == generic.get_gfloat_storage_dtype()
    restored = tf.cast(generic.cast_gfloat_to_native(stored, "fp32"), tf.float32)
    np.testing.assert_array_equal(restored, values.astype(dtype).astype(np.float32))


def test_generic_floats_let_gradients_through():
    x = tf.constant([0.3, 1.7])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = GenericFloat(3, 4, 7).cast_native_to_gfloat(x, storage_type="fp32")
    np.testing.assert_array_equal(tape.gradient(y, x), [1, 1])


def test_accumulation_returns_the_sum_with_the_last_mini_batch():
    @tf.function
    def step(x):
        return gen_poputil_ops.ipu_stateful_gradient_accumulate(x, num_mini_batches=3)

    seen = [step(tf.constant([float(i)])).numpy()[0] for i in range(1, 7)]
    assert seen == [0, 0, 6, 0, 0, 15]
    with pytest.raises(RuntimeError, match="use it inside a tf.function"):
        gen_poputil_ops.ipu_stateful_gradient_accumulate(tf.ones([1]), 3)


def test_accumulation_with_momentum_decays_at_each_first_mini_batch():
    velocity = tf.Variable([0.0])

    @tf.function
    def step():
        return gen_poputil_ops.ipu_stateful_gradient_accumulate_with_momentum(
            velocity.handle, tf.ones([1]), momentum=0.8, num_mini_batches=5
        )

    np.testing.assert_allclose(
        [step().numpy()[0] for _ in range(10)], [0] * 4 + [5] + [0] * 4 + [9]
    )


def test_multi_slice_has_a_dense_gradient_that_adds_up():
    table = tf.Variable(tf.ones([4, 2]))
    with tf.GradientTape() as tape:
        rows = gen_popops_ops.ipu_multi_slice(table, [1, 1, 3])
    gradient = tape.gradient(rows, table)
    assert isinstance(gradient, tf.Tensor)
    np.testing.assert_array_equal(gradient, [[0, 0], [2, 2], [0, 0], [1, 1]])
    added = gen_popops_ops.ipu_multi_update_add(table, [0, 0], tf.ones([2, 2]), scale=3)
    np.testing.assert_array_equal(added[:, 0], [7, 1, 1, 1])
