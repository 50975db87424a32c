"""The tree of verbs, and how their errors are reported."""

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import fields
from importlib import import_module
from importlib.metadata import version
from typing import NoReturn

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes
from tyro.extras import SubcommandApp

from bcq.system import interruption, progress
from bcq.system.errors import BCQError, InputError, InterruptionError

NOTHING_SAVED = "nothing was saved; run the same command to start again"
# What to do about an error or a finding of the library, by the setting that it names (`option`).
HINTS = {
    "action_kind": "--action-kind continuous or discrete decides it",
    "action_low": "use --action-low and --action-high",
    "action_margin": "use --action-low and --action-high, or --action-margin 0.05",
    "card": "give one with --out",
    "compared_data": "give the batch with --data",
    "columns": "use --columns ROLE=COLUMN",
    "discount": "`bcq train --discount` sets it",
    "engine": "add --engine ray",
    "env": "give it with --env",
    "export": "`bcq export RUN policy.onnx` makes one of a run",
    "force": "add --force to overwrite it, or give another name",
    "fix": "`bcq inspect --fix` does this",
    "hold_out": "use `bcq train --hold-out 0.2`, or --fit-on all",
    "judged_discount": "give one with --discount",
    "onnx": "`pip install onnx onnxruntime` installs all it needs (the extra onnx)",
    "out": "give such a folder with --out",
    "picture": "give it with --picture",
    "share": "give one with --hold-out",
    "serve": "`pip install starlette uvicorn` installs all it needs (the extra serve)",
    "step_format": "give it with --step-format",
    "ray": "`pip install 'ray>=2.60'` installs it (the extra ray)",
    "store": "`pip install s3fs` installs it (the extra store)",
    "port": "give another one with --port; 0 takes a free one",
    "policy": "train one with `bcq experts train` and give its folder with --policy",
    "ranking": "train with --env ID, or with --hold-out 0.2 if there is no environment",
    "scaling": "`bcq train --scaling standard` sets it",
    "resume": "add --resume to continue it, or give another folder with --out",
}
# The module of a verb is imported only if the verb is used: JAX and MuJoCo take seconds.
VERBS = {
    "train": ("training", "Train a policy on a fixed batch of logged transitions."),
    "sweep": (
        "sweeping",
        "Train with several settings and seeds on your files, and compare the results.",
    ),
    "compare": (
        "sweeping",
        "Compare trained policies: a table and a picture over seeds.",
    ),
    "evaluate": (
        "training",
        "Measure a trained policy in an environment, without exploration noise.",
    ),
    "judge": (
        "judging",
        "Judge trained policies by logged episodes, without a simulator.",
    ),
    "report": (
        "judging",
        "Judge a trained policy and write its report card, a page for those who decide.",
    ),
    "export": (
        "exporting",
        "Write a trained policy as one file that runs without this software.",
    ),
    "serve": (
        "serving",
        "Answer requests for actions of an exported policy over HTTP.",
    ),
    "collect": ("collecting", "Collect a batch with a recipe of the paper."),
    "experts": ("collecting", "Train experts, or list the bundled ones."),
    "inspect": (
        "batches",
        "Summarise a batch, check it for problems and draw a picture of it.",
    ),
    "convert": (
        "batches",
        "Write a batch of any readable format as HDF5 or Minari.",
    ),
    "theory": (
        "papers",
        "Demonstrate the theory of the paper, check its statements and draw its pictures.",
    ),
    "reproduce": (
        "papers",
        "Reproduce the paper: run its experiments, draw its figures and judge its claims.",
    ),
    "demo": ("papers", "Run a demo that needs no preparation."),
}


def application(arguments: Sequence[str]) -> SubcommandApp:
    """All verbs by name; only the one in the arguments has its options."""
    app = SubcommandApp()
    for name, (module, says) in VERBS.items():
        verb = import_module(f"bcq.cli.{module}").VERBS[name] if name in arguments[:1] else unloaded
        if isinstance(verb, SubcommandApp):
            app.command(verb, name=name, help=says)
        else:
            app.command(name=name, help=says)(verb)
    return app


def unloaded() -> None:
    """Stands for a verb that is not in the arguments."""


def main(arguments: Sequence[str] | None = None) -> None:
    """What the `bcq` command does."""
    arguments = sys.argv[1:] if arguments is None else arguments
    with interruption.watched():
        try:
            try:
                run(arguments)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:  # the reader, such as `head`, closed the pipe
            progress.discard(sys.stdout)
            sys.exit(128 + signal.SIGPIPE)


def run(arguments: Sequence[str]) -> None:
    """Parses the arguments and runs the verb; an error is printed in one line."""
    if list(arguments) == ["--version"]:
        print(f"bcq {version('bcq')}")
        return
    command = None
    try:
        interruption.check()
        command = application(arguments).cli(
            prog="bcq",
            description="Batch-constrained reinforcement learning: learn a policy from logged "
            "transitions, without exploring the environment.",
            args=arguments,
            config=(OmitArgPrefixes, FlagCreatePairsOff),
        )
        import_module("bcq.runs.origin").use_compilation_cache()
        with progress.silenced(getattr(command, "quiet", False)):
            interruption.check()
            command()
        if interruption.requested():
            stop("interrupted, but all work was already finished")
    except (InterruptionError, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt) and interruption.requested():  # the second signal
            interruption.write(interruption.AT_ONCE)
            os._exit(interruption.exit_code())  # without waiting for threads that compute
        stop(f"stopped; {what_is_left(error, command)}")
    except InputError as error:
        # A file's name may have any character.
        sys.exit("bcq: " + with_hint(error).replace("\n", "\\n"))
    except BCQError as error:
        sys.exit(f"bcq: {error}")
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        sys.exit(f"bcq: {str(error.filename or 'a file')[:200]}: {error.strerror or error}")
    except (MemoryError, RuntimeError) as error:  # JAX raises the latter
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        sys.exit(f"bcq: out of memory: {what_to_reduce(command)} ({first_line(error)})")


def with_hint(error: InputError) -> str:
    """The message of an error, with the option that helps."""
    return str(error) if error.option is None else f"{error}; {HINTS[error.option]}"


def what_is_left(error: BaseException, command: object) -> str:
    """What an interrupted command has saved, and how to continue."""
    if not str(error):
        return str(getattr(command, "if_stopped", NOTHING_SAVED))
    option = "" if getattr(command, "resume", True) else " with --resume"
    return f"{error}; run the same command{option} to continue"


def what_to_reduce(command: object) -> str:
    """What can be made smaller: the sizes that were given on the command line."""
    algorithm = getattr(command, "algorithm", None)
    if algorithm is None:
        return "reduce the amount of work"
    sizes = [
        each
        for each in fields(algorithm)
        if each.name.endswith(("_size", "_sizes", "_samples", "members"))
    ]
    given = [each for each in sizes if getattr(algorithm, each.name) != each.default]
    named = (f"--{e.name.replace('_', '-')} {getattr(algorithm, e.name)}" for e in given)
    return f"reduce {', '.join(named) or 'the size of the batch or of the networks'}"


def first_line(error: BaseException) -> str:
    """The first line of an exception."""
    return (str(error) or type(error).__name__).split("\n")[0][:200]


def stop(words: str) -> NoReturn:
    """Reports an interruption and exits with its code."""
    progress.write_line(f"bcq: {words}")
    sys.exit(interruption.exit_code())
