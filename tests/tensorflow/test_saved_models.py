"""Exported models: plain SavedModels that any TensorFlow runs, frozen, with known names."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ipu import serving

SPEC = tf.TensorSpec([3], tf.float32)
X = np.float32([1, 2, 3])


def loaded(path):
    return tf.saved_model.load(str(path)).signatures["serving_default"]


def test_a_step_is_saved_with_the_values_its_variables_had(tmp_path):
    w = tf.Variable(4.0)

    @tf.function
    def step(x, y):
        return x * y + w

    run = serving.export_single_step(step, str(tmp_path / "m"), 16, (SPEC, SPEC), output_names="z")
    w.assign(0.0)
    for result in (run(X, X)["z"], loaded(tmp_path / "m")(x=X, y=X)["z"]):
        np.testing.assert_array_equal(result, X * X + 4)


def test_stock_tensorflow_runs_what_was_saved(tmp_path):
    serving.export_single_step(lambda x: (x, -x), str(tmp_path / "m"), 1, (SPEC,))
    program = (
        "import sys, tensorflow as tf\n"
        f"f = tf.saved_model.load({str(tmp_path / 'm')!r}).signatures['serving_default']\n"
        "print(f(x=tf.constant([1.0, 2.0, 3.0]))['output_1'].numpy().tolist())\n"
        "assert 'tensorflow.python.ipu' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[-1.0, -2.0, -3.0]", done.stderr


def test_steps_before_and_after_run_with_it(tmp_path):
    serving.export_single_step(
        tf.function(lambda x: x * 10, input_signature=[SPEC]),
        str(tmp_path / "m"),
        1,
        preprocessing_step=lambda text: tf.strings.to_number(text),
        preprocessing_step_signature=[tf.TensorSpec([3], tf.string)],
        postprocessing_step=lambda y: tf.strings.as_string(tf.cast(y, tf.int32)),
        postprocessing_step_signature=[SPEC],
    )
    result = loaded(tmp_path / "m")(text=tf.constant(["1", "2", "3"]))["output_0"]
    assert result.numpy().tolist() == [b"10", b"20", b"30"]


def test_steps_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(ValueError, match="`preprocessing_step` returned Tensor at position 0"):
        serving.export_single_step(
            lambda x: x,
            str(tmp_path / "m"),
            1,
            predict_step_signature=[SPEC],
            preprocessing_step=lambda x: x[:2],
            preprocessing_step_signature=[SPEC],
        )


def test_a_pipeline_is_its_stages_in_a_row(tmp_path):
    w = tf.Variable(3.0)
    serving.export_pipeline(
        [lambda scale, x: (x * scale, w), lambda y, shift: y + shift],
        str(tmp_path / "m"),
        8,
        inputs=[2.0],
        device_mapping=[0, 1],
        input_dataset=tf.data.Dataset.from_tensors(tf.zeros([3])),
    )
    np.testing.assert_array_equal(loaded(tmp_path / "m")(x=X)["output_0"], X * 2 + 3)


@pytest.mark.parametrize(
    ("options", "problem", "kind"),
    [
        ({}, "deduction from given `predict_step` is not possible", ValueError),
        ({"predict_step_signature": ()}, "must be not empty", ValueError),
        ({"predict_step_signature": SPEC}, "must be an instance of tuple or list", TypeError),
        ({"predict_step_signature": [3]}, r"\[0\]` is not an instance of TensorSpec", TypeError),
        ({"predict_step_signature": [SPEC] * 2}, "does not match the number of", ValueError),
        ({"predict_step_signature": [SPEC], "output_names": ["a", "b"]}, "Length of output", ValueError),
        ({"input_dataset": 3}, "instance of tf.Dataset", TypeError),
        (
            {"predict_step_signature": [SPEC], "input_dataset": tf.data.Dataset.range(3)},
            "Please pass only one of them",
            ValueError,
        ),
    ],
)  # fmt: skip
def test_wrong_arguments_get_the_errors_users_know(tmp_path, options, problem, kind):
    with pytest.raises(kind, match=problem):
        serving.export_single_step(lambda x: x, str(tmp_path / "m"), 1, **options)


def test_a_directory_that_is_not_empty_is_kept_unless_asked(tmp_path):
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(ValueError, match="is not empty"):
        serving.export_single_step(lambda x: x, str(tmp_path), 1, [SPEC])
    assert (tmp_path / "mine").exists()
    serving.export_single_step(lambda x: x, str(tmp_path), 1, [SPEC], purge_export_dir=True)
    assert not (tmp_path / "mine").exists()
    np.testing.assert_array_equal(loaded(tmp_path)(x=X)["output_0"], X)


def test_a_keras_model_must_be_made_under_a_strategy(tmp_path):
    with pytest.raises(ValueError, match="not created inside an IPU strategy"):
        serving.export_keras(tf.keras.Sequential(), str(tmp_path))
