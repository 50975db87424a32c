"""`bcq serve`."""

from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import ClassVar

from tyro.conf import Positional

from bcq.cli.verbs import Verb
from bcq.system import interruption, progress
from bcq.system.errors import InputError, InterruptionError


@dataclass(frozen=True, kw_only=True)
class Serve(Verb):
    """Answer requests for actions of an exported policy over HTTP, until stopped."""

    policy: Positional[Path]
    """file of `bcq export`: .onnx, or .safetensors"""
    port: int = 8000
    """port; 0 takes a free one, which is printed"""
    host: str = "127.0.0.1"
    """address to listen at; only this machine can reach the default"""
    log: Path | None = None
    """write every decision to this folder (decisions.parquet), a batch for the next training"""
    token_file: Path | None = None
    """file with a token that clients must send; if not given, the environment variable BCQ_TOKEN,
    else none is needed"""
    if_stopped: ClassVar[str] = "open requests were answered, and the log is complete"

    def __call__(self) -> None:
        """Serves until a signal comes."""
        try:
            running = import_module("bcq.serving.running")
        except ImportError as error:
            raise InputError(
                f"the package {error.name}, which the service needs, is not installed",
                option="serve",
            ) from error
        policies, service = (import_module(f"bcq.serving.{name}") for name in ("policy", "service"))
        token, local = running.read_token(self.token_file), running.is_local(self.host)
        policy = policies.open_policy(self.policy)
        opened = import_module("bcq.serving.log").opened
        with nullcontext() if self.log is None else opened(self.log, policy) as log:
            place = running.listen(self.host, self.port)
            if not local and token is None:
                progress.say("warning: other machines can ask, and no token is needed")
            shown = f"[{self.host}]" if ":" in self.host else self.host
            address = f"http://{shown}:{place.getsockname()[1]}"
            print(f"{address} serves {self.policy}, policy {policy.fingerprint}", flush=True)
            made = service.Service(policy, log=log, token=token, local=local)
            running.server_of(made).run(sockets=[place])
        if interruption.requested():
            raise InterruptionError


VERBS = {"serve": Serve}
