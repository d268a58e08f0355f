"""Leaves out what TensorFlow writes without Python in a dry run: checkpoints, saved models, summaries.

TensorFlow's own file system is compiled code, out of the overlay's reach. What Keras saves (`.keras`, `.weights.h5`) is
written by Python's files and kept in the overlay like everything else.
"""

from __future__ import annotations

import functools

from oomph import hook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oomph._types import Library
    from oomph.record import Record


def install(tensorflow: Library, record: Record) -> None:
    """Attach to a TensorFlow that has just been imported."""
    python = "tensorflow.python."
    hook.on_import(python + "checkpoint.checkpoint", lambda module: _skip_checkpoints(module, record))
    hook.on_import(python + "checkpoint.checkpoint_management", _keep_the_old_ones)
    hook.on_import(python + "saved_model.save", lambda module: _skip_models(module, tensorflow, record))
    hook.on_import(python + "ops.summary_ops_v2", lambda module: _skip_summaries(module, tensorflow))


def _skip_checkpoints(module, record):
    saver = module.TrackableSaver
    original = saver.save

    @functools.wraps(original)
    def save(self, file_prefix, *args, **kwargs):
        prefix = file_prefix.numpy() if hasattr(file_prefix, "numpy") else file_prefix
        prefix = prefix.decode() if isinstance(prefix, bytes) else str(prefix)
        record.warn("TensorFlow's checkpoint %s was not written; --allow-writes would have it written." % prefix)
        return prefix

    saver.save = save


def _keep_the_old_ones(module):
    """A manager of checkpoints deletes those of earlier runs when it has saved enough new ones."""
    module.update_checkpoint_state_internal = lambda *args, **kwargs: None
    module.CheckpointManager._sweep = lambda self: None


def _skip_models(module, tensorflow, record):
    @functools.wraps(module.save)
    def save(obj, export_dir, *args, **kwargs):
        record.warn("The saved model %s was not written; --allow-writes would have it written." % export_dir)

    module.save = save
    tensorflow.saved_model.save = save


def _skip_summaries(module, tensorflow):
    @functools.wraps(module.create_file_writer_v2)
    def create_file_writer_v2(*args, **kwargs):
        return module.create_noop_writer()

    module.create_file_writer_v2 = create_file_writer_v2
    tensorflow.summary.create_file_writer = create_file_writer_v2
