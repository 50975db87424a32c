"""The command line: verbs only, no logic."""

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import fields
from importlib.metadata import version
from typing import NoReturn

from jax.errors import JaxRuntimeError
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes
from tyro.extras import SubcommandApp

from bcq.algorithms import ALGORITHMS
from bcq.cli.batches import Convert, Inspect
from bcq.cli.collecting import (
    CollectConcurrent,
    CollectFinalBuffer,
    CollectImitation,
    CollectImperfect,
    CollectRandom,
    ListExperts,
    TrainExperts,
)
from bcq.cli.papers import CheetahDemo, PendulumDemo, Reproduce, Theory
from bcq.cli.training import Evaluate, Train
from bcq.cli.verbs import Verb
from bcq.runs.origin import use_compilation_cache
from bcq.system import interruption, progress
from bcq.system.errors import BCQError, InputError, InterruptionError


def application() -> SubcommandApp:
    """The tree of verbs."""
    train = SubcommandApp()
    for name, config in ALGORITHMS.items():
        train.command(name=name, help=config.__doc__)(Train[config])  # type: ignore[valid-type]
    collect = SubcommandApp()
    collect.command(name="final-buffer")(CollectFinalBuffer)
    collect.command(name="concurrent")(CollectConcurrent)
    collect.command(name="imitation")(CollectImitation)
    collect.command(name="imperfect")(CollectImperfect)
    collect.command(name="random")(CollectRandom)
    experts = SubcommandApp()
    experts.command(name="train")(TrainExperts)
    experts.command(name="list")(ListExperts)
    demos = SubcommandApp()
    demos.command(name="cheetah")(CheetahDemo)
    demos.command(name="pendulum")(PendulumDemo)
    app = SubcommandApp()
    app.command(train, name="train", help="Learn a policy from a fixed batch of transitions.")
    app.command(name="evaluate")(Evaluate)
    app.command(collect, name="collect", help="Make a batch as the paper did.")
    app.command(experts, name="experts", help="Train experts, or list the bundled ones.")
    app.command(name="inspect")(Inspect)
    app.command(name="convert")(Convert)
    app.command(name="theory")(Theory)
    app.command(name="reproduce")(Reproduce)
    app.command(demos, name="demo", help="See it work, with nothing to prepare.")
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """What the `bcq` command does."""
    arguments = sys.argv[1:] if arguments is None else arguments
    with interruption.watched():
        try:
            try:
                run(arguments)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:  # whoever read this, such as `head`, has seen enough
            progress.discard(sys.stdout)
            sys.exit(128 + signal.SIGPIPE)


def run(arguments: Sequence[str]) -> None:
    """Parses and obeys; what is wrong is said in one line."""
    if list(arguments) == ["--version"]:
        print(f"bcq {version('bcq')}")
        return
    command = None
    try:
        interruption.check()
        command = application().cli(
            prog="bcq",
            description="Batch-constrained reinforcement learning: learn a policy from logged "
            "transitions, without exploring.",
            args=arguments,
            config=(OmitArgPrefixes, FlagCreatePairsOff),
        )
        use_compilation_cache()
        with progress.silenced(getattr(command, "quiet", False)):
            interruption.check()
            command()
        if interruption.requested():
            stop("interrupted, but everything was done already")
    except (InterruptionError, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt) and interruption.requested():  # the second signal
            interruption.write(interruption.AT_ONCE)
            os._exit(interruption.exit_code())  # threads that still compute are not waited for
        stop(f"stopped; {str(error) or getattr(command, 'if_stopped', Verb.if_stopped)}")
    except InputError as error:
        sys.exit("bcq: " + str(error).replace("\n", "\\n"))  # a file's name may have any character
    except BCQError as error:
        sys.exit(f"bcq: {error}")
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        sys.exit(f"bcq: {str(error.filename or 'a file')[:200]}: {error.strerror or error}")
    except (MemoryError, JaxRuntimeError) as error:
        if isinstance(error, JaxRuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        sys.exit(f"bcq: memory is exhausted: {too_large(command)} ({first_line(error)})")


def too_large(command: object) -> str:
    """What there is to make smaller: the sizes that were given, of those that an algorithm has."""
    if not isinstance(command, Train):
        return "give it less to do at a time"
    sizes = [
        each
        for each in fields(command.algorithm)
        if each.name.endswith(("_size", "_sizes", "_samples", "members"))
    ]
    given = [each for each in sizes if getattr(command.algorithm, each.name) != each.default]
    named = (f"--{e.name.replace('_', '-')} {getattr(command.algorithm, e.name)}" for e in given)
    return f"{', '.join(named) or 'the batch, or the networks,'} is too large"


def first_line(error: BaseException) -> str:
    """An exception of somebody else's code in one line."""
    return (str(error) or type(error).__name__).split("\n")[0][:200]


def stop(words: str) -> NoReturn:
    """Ends with the last word on an interruption, and the exit code of one."""
    progress.put(f"bcq: {words}")
    sys.exit(interruption.exit_code())
