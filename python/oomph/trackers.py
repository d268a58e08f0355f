"""Turns off uploads and experiment trackers in a dry run: its numbers are meaningless and belong in nobody's history.

Nothing is imported here. Environment variables are set right before the library that reads them is imported, and
functions are replaced right after; a program that does not use a tracker sees nothing of this.
"""

from __future__ import annotations

import os

from oomph import _protocol as protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_ENVIRONMENT = {
    # WANDB_DISABLED is left alone: Transformers 4 refuses `report_to="wandb"` with it, and 5 has dropped it.
    "wandb": {"WANDB_MODE": "disabled", "WANDB_SILENT": "true"},
    "comet_ml": {"COMET_MODE": "disabled", "COMET_AUTO_LOG_DISABLE": "1"},
    "neptune": {"NEPTUNE_MODE": "debug"},
    "clearml": {"CLEARML_OFFLINE_MODE": "1"},
    "swanlab": {"SWANLAB_MODE": "disabled"},
    "huggingface_hub": {"HF_HUB_DISABLE_TELEMETRY": "1"},
    "vllm": {"VLLM_NO_USAGE_STATS": "1"},
    "ray": {"RAY_USAGE_STATS_ENABLED": "0"},
    "gradio": {"GRADIO_ANALYTICS_ENABLED": "False"},
    "codecarbon": {"CODECARBON_SAVE_TO_API": "false"},
}

_COMMITS = (
    "create_commit", "upload_file", "upload_folder", "delete_file", "delete_files", "delete_folder",
)
_SILENT = (
    "upload_large_folder", "preupload_lfs_files", "delete_repo", "create_branch", "delete_branch", "create_tag",
    "delete_tag", "super_squash_history", "update_repo_settings", "update_repo_visibility", "move_repo",
    "add_space_secret", "add_space_variable", "delete_space_secret", "delete_space_variable", "add_collection_item",
    "delete_collection", "merge_pull_request", "permanently_delete_lfs_files",
)


def install() -> None:
    """Wait for every tracker and for the Hub's client."""
    from oomph.hook import before_import, on_import

    for module, variables in _ENVIRONMENT.items():
        before_import(module, _setting(variables))
    on_import("wandb", _wandb)
    on_import("comet_ml", _comet)
    before_import("mlflow", _mlflow_environment)
    on_import("mlflow", _mlflow)
    on_import("clearml", lambda module: module.Task.set_offline(True))
    on_import("huggingface_hub.hf_api", _hub)
    on_import("huggingface_hub.repository", _git_repository)


def _setting(variables):
    return lambda: os.environ.update(variables)


def _wandb(module):
    """A mode given in code beats the environment, so `init` gets the mode again; `login` would ask for a key."""
    import functools

    init = module.init

    @functools.wraps(init)
    def disabled(*args, **kwargs):
        kwargs["mode"] = "disabled"
        return init(*args, **kwargs)

    module.init = disabled
    module.login = lambda *args, **kwargs: True


def _comet(module):
    for name in ("Experiment", "ExistingExperiment", "OfflineExperiment"):
        cls = getattr(module, name, None)
        if cls is None:
            continue

        def __init__(self, *args, _original=cls.__init__, **kwargs):  # type: ignore[misc]
            kwargs["disabled"] = True
            _original(self, *args, **kwargs)

        cls.__init__ = __init__


def _mlflow_scratch():
    return "file:" + os.path.join(os.environ.get(protocol.PATH_RUN_VARIABLE, "/tmp"), protocol.PATH_SCRATCH, ".mlruns")


def _is_remote(uri):
    return str(uri).split(":", 1)[0] in ("http", "https", "databricks", "databricks-uc", "postgresql", "mysql", "mssql")


def _mlflow_environment():
    if _is_remote(os.environ.get("MLFLOW_TRACKING_URI", "")):
        os.environ["MLFLOW_TRACKING_URI"] = _mlflow_scratch()
    # The file store, which needs no server and no database, asks for this in mlflow 3.
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")


def _mlflow(module):
    import functools

    original = module.set_tracking_uri

    @functools.wraps(original)
    def set_tracking_uri(uri, *args, **kwargs):
        return original(_mlflow_scratch() if _is_remote(uri) else uri, *args, **kwargs)

    module.set_tracking_uri = set_tracking_uri


def _finished(value):
    from concurrent.futures import Future

    future: Future[Any] = Future()
    future.set_result(value)
    return future


def _hub(module):
    """Replace what changes the Hub by functions that report success; reading is unchanged."""
    import functools

    api = module.HfApi
    endpoint = getattr(module.constants, "ENDPOINT", "https://huggingface.co") if hasattr(module, "constants") else \
        "https://huggingface.co"

    def repo_url(repo_id, repo_type=None):
        prefix = {"dataset": "datasets/", "space": "spaces/"}.get(repo_type, "")
        name = repo_id if "/" in repo_id else "dry-run/" + repo_id
        return endpoint + "/" + prefix + name

    def commit(self, *args, **kwargs):
        repo_id = kwargs.get("repo_id") or next((value for value in args if isinstance(value, str)), "dry-run/dry-run")
        info = module.CommitInfo(
            commit_url=repo_url(repo_id, kwargs.get("repo_type")) + "/commit/" + "0" * 40,
            commit_message=kwargs.get("commit_message") or "dry run", commit_description="", oid="0" * 40,
        )
        return _finished(info) if kwargs.get("run_as_future") else info

    def create_repo(self, repo_id, *args, **kwargs):
        return module.RepoUrl(repo_url(repo_id, kwargs.get("repo_type")))

    def nothing(self, *args, **kwargs):
        return None

    replaced = {"create_repo": create_repo}
    replaced.update((name, commit) for name in _COMMITS)
    replaced.update((name, nothing) for name in _SILENT)
    shared = getattr(module, "api", None)
    for name, function in replaced.items():
        original = getattr(api, name, None)
        if original is None:
            continue
        setattr(api, name, functools.wraps(original)(function))
        # The functions of the module are methods of one shared object, bound when the module was executed.
        if shared is not None and hasattr(module, name):
            setattr(module, name, getattr(shared, name))


def _git_repository(module):
    """The older way to the Hub: pushes of a local git clone."""
    for name in ("git_push", "push_to_hub"):
        if hasattr(module.Repository, name):
            setattr(module.Repository, name, lambda self, *args, **kwargs: "")
