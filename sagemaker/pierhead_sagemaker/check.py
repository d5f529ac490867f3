"""`pierhead check`: what would be served, or what is wrong, without starting anything."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from pierhead.errors import ArtifactError
from pierhead_sagemaker.inspection import Inspection, describe, inspect_artifact
from pierhead_sagemaker.opt_ml import OptMl, lay_tree, private_folder
from pierhead_sagemaker.terminal import say

__all__ = ["add_parser", "inspect_tree", "run"]

DESCRIPTION = """\
Say what a container would serve from ARTIFACT: its models and versions, which of them is the default, the
hooks in code/inference.py, the packages they bring and the sample request. Where it could not be served, say
why and exit with status 1. Nothing is started and no code of the artifact is run."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "check",
        help="say what would be served from an artifact, or what is wrong with it",
        description=DESCRIPTION,
        epilog="example:\n  pierhead check model.tar.gz",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "artifact", metavar="ARTIFACT", type=Path, help="a model.tar.gz, or the folder it unpacks to"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Check the artifact and tell; raises ArtifactError where it cannot be served."""
    artifact: Path = options.artifact
    with private_folder() as folder:
        inspection = inspect_tree(artifact, lay_tree(artifact, folder), os.environ)
    say(f"{artifact} can be served\n{describe(inspection)}")
    return 0


def inspect_tree(artifact: Path, tree: OptMl, environ: Mapping[str, str]) -> Inspection:
    """Return what the tree holds; an ArtifactError names the user's archive, not our folder."""
    try:
        return inspect_artifact(tree.model, environ)
    except ArtifactError as error:
        reason = str(error).replace(str(tree.model), str(artifact))
        raise ArtifactError(f"{artifact} cannot be served: {reason}") from error
