"""Breaks one line at a time, in a copy, and requires that a test fails: `make mutants`.

Each mutant is (file, old line, new line, tests that must notice). The first part of the list holds
the defects that published ports of BCQ have shipped.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

ROOT = Path(__file__).parent.parent


class Mutant(NamedTuple):
    file: str
    old: str
    new: str
    tests: str


BCQ, NETWORKS, LEARNING = "algorithms/bcq.py", "networks.py", "learning.py"
DATASET, TRAINING = "dataset.py", "training.py"
TABULAR_MDP, TABULAR_BATCH = "tabular/mdp.py", "tabular/batch.py"
TABULAR_ERROR, Q_LEARNING = "tabular/extrapolation.py", "tabular/q_learning.py"
KERNEL = "tabular/kernel.py"
THEOREMS, TABULAR_BATCH_TESTS = "test_theorems.py", "test_tabular_batch.py"
ORACLE, SHARED, LOOP = "test_bcq.py", "test_learning.py", "test_training.py"

MUTANTS = [
    # Other ports: generated actions unbounded; target networks that start elsewhere.
    Mutant(
        NETWORKS,
        "return jnp.tanh(self.decoder(observations, latents))",
        "return self.decoder(observations, latents)",
        ORACLE,
    ),
    Mutant(
        BCQ,
        "target_perturbation=perturbation,",
        "target_perturbation=jax.tree.map(lambda leaf: -leaf, perturbation),",
        ORACLE,
    ),
    # 100 samples in training, or when acting.
    Mutant(BCQ, "num_samples: int = 10", "num_samples: int = 100", LOOP),
    Mutant(BCQ, "num_acting_samples: int = 10", "num_acting_samples: int = 100", LOOP),
    # Observations shifted by one row; episodes joined; time limits taken for terminals.
    Mutant(
        DATASET,
        "following = np.concatenate([observations[1:], observations[-1:]])",
        "following = np.concatenate([observations[2:], observations[-2:]])",
        "test_dataset.py",
    ),
    Mutant(
        DATASET,
        "unknown = truncated.copy()",
        "unknown = np.zeros_like(truncated)",
        "test_dataset.py",
    ),
    Mutant(
        DATASET,
        "following[terminated] = observations[terminated]",
        "pass",
        "test_dataset.py",
    ),
    Mutant(
        TRAINING,
        "terminated=jnp.asarray(dataset.terminated),",
        "terminated=jnp.asarray(dataset.terminated | dataset.truncated),",
        LOOP,
    ),
    Mutant(
        "formats/hdf5.py", '"timeouts": "truncated",', '"time_outs": "truncated",', "test_hdf5.py"
    ),
    # The target without the target perturbation network, or without any.
    Mutant(
        BCQ,
        "actions, _ = propose(vae, self.target_perturbation, batch.next_observations, noise)",
        "actions, _ = propose(vae, self.perturbation.model, batch.next_observations, noise)",
        ORACLE,
    ),
    Mutant(
        BCQ,
        "actions, _ = propose(vae, self.target_perturbation, batch.next_observations, noise)",
        "actions = vae.generate(batch.next_observations[:, None], noise)",
        ORACLE,
    ),
    # Twin critics that are one; perturbation off; one perturbation for all dimensions.
    Mutant(NETWORKS, "first, second = jax.random.split(key)", "first = second = key", ORACLE),
    Mutant(BCQ, "max_perturbation: float = 0.05", "max_perturbation: float = 0.0", LOOP),
    Mutant(
        BCQ,
        "residuals = perturbation(observations, generated)",
        "residuals = perturbation(observations, generated)[..., :1]",
        ORACLE,
    ),
    # The KL J times too heavy; a (batch, 1) that meets a (batch,).
    Mutant(
        NETWORKS,
        "kl = -0.5 * jnp.mean(1 + 2 * log_std - mean**2 - std**2)",
        "kl = -0.5 * jnp.mean((1 + 2 * log_std - mean**2 - std**2).sum(axis=-1))",
        ORACLE,
    ),
    Mutant(
        BCQ,
        "errors = critics(batch.observations, batch.actions) - target",
        "errors = critics(batch.observations, batch.actions)[..., None] - target",
        ORACLE,
    ),
    # The target.
    Mutant(
        LEARNING,
        "return min_weight * values.min(axis=0) + (1 - min_weight) * values.max(axis=0)",
        "return min_weight * values.max(axis=0) + (1 - min_weight) * values.min(axis=0)",
        SHARED,
    ),
    Mutant(
        LEARNING,
        "return batch.rewards + discount * jnp.where(batch.terminated, 0.0, next_values)",
        "return batch.rewards + discount * next_values",
        SHARED,
    ),
    Mutant(
        BCQ,
        "best = soft_minimum(values, self.config.min_weight).max(axis=1)",
        "best = soft_minimum(values, self.config.min_weight).mean(axis=1)",
        ORACLE,
    ),
    Mutant(
        BCQ,
        "values = self.target_critics(batch.next_observations[:, None], actions)",
        "values = self.critics.model(batch.next_observations[:, None], actions)",
        ORACLE,
    ),
    Mutant(
        BCQ,
        "target = self.bellman_target(vae.model, batch, target_noise)",
        "target = self.bellman_target(self.vae.model, batch, target_noise)",
        ORACLE,
    ),
    # The VAE.
    Mutant(NETWORKS, "mean + std * noise", "mean", ORACLE),
    Mutant(NETWORKS, "loss = reconstruction + 0.5 * kl", "loss = reconstruction + kl", ORACLE),
    Mutant(
        NETWORKS,
        "return self.decode(observations, jnp.clip(noise, -self.latent_clip, self.latent_clip))",
        "return self.decode(observations, noise)",
        ORACLE,
    ),
    Mutant(NETWORKS, "jnp.clip(log_std, -4.0, 15.0)", "jnp.clip(log_std, -4.0, 2.0)", ORACLE),
    Mutant(NETWORKS, "latent_size = 2 * action_size", "latent_size = action_size", LOOP),
    # Proposing, choosing, the policy step.
    Mutant(
        BCQ,
        "return Proposals(jnp.clip(generated + residuals, -1.0, 1.0), residuals)",
        "return Proposals(generated + residuals, residuals)",
        ORACLE,
    ),
    Mutant(BCQ, ".argmax(axis=1)", ".argmin(axis=1)", ORACLE),
    Mutant(
        BCQ,
        "loss = -critics.model.first(batch.observations[:, None], actions).mean()",
        "loss = -self.critics.model.first(batch.observations[:, None], actions).mean()",
        ORACLE,
    ),
    Mutant(
        NETWORKS,
        "return self.pair[0](observations, actions)[..., 0]",
        "return self.pair[1](observations, actions)[..., 0]",
        ORACLE,
    ),
    # Optimizer and target networks.
    Mutant(
        LEARNING,
        "optax.chain(optax.add_decayed_weights(l2), optax.adam(learning_rate))",
        "optax.adamw(learning_rate, weight_decay=l2)",
        SHARED,
    ),
    Mutant(LEARNING, "rate * fast + (1 - rate) * slow", "rate * slow + (1 - rate) * fast", SHARED),
    Mutant(
        BCQ,
        "target_critics=track(self.target_critics, critics.model, config.target_rate),",
        "target_critics=track(self.target_critics, self.critics.model, config.target_rate),",
        ORACLE,
    ),
    # Sampling and the loop.
    Mutant(
        TRAINING,
        "indices = jax.random.randint(key, (rows,), 0, len(batch.rewards))",
        "indices = jax.random.randint(key, (rows,), 0, len(batch.rewards) - 1)",
        LOOP,
    ),
    Mutant(
        TRAINING,
        "jax.random.split(jax.random.fold_in(key, step))",
        "jax.random.split(key)",
        LOOP,
    ),
    Mutant(
        TRAINING,
        "actions=jnp.asarray(dataset.bounds.normalise(dataset.actions)),",
        "actions=jnp.asarray(dataset.actions),",
        LOOP,
    ),
    # Acting, evaluating, resuming.
    Mutant(
        "policy.py",
        "return self.task.bounds.denormalise(np.asarray(actions))",
        "return np.asarray(actions)",
        LOOP,
    ),
    Mutant(
        "policy.py",
        "key = jax.random.fold_in(jax.random.key(seed), step)",
        "key = jax.random.key(seed)",
        "test_evaluation.py",
    ),
    Mutant(
        "evaluation.py",
        "for i in np.flatnonzero(running):",
        "for i in range(episodes):",
        "test_evaluation.py",
    ),
    Mutant("runs.py", 'if row["step"] <= step]', 'if row["step"] < step]', "test_runs.py"),
    # Tabular: s_init and its value, terminals, averages.
    Mutant(
        TABULAR_ERROR,
        "values = np.append((acting * batch_values(mdp, batch, policy, initial_q))",
        "values = np.append((acting * batch_values(mdp, batch, policy, 0 * initial_q))",
        THEOREMS,
    ),
    Mutant(
        TABULAR_ERROR,
        "    ).sum(axis=2)\n    difference[mdp.terminal] = 0.0",
        "    )[:, :, :-1].sum(axis=2)\n    difference[mdp.terminal] = 0.0",
        THEOREMS,
    ),
    Mutant(
        TABULAR_BATCH,
        "rewards[:states, :, init] = np.where(seen == 0, initial_q, 0.0)",
        "rewards[:states, :, init] = 0.0",
        TABULAR_BATCH_TESTS,
    ),
    Mutant(
        TABULAR_BATCH,
        "rewards[:states, :, :states] = earned / np.maximum(counts, 1)",
        "rewards[:states, :, :states] = earned",
        TABULAR_BATCH_TESTS,
    ),
    Mutant(
        TABULAR_BATCH,
        "np.append(mdp.terminal, True),",
        "np.append(0 * mdp.terminal, True).astype(bool),",
        TABULAR_BATCH_TESTS,
    ),
    Mutant(
        TABULAR_MDP,
        "future = self.transitions @ np.where(self.terminal, 0.0, values)",
        "future = self.transitions @ values",
        "test_tabular_mdp.py",
    ),
    # Coherence and the batch constraint.
    Mutant(
        TABULAR_BATCH,
        "while len(offending := offending_tuples(batch)):",
        "if len(offending := offending_tuples(batch)):",
        TABULAR_BATCH_TESTS,
    ),
    Mutant(
        TABULAR_BATCH,
        "known = batch.pairs.any(axis=1) | batch.terminal",
        "known = batch.pairs.any(axis=1)",
        TABULAR_BATCH_TESTS,
    ),
    Mutant(
        TABULAR_BATCH,
        "known = batch.pairs.any(axis=1) | batch.terminal",
        "known = batch.pairs.any(axis=1) | batch.terminal | batch.counts.any(axis=(0, 1))",
        TABULAR_BATCH_TESTS,
    ),
    Mutant(
        TABULAR_BATCH,
        "taken = reachable(mdp, policy)[:, None] & (policy > 0)",
        "taken = ~mdp.terminal[:, None] & (policy > 0)",
        TABULAR_BATCH_TESTS,
    ),
    Mutant(
        TABULAR_BATCH,
        "return not (taken & ~batch.pairs).any() and not undefined.any()",
        "return not (taken & ~batch.pairs).any()",
        TABULAR_BATCH_TESTS,
    ),
    # BCQL: over all actions; refusals; step sizes; terminals.
    Mutant(
        Q_LEARNING,
        "visible = np.where(batch.pairs, initial_q, -np.inf)",
        "visible = initial_q",
        THEOREMS,
    ),
    Mutant(
        Q_LEARNING,
        "allowed = np.concatenate([batch.pairs, nothing])",
        "allowed = np.concatenate([batch.pairs | True, nothing])",
        THEOREMS,
    ),
    Mutant(Q_LEARNING, "return greedy(q, batch.pairs)", "return greedy(q)", THEOREMS),
    Mutant(
        Q_LEARNING,
        "sizes = (np.arange(1.0, updates + 1) ** -omega).tolist()",
        "sizes = [0.1] * updates",
        THEOREMS,
    ),
    Mutant(
        Q_LEARNING,
        "visits[state][action] += 1",
        "visits[state] = [1 + n for n in visits[state]]",
        THEOREMS,
    ),
    Mutant(
        Q_LEARNING,
        "target = reward if ends[following] else reward + discount * max(table[following])",
        "target = reward + discount * max(table[following])",
        THEOREMS,
    ),
    Mutant(
        Q_LEARNING,
        "return np.where(mdp.terminal[:, None], initial_q, q)",
        "return np.where(mdp.terminal[:, None], initial_q, np.maximum(q, initial_q))",
        THEOREMS,
    ),
    # Where a policy goes, and what is summed there.
    Mutant(
        TABULAR_MDP,
        "return np.where(mdp.terminal, 0.0, (1 - mdp.discount) * visits)",
        "return np.where(mdp.terminal, 0.0, visits)",
        "test_tabular_mdp.py",
    ),
    Mutant(
        TABULAR_MDP,
        "return np.where(mdp.terminal, 0.0, (1 - mdp.discount) * visits)",
        "return (1 - mdp.discount) * visits",
        "test_tabular_mdp.py",
    ),
    Mutant(
        TABULAR_MDP,
        "mdp.transitions > 0) & (mdp.discount > 0)",
        "mdp.transitions > 0)",
        "test_tabular_mdp.py",
    ),
    Mutant(TABULAR_ERROR, "* policy * np.abs(error)", "* policy * error", THEOREMS),
    # Kernels.
    Mutant(
        KERNEL,
        "best = np.where(logged.T, q, -np.inf).max(axis=0)",
        "best = q.max(axis=0)",
        "test_kernel.py",
    ),
    Mutant(
        KERNEL,
        "asked = logged[:, action]",
        "asked, logged[:, action] = np.ones(len(logged), bool), True",
        "test_kernel.py",
    ),
    Mutant(KERNEL, "return similarity / mass", "return similarity", "test_kernel.py"),
    Mutant(
        KERNEL,
        "best = np.where(batch.terminated, 0.0, best)",
        "best = np.where(logged.any(axis=1), best, 0.0)",
        "test_kernel.py",
    ),
]


def is_caught(mutant: Mutant) -> bool:
    """Whether a test fails on a copy of the project with that one line changed."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for part in ("src", "tests"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        path = copy / "src" / "bcq" / mutant.file
        text = path.read_text()
        if text.count(mutant.old) != 1:
            sys.exit(f"{mutant.file}: {text.count(mutant.old)} places read {mutant.old!r}")
        path.write_text(text.replace(mutant.old, mutant.new))
        result = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-x",
                "-p",
                "no:cacheprovider",
                f"tests/{mutant.tests}",
            ],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy / "src")},
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode not in (0, 1):  # neither passed nor failed: the tests did not run
            sys.exit(f"{mutant.file}: {mutant.new!r}: pytest broke down\n{result.stdout[-2000:]}")
        return result.returncode == 1


def main() -> None:
    """Tries every mutant, two at a time."""
    wanted = [mutant for mutant in MUTANTS if all(word in str(mutant) for word in sys.argv[1:])]
    with ThreadPoolExecutor(2) as pool:
        outcomes = pool.map(is_caught, wanted)
        caught = list(tqdm(outcomes, "mutants", len(wanted), unit="mutant"))
    survivors = [mutant for mutant, seen in zip(wanted, caught, strict=True) if not seen]
    for mutant in survivors:
        print(f"survived: {mutant.file}: {mutant.new}")
    print(f"{len(wanted) - len(survivors)} of {len(wanted)} mutants caught")
    sys.exit(bool(survivors))


if __name__ == "__main__":
    main()
