"""Breaks one line at a time, in a copy, and requires that a test fails: `make regression-mutants`.

Each mutant is (file, old line, new line, tests that must notice). The first part of the list holds
the defects that published ports of BCQ have shipped. Of the tests, those that call the changed
function run first; what they do not notice, the whole file must. What is done is kept in
`.mutants`, from where a run that was stopped goes on.
"""

import subprocess
import sys
from typing import NamedTuple

from mutation_runs import ROOT, Copy, Suite, append_line, file_of, in_turn, prepare, read_lines
from mutation_source import function_at


class Mutant(NamedTuple):
    file: str
    old: str
    new: str
    tests: str


DDPG, DQN, ENSEMBLE = "algorithms/ddpg.py", "algorithms/dqn.py", "algorithms/ensemble.py"
BC, VAE_BC = "algorithms/bc.py", "algorithms/vae_bc.py"
THEOREMS, TABULAR_BATCH_TESTS = "test_theorems.py", "test_tabular_batch.py"
WALK = "test_theory.py"
ORACLE, SHARED, LOOP = "test_bcq.py", "test_learning.py", "test_training.py"
BASELINES, JUDGING = "test_baselines.py", "test_judging.py"
DISCRETE_BCQ = "algorithms/discrete_bcq.py"
STATISTICS, COMPARISON, SWEEPS = "test_statistics.py", "test_comparison.py", "test_sweeps.py"
SERVING = "test_serving.py"
CHOICES = ("test_discrete.py", "test_choosing.py", "test_choices.py")

MUTANTS = [
    # Other ports: generated actions unbounded; target networks that start elsewhere.
    Mutant(
        "algorithms/networks.py",
        "return jnp.tanh(self.decoder(observations, latents))",
        "return self.decoder(observations, latents)",
        ORACLE,
    ),
    Mutant(
        "algorithms/bcq.py",
        "target_perturbation=perturbation,",
        "target_perturbation=jax.tree.map(lambda leaf: -leaf, perturbation),",
        ORACLE,
    ),
    # 100 samples in training, or when acting.
    Mutant("algorithms/bcq.py", "num_samples: int = 10", "num_samples: int = 100", LOOP),
    Mutant(
        "algorithms/bcq.py", "num_acting_samples: int = 10", "num_acting_samples: int = 100", LOOP
    ),
    # Observations shifted by one row; episodes joined; time limits taken for terminals.
    Mutant(
        "data/episodes.py",
        "np.concatenate([arrays[own][1:], arrays[own][-1:]])",
        "np.concatenate([arrays[own][2:], arrays[own][-2:]])",
        "test_dataset.py",
    ),
    Mutant(
        "data/episodes.py",
        "unknown = truncated.copy()",
        "unknown = np.zeros_like(truncated)",
        "test_dataset.py",
    ),
    Mutant(
        "data/episodes.py",
        "following[name][terminated] = arrays[own][terminated]",
        "pass",
        "test_dataset.py",
    ),
    Mutant(
        "training/loop.py",
        "terminated=jax.device_put(dataset.terminated),",
        "terminated=jax.device_put(dataset.terminated | dataset.truncated),",
        LOOP,
    ),
    Mutant(
        "data/formats/hdf5.py",
        '"timeouts": "truncated",',
        '"time_outs": "truncated",',
        "test_hdf5.py",
    ),
    Mutant("data/formats/hdf5.py", "-memory.ctypes.data % ALIGNMENT", "4", "test_hdf5.py"),
    Mutant(
        "data/formats/hdf5.py",
        "get_info(part).type != h5l.TYPE_HARD",
        "get_info(part).type < 0",
        "test_hdf5.py",
    ),
    Mutant("data/formats/hdf5.py", "storage.get_external_count() or", "", "test_hdf5.py"),
    Mutant("data/formats/hdf5.py", "or storage.get_layout() == h5d.VIRTUAL", "", "test_hdf5.py"),
    Mutant(
        "data/formats/hdf5.py", "if size == 0 or dtype.subdtype:", "if size == 0:", "test_hdf5.py"
    ),
    Mutant("data/formats/hdf5.py", "if not shape:", "if shape == 0:", "test_hdf5.py"),
    # The target without the target perturbation network, or without any.
    Mutant(
        "algorithms/bcq.py",
        "actions, _ = propose(vae, self.target_perturbation, batch.next_observations, noise)",
        "actions, _ = propose(vae, self.perturbation.model, batch.next_observations, noise)",
        ORACLE,
    ),
    Mutant(
        "algorithms/bcq.py",
        "actions, _ = propose(vae, self.target_perturbation, batch.next_observations, noise)",
        "actions = vae.generate(batch.next_observations[:, None], noise)",
        ORACLE,
    ),
    # Twin critics that are one; perturbation off; one perturbation for all dimensions.
    Mutant(
        "algorithms/networks.py",
        "for k in jax.random.split(key, count)",
        "for k in [key] * count",
        ORACLE,
    ),
    Mutant(
        "algorithms/bcq.py", "max_perturbation: float = 0.05", "max_perturbation: float = 0.0", LOOP
    ),
    Mutant(
        "algorithms/bcq.py",
        "residuals = perturbation(observations, generated)",
        "residuals = perturbation(observations, generated)[..., :1]",
        ORACLE,
    ),
    # The KL J times too heavy; a (batch, 1) that meets a (batch,).
    Mutant(
        "algorithms/networks.py",
        "kl = -0.5 * jnp.mean(1 + 2 * log_std - mean**2 - std**2)",
        "kl = -0.5 * jnp.mean((1 + 2 * log_std - mean**2 - std**2).sum(axis=-1))",
        ORACLE,
    ),
    Mutant(
        "algorithms/bcq.py",
        "errors = critics(batch.observations, batch.actions) - target",
        "errors = critics(batch.observations, batch.actions)[..., None] - target",
        ORACLE,
    ),
    # The target.
    Mutant(
        "algorithms/learning.py",
        "return min_weight * values.min(axis=0) + (1 - min_weight) * values.max(axis=0)",
        "return min_weight * values.max(axis=0) + (1 - min_weight) * values.min(axis=0)",
        SHARED,
    ),
    Mutant(
        "algorithms/learning.py",
        "return batch.rewards + discount * jnp.where(batch.terminated, 0.0, next_values)",
        "return batch.rewards + discount * next_values",
        SHARED,
    ),
    Mutant(
        "algorithms/bcq.py",
        "best = soft_minimum(values, self.config.min_weight).max(axis=1)",
        "best = soft_minimum(values, self.config.min_weight).mean(axis=1)",
        ORACLE,
    ),
    Mutant(
        "algorithms/bcq.py",
        "values = self.target_critics(batch.next_observations[:, None], actions)",
        "values = self.critics.model(batch.next_observations[:, None], actions)",
        ORACLE,
    ),
    Mutant(
        "algorithms/bcq.py",
        "target = self.bellman_target(vae.model, batch, target_noise)",
        "target = self.bellman_target(self.vae.model, batch, target_noise)",
        ORACLE,
    ),
    # The VAE.
    Mutant("algorithms/networks.py", "mean + std * noise", "mean", ORACLE),
    Mutant(
        "algorithms/networks.py",
        "loss = reconstruction + 0.5 * kl",
        "loss = reconstruction + kl",
        ORACLE,
    ),
    Mutant(
        "algorithms/networks.py",
        "return self.decode(observations, jnp.clip(noise, -self.latent_clip, self.latent_clip))",
        "return self.decode(observations, noise)",
        ORACLE,
    ),
    Mutant(
        "algorithms/networks.py",
        "jnp.clip(log_std, -4.0, 15.0)",
        "jnp.clip(log_std, -4.0, 2.0)",
        ORACLE,
    ),
    Mutant(
        "algorithms/networks.py", "latent_size = 2 * action_size", "latent_size = action_size", LOOP
    ),
    # Proposing, choosing, the policy step.
    Mutant(
        "algorithms/bcq.py",
        "return Proposals(jnp.clip(generated + residuals, -1.0, 1.0), residuals)",
        "return Proposals(generated + residuals, residuals)",
        ORACLE,
    ),
    Mutant("algorithms/bcq.py", ".argmax(axis=1)", ".argmin(axis=1)", ORACLE),
    Mutant(
        "algorithms/bcq.py",
        "loss = -critics.model.first(batch.observations[:, None], actions).mean()",
        "loss = -self.critics.model.first(batch.observations[:, None], actions).mean()",
        ORACLE,
    ),
    Mutant(
        "algorithms/networks.py",
        "return self.members[0](observations, actions)[..., 0]",
        "return self.members[1](observations, actions)[..., 0]",
        ORACLE,
    ),
    # Optimizer and target networks.
    Mutant(
        "algorithms/learning.py",
        "optax.chain(optax.add_decayed_weights(l2), optax.adam(learning_rate))",
        "optax.adamw(learning_rate, weight_decay=l2)",
        SHARED,
    ),
    Mutant(
        "algorithms/learning.py",
        "rate * fast + (1 - rate) * slow",
        "rate * slow + (1 - rate) * fast",
        SHARED,
    ),
    Mutant(
        "algorithms/bcq.py",
        "target_critics=track(self.target_critics, critics.model, config.target_rate),",
        "target_critics=track(self.target_critics, self.critics.model, config.target_rate),",
        ORACLE,
    ),
    # The baselines' shared pieces: tanh, bootstrapping, tau, L2 in the gradient.
    Mutant(
        "algorithms/networks.py",
        "return jnp.tanh(self.network(observations))",
        "return self.network(observations)",
        BASELINES,
    ),
    Mutant(
        "algorithms/learning.py",
        "return batch.rewards + discount * jnp.where(batch.terminated, 0.0, next_values)",
        "return batch.rewards + discount * next_values",
        BASELINES,
    ),
    Mutant(
        "algorithms/learning.py",
        "rate * fast + (1 - rate) * slow",
        "rate * slow + (1 - rate) * fast",
        BASELINES,
    ),
    Mutant(
        "algorithms/learning.py",
        "optax.chain(optax.add_decayed_weights(l2), optax.adam(learning_rate))",
        "optax.adamw(learning_rate, weight_decay=l2)",
        BASELINES,
    ),
    Mutant(
        "algorithms/learning.py",
        "optax.add_decayed_weights(l2)",
        "optax.add_decayed_weights(l2, lambda tree: jax.tree.map(lambda x: x.ndim > 1, tree))",
        BASELINES,
    ),
    # DDPG: the target.
    Mutant(
        "algorithms/ddpg.py",
        "values = self.target_critic(following, self.target_actor(following))",
        "values = self.target_critic(following, self.actor.model(following))",
        BASELINES,
    ),
    Mutant(
        "algorithms/ddpg.py",
        "values = self.target_critic(following, self.target_actor(following))",
        "values = self.critic.model(following, self.target_actor(following))",
        BASELINES,
    ),
    Mutant(
        "algorithms/ddpg.py",
        "following = batch.next_observations",
        "following = batch.observations",
        BASELINES,
    ),
    Mutant(
        "algorithms/ddpg.py",
        "target_actor=actor,",
        "target_actor=jax.tree.map(lambda leaf: -leaf, actor),",
        BASELINES,
    ),
    Mutant(
        "algorithms/ddpg.py",
        "target_critic=critic,",
        "target_critic=LateActionCritic(*sizes, actor_key),",
        BASELINES,
    ),
    Mutant(
        "algorithms/ddpg.py",
        "target_actor=track(self.target_actor, actor.model, config.target_rate),",
        "target_actor=track(self.target_actor, self.actor.model, config.target_rate),",
        BASELINES,
    ),
    Mutant(
        "algorithms/ddpg.py",
        "target_critic=track(self.target_critic, critic.model, config.target_rate),",
        "target_critic=critic.model,",
        BASELINES,
    ),
    # DDPG: losses, optimizers, the critic's shape.
    Mutant("algorithms/ddpg.py", "- target) ** 2).mean()", "- target) ** 2).sum()", BASELINES),
    Mutant("algorithms/ddpg.py", "loss = -critic.model(", "loss = -self.critic.model(", BASELINES),
    Mutant("algorithms/ddpg.py", "loss = -critic.model(", "loss = critic.model(", BASELINES),
    Mutant(
        "algorithms/ddpg.py",
        "adam(self.critic_learning_rate, self.critic_l2)",
        "adam(self.critic_learning_rate)",
        BASELINES,
    ),
    Mutant(
        "algorithms/ddpg.py",
        "adam(self.actor_learning_rate)",
        "adam(self.actor_learning_rate, self.critic_l2)",
        BASELINES,
    ),
    Mutant(
        "algorithms/ddpg.py",
        "adam(self.actor_learning_rate)",
        "adam(self.critic_learning_rate)",
        BASELINES,
    ),
    Mutant(
        "algorithms/ddpg.py",
        "actor_learning_rate: float = 1e-4",
        "actor_learning_rate: float = 1e-3",
        BASELINES,
    ),
    Mutant("algorithms/ddpg.py", '            not_empty=("hidden_sizes",),\n', "", BASELINES),
    Mutant(
        "algorithms/networks.py",
        "self.rest(jax.nn.relu(self.first(observations)), actions)",
        "self.rest(self.first(observations), actions)",
        BASELINES,
    ),
    Mutant(
        "algorithms/networks.py",
        "self.rest(jax.nn.relu(self.first(observations)), actions)",
        "self.rest(jax.nn.relu(self.first(observations)), jnp.clip(actions, -0.9, 0.9))",
        BASELINES,
    ),
    # DQN: bins, and which output is whose.
    Mutant(
        "algorithms/dqn.py",
        "jnp.clip(jnp.floor(position), 0, self.config.num_bins - 1)",
        "jnp.maximum(jnp.floor(position), 0)",
        BASELINES,
    ),
    Mutant(
        "algorithms/dqn.py",
        "jnp.clip(jnp.floor(position), 0, self.config.num_bins - 1)",
        "jnp.minimum(jnp.floor(position), self.config.num_bins - 1)",
        BASELINES,
    ),
    Mutant("algorithms/dqn.py", "jnp.floor(position)", "jnp.round(position)", BASELINES),
    Mutant(
        "algorithms/dqn.py",
        "position = (actions + 1) / 2 * self.config.num_bins",
        "position = (actions + 1) / 2 * (self.config.num_bins - 1)",
        BASELINES,
    ),
    Mutant(
        "algorithms/dqn.py",
        "return (2 * bins + 1) / self.config.num_bins - 1",
        "return 2 * bins / self.config.num_bins - 1",
        BASELINES,
    ),
    Mutant(
        "algorithms/dqn.py",
        "return (2 * bins + 1) / self.config.num_bins - 1",
        "return 2 * bins / (self.config.num_bins - 1) - 1",
        BASELINES,
    ),
    Mutant(
        "algorithms/dqn.py",
        "return outputs.reshape(*outputs.shape[:-1], -1, self.config.num_bins)",
        "return outputs.reshape(*outputs.shape[:-1], self.config.num_bins, -1).swapaxes(-1, -2)",
        BASELINES,
    ),
    Mutant("algorithms/dqn.py", "num_bins: int = 10", "num_bins: int = 11", BASELINES),
    # DQN: target, loss, acting.
    Mutant(
        "algorithms/dqn.py",
        "best = self.values(self.target_network, batch.next_observations).max(axis=-1)",
        "best = self.values(self.network.model, batch.next_observations).max(axis=-1)",
        BASELINES,
    ),
    Mutant(
        "algorithms/dqn.py",
        "best = self.values(self.target_network, batch.next_observations).max(axis=-1)",
        "best = self.values(self.target_network, batch.next_observations).max(axis=-2)",
        BASELINES,
    ),
    Mutant(
        "algorithms/dqn.py",
        "best = self.values(self.target_network, batch.next_observations).max(axis=-1)",
        "states = batch.next_observations\n"
        "        best = self.values_at(self.target_network, states, self.act(states, states))",
        BASELINES,
    ),
    Mutant("algorithms/dqn.py", "best.mean(axis=-1)", "best.sum(axis=-1)", BASELINES),
    Mutant(
        "algorithms/dqn.py",
        "best.mean(axis=-1)",
        "best.sum(axis=-1) / self.config.num_bins",
        BASELINES,
    ),
    Mutant("algorithms/dqn.py", ".sum(axis=1).mean()", ".mean()", BASELINES),
    Mutant(
        "algorithms/dqn.py",
        "self.values(self.network.model, observations).argmax(axis=-1)",
        "self.values(self.target_network, observations).argmax(axis=-1)",
        BASELINES,
    ),
    Mutant(
        "algorithms/dqn.py",
        "return self.values_at(self.network.model, observations, actions).mean(axis=-1)",
        "return self.values_at(self.network.model, observations, actions).sum(axis=-1)",
        BASELINES,
    ),
    Mutant(
        "algorithms/dqn.py",
        "target_network=track(self.target_network, network.model, config.target_rate),",
        "target_network=track(self.target_network, self.network.model, config.target_rate),",
        BASELINES,
    ),
    Mutant(
        "algorithms/dqn.py",
        "target_network=network,",
        "target_network=eqx.tree_at(lambda mlp: mlp.layers[0].bias, network, replace_fn=jnp.sin),",
        BASELINES,
    ),
    # Behavioural cloning.
    Mutant(
        "algorithms/bc.py",
        "- batch.actions) ** 2).mean()",
        "- batch.actions) ** 2).sum(axis=1).mean()",
        BASELINES,
    ),
    Mutant(
        "algorithms/bc.py",
        "loss = ((actor(batch.observations) - batch.actions) ** 2).mean()",
        "loss = abs(actor(batch.observations) - batch.actions).mean()",
        BASELINES,
    ),
    Mutant(
        "algorithms/bc.py", "actor(batch.observations)", "actor(batch.next_observations)", BASELINES
    ),
    Mutant(
        "algorithms/bc.py",
        "return self.actor.model(observations)",
        "return self.actor.model.network(observations)",
        BASELINES,
    ),
    Mutant(
        "algorithms/bc.py", "adam(self.learning_rate)", "adam(self.learning_rate, 1e-2)", BASELINES
    ),
    Mutant(
        "algorithms/bc.py",
        "return BC(actor=actor, config=self.config), metrics",
        "return BC(actor=self.actor, config=self.config), metrics",
        BASELINES,
    ),
    Mutant(
        "algorithms/bc.py",
        "    def update(self, batch",
        "    def value(self, observations: Array, actions: Array) -> Array:\n"
        "        return observations[:, 0]\n\n"
        "    def update(self, batch",
        BASELINES,
    ),
    Mutant(
        "algorithms/bc.py",
        "hidden_sizes: tuple[int, ...] = (400, 300)",
        "hidden_sizes: tuple[int, ...] = (256, 256)",
        BASELINES,
    ),
    # VAE-BC.
    Mutant(
        "algorithms/vae_bc.py",
        "return self.vae.model.generate(observations, noise)",
        "return self.vae.model.decode(observations, noise)",
        BASELINES,
    ),
    Mutant(
        "algorithms/vae_bc.py",
        "return self.vae.model.generate(observations, noise)",
        "return self.vae.model.generate(observations, 0 * noise)",
        BASELINES,
    ),
    Mutant(
        "algorithms/vae_bc.py",
        "noise = jax.vmap(lambda key: jax.random.normal(key, shape))(keys)",
        "noise = jax.random.normal(keys[0], (len(observations), *shape))",
        BASELINES,
    ),
    Mutant(
        "algorithms/vae_bc.py",
        "noise = jax.random.normal(key, (len(batch.rewards), self.vae.model.latent_size))",
        "noise = jax.random.normal(key, (1, self.vae.model.latent_size))",
        BASELINES,
    ),
    Mutant(
        "algorithms/vae_bc.py",
        "noise = jax.random.normal(key, (len(batch.rewards), self.vae.model.latent_size))",
        "noise = 0.5 * jax.random.normal(key, (len(batch.rewards), self.vae.model.latent_size))",
        BASELINES,
    ),
    Mutant(
        "algorithms/vae_bc.py",
        "vae.loss(batch.observations, batch.actions, noise)",
        "vae.loss(batch.next_observations, batch.actions, noise)",
        BASELINES,
    ),
    Mutant(
        "algorithms/vae_bc.py",
        "adam(self.learning_rate, self.vae_l2)",
        "adam(self.learning_rate)",
        BASELINES,
    ),
    Mutant(
        "algorithms/vae_bc.py",
        "self.vae_hidden_sizes, self.latent_clip, key",
        "self.vae_hidden_sizes, 0.5, key",
        BASELINES,
    ),
    Mutant(
        "algorithms/vae_bc.py",
        "vae_hidden_sizes: tuple[int, ...] = (750, 750)",
        "vae_hidden_sizes: tuple[int, ...] = (400, 300)",
        BASELINES,
    ),
    Mutant(
        "algorithms/networks.py",
        "return self.decode(observations, jnp.clip(noise, -self.latent_clip, self.latent_clip))",
        "return self.decode(observations, noise)",
        BASELINES,
    ),
    Mutant(
        "algorithms/networks.py",
        "loss = reconstruction + 0.5 * kl",
        "loss = reconstruction + kl",
        BASELINES,
    ),
    # The ensemble: critics that are one, or share minibatches, targets or networks.
    Mutant(
        "algorithms/networks.py",
        "for k in jax.random.split(key, count)",
        "for k in [key] * count",
        BASELINES,
    ),
    Mutant(
        "algorithms/ensemble.py",
        "errors = critics.each(batches.observations, batches.actions) - target",
        "errors = critics(batches.observations[0], batches.actions[0]) - target[0]",
        BASELINES,
    ),
    Mutant(
        "algorithms/ensemble.py",
        "lambda column: column.reshape(config.members, -1, *column.shape[1:]), batch",
        "lambda x: jnp.stack([x[i :: config.members] for i in range(config.members)]), batch",
        BASELINES,
    ),
    Mutant(
        "algorithms/ensemble.py",
        "values = self.target_critics.each(following, self.target_actor(following))",
        "values = self.target_critics(following, self.target_actor(following)).mean(axis=0)",
        BASELINES,
    ),
    Mutant(
        "algorithms/ensemble.py",
        "values = self.target_critics.each(following, self.target_actor(following))",
        "values = self.target_critics(following, self.target_actor(following)).min(axis=0)",
        BASELINES,
    ),
    Mutant(
        "algorithms/ensemble.py",
        "values = self.target_critics.each(following, self.target_actor(following))",
        "values = self.target_critics.each(following, self.actor.model(following))",
        BASELINES,
    ),
    Mutant(
        "algorithms/ensemble.py",
        "values = self.target_critics.each(following, self.target_actor(following))",
        "values = self.critics.model.each(following, self.target_actor(following))",
        BASELINES,
    ),
    Mutant(
        "algorithms/ensemble.py",
        "target_critics=critics,",
        "target_critics=Critics(*sizes, actor_key, self.members),",
        BASELINES,
    ),
    Mutant(
        "algorithms/ensemble.py",
        "target_critics=track(self.target_critics, critics.model, config.target_rate),",
        "target_critics=track(self.target_critics, self.critics.model, config.target_rate),",
        BASELINES,
    ),
    Mutant(
        "algorithms/ensemble.py",
        "return self.members * self.member_batch_size",
        "return self.member_batch_size",
        BASELINES,
    ),
    Mutant("algorithms/ensemble.py", "if self.members < 2:", "if self.members < 1:", BASELINES),
    Mutant("algorithms/ensemble.py", "members: int = 4", "members: int = 2", BASELINES),
    # The ensemble: the uncertainty and the policy's step.
    Mutant(
        "algorithms/ensemble.py",
        ".var(axis=0) + EPSILON",
        ".var(axis=0, ddof=1) + EPSILON",
        BASELINES,
    ),
    Mutant("algorithms/ensemble.py", ".var(axis=0) + EPSILON", ".var(axis=0)", BASELINES),
    Mutant(
        "algorithms/ensemble.py",
        "return jnp.sqrt(critics(observations, actions).var(axis=0) + EPSILON)",
        "return critics(observations, actions).var(axis=0)",
        BASELINES,
    ),
    Mutant(
        "algorithms/ensemble.py",
        "uncertainty(critics.model,",
        "uncertainty(self.critics.model,",
        BASELINES,
    ),
    Mutant(
        "algorithms/ensemble.py",
        "uncertainty(critics.model,",
        "-uncertainty(critics.model,",
        BASELINES,
    ),
    Mutant(
        "algorithms/ensemble.py",
        "observations = batches.observations[0]",
        "observations = batch.observations",
        BASELINES,
    ),
    Mutant(
        "algorithms/ensemble.py",
        "loss = (errors**2).mean(axis=1).sum()",
        "loss = (errors**2).mean()",
        BASELINES,
    ),
    Mutant(
        "algorithms/ensemble.py",
        "return self.critics.model(observations, actions).mean(axis=0)",
        "return self.critics.model(observations, actions).min(axis=0)",
        BASELINES,
    ),
    # Sampling and the loop.
    Mutant(
        "training/loop.py",
        "indices = jax.random.randint(key, (rows,), 0, window)",
        "indices = jax.random.randint(key, (rows,), 0, window - 1)",
        LOOP,
    ),
    Mutant(
        "training/loop.py",
        "jax.random.split(jax.random.fold_in(key, step))",
        "jax.random.split(key)",
        LOOP,
    ),
    Mutant(
        "training/loop.py",
        "actions=jax.device_put(dataset.bounds.normalise(dataset.actions)),",
        "actions=jax.device_put(dataset.actions),",
        LOOP,
    ),
    # Acting, evaluating, resuming.
    Mutant(
        "training/policy.py",
        "chosen = self.task.bounds.denormalise(np.asarray(actions)[:count])",
        "chosen = np.array(actions)[:count]",
        LOOP,
    ),
    Mutant(
        "training/policy.py",
        "key = jax.random.fold_in(jax.random.key(seed), step)",
        "key = jax.random.key(seed)",
        "test_evaluation.py",
    ),
    Mutant(
        "runs/directory.py", 'if row["step"] <= step]', 'if row["step"] < step]', "test_runs.py"
    ),
    # Tabular: s_init and its value, terminals, averages.
    Mutant(
        "tabular/extrapolation.py",
        "values = np.append((acting * batch_values(mdp, batch, policy, initial_q))",
        "values = np.append((acting * batch_values(mdp, batch, policy, 0 * initial_q))",
        THEOREMS,
    ),
    Mutant(
        "tabular/extrapolation.py",
        "    ).sum(axis=2)\n    difference[mdp.terminal] = 0.0",
        "    )[:, :, :-1].sum(axis=2)\n    difference[mdp.terminal] = 0.0",
        THEOREMS,
    ),
    Mutant(
        "tabular/batch.py",
        "rewards[:states, :, init] = np.where(seen == 0, initial_q, 0.0)",
        "rewards[:states, :, init] = 0.0",
        TABULAR_BATCH_TESTS,
    ),
    Mutant(
        "tabular/batch.py",
        "rewards[:states, :, :states] = earned / np.maximum(counts, 1)",
        "rewards[:states, :, :states] = earned",
        TABULAR_BATCH_TESTS,
    ),
    Mutant(
        "tabular/batch.py",
        "np.append(mdp.terminal, True),",
        "np.append(0 * mdp.terminal, True).astype(bool),",
        TABULAR_BATCH_TESTS,
    ),
    Mutant(
        "tabular/mdp.py",
        "future = self.transitions @ np.where(self.terminal, 0.0, values)",
        "future = self.transitions @ values",
        "test_tabular_mdp.py",
    ),
    # Coherence and the batch constraint.
    Mutant(
        "tabular/batch.py",
        "while len(offending := offending_tuples(batch)):",
        "if len(offending := offending_tuples(batch)):",
        TABULAR_BATCH_TESTS,
    ),
    Mutant(
        "tabular/batch.py",
        "known = batch.pairs.any(axis=1) | batch.terminal",
        "known = batch.pairs.any(axis=1)",
        TABULAR_BATCH_TESTS,
    ),
    Mutant(
        "tabular/batch.py",
        "known = batch.pairs.any(axis=1) | batch.terminal",
        "known = batch.pairs.any(axis=1) | batch.terminal | batch.counts.any(axis=(0, 1))",
        TABULAR_BATCH_TESTS,
    ),
    Mutant(
        "tabular/batch.py",
        "taken = reachable(mdp, policy)[:, None] & (policy > 0)",
        "taken = ~mdp.terminal[:, None] & (policy > 0)",
        TABULAR_BATCH_TESTS,
    ),
    Mutant(
        "tabular/batch.py",
        "return not (taken & ~batch.pairs).any() and not undefined.any()",
        "return not (taken & ~batch.pairs).any()",
        TABULAR_BATCH_TESTS,
    ),
    # BCQL: over all actions; refusals; step sizes; terminals.
    Mutant(
        "tabular/q_learning.py",
        "visible = np.where(batch.pairs, initial_q, -np.inf)",
        "visible = initial_q",
        THEOREMS,
    ),
    Mutant(
        "tabular/q_learning.py",
        "allowed = np.concatenate([batch.pairs, nothing])",
        "allowed = np.concatenate([batch.pairs | True, nothing])",
        THEOREMS,
    ),
    Mutant("tabular/q_learning.py", "return greedy(q, batch.pairs)", "return greedy(q)", THEOREMS),
    Mutant(
        "tabular/q_learning.py",
        "sizes = (np.arange(1.0, updates + 1) ** -omega).tolist()",
        "sizes = [0.1] * updates",
        THEOREMS,
    ),
    Mutant(
        "tabular/q_learning.py",
        "visits[state][action] += 1",
        "visits[state] = [1 + n for n in visits[state]]",
        THEOREMS,
    ),
    Mutant(
        "tabular/q_learning.py",
        "target = reward if ends[following] else reward + discount * max(table[following])",
        "target = reward + discount * max(table[following])",
        THEOREMS,
    ),
    Mutant(
        "tabular/q_learning.py",
        "return np.where(mdp.terminal[:, None], initial_q, q)",
        "return np.where(mdp.terminal[:, None], initial_q, np.maximum(q, initial_q))",
        THEOREMS,
    ),
    # Where a policy goes, and what is summed there.
    Mutant(
        "tabular/mdp.py",
        "return np.where(mdp.terminal, 0.0, (1 - mdp.discount) * visits)",
        "return np.where(mdp.terminal, 0.0, visits)",
        "test_tabular_mdp.py",
    ),
    Mutant(
        "tabular/mdp.py",
        "return np.where(mdp.terminal, 0.0, (1 - mdp.discount) * visits)",
        "return (1 - mdp.discount) * visits",
        "test_tabular_mdp.py",
    ),
    Mutant(
        "tabular/mdp.py",
        "mdp.transitions > 0) & (mdp.discount > 0)",
        "mdp.transitions > 0)",
        "test_tabular_mdp.py",
    ),
    Mutant("tabular/extrapolation.py", "* policy * np.abs(error)", "* policy * error", THEOREMS),
    # Kernels.
    Mutant(
        "tabular/kernel.py",
        "best = np.where(logged.T, q, -np.inf).max(axis=0)",
        "best = q.max(axis=0)",
        "test_kernel.py",
    ),
    Mutant(
        "tabular/kernel.py",
        "asked = logged[:, action]",
        "asked, logged[:, action] = np.ones(len(logged), bool), True",
        "test_kernel.py",
    ),
    Mutant("tabular/kernel.py", "return similarity / mass", "return similarity", "test_kernel.py"),
    Mutant(
        "tabular/kernel.py",
        "best = np.where(batch.terminated, 0.0, best)",
        "best = np.where(logged.any(axis=1), best, 0.0)",
        "test_kernel.py",
    ),
    # Checks of the theory that would hold whatever they are about.
    Mutant(
        "tabular/theorems.py",
        "q = bcql(batch, initial_q, discount=mdp.discount, updates=updates, seed=seed)",
        "q = best_value(mdp, np.broadcast_to(~mdp.terminal[:, None], initial_q.shape))",
        THEOREMS,
    ),
    Mutant("tabular/theorems.py", "if random.integers(2):", "if True:", THEOREMS),
    Mutant(
        "tabular/theorems.py",
        "return largest(by_definition - by_recursion, moved, unseen)",
        "return largest(by_definition - by_recursion)",
        THEOREMS,
    ),
    Mutant(
        "tabular/theorems.py",
        "if is_batch_constrained(mdp, policy, batch):",
        "if not error > 1e-9:",
        THEOREMS,
    ),
    Mutant("tabular/theorems.py", "evaluate_policy(mdp, learned) - best])", "q - best])", THEOREMS),
    Mutant("tabular/theorems.py", "np.stack([q - best, ", "np.stack([", THEOREMS),
    Mutant(
        "tabular/theorems.py",
        "missing.append(earned - worth[state])",
        "missing.append(earned - q[state].max())",
        THEOREMS,
    ),
    Mutant(
        "tabular/theorems.py",
        "np.max([np.abs(one).max() for one in differences])",
        "max(np.abs(one).max() for one in differences)",
        WALK,
    ),
    Mutant(
        "tabular/walk.py",
        "worst = largest(worst, violation)",
        "worst = max(worst, violation)",
        WALK,
    ),
    Mutant(
        "tabular/walk.py",
        "held = kernel_counterexample()",
        "held = kernel_counterexample() or True",
        WALK,
    ),
    Mutant(
        "experiments/kinds.py",
        "largest(*statement.violations(self.seed))",
        "max(statement.violations(self.seed))",
        WALK,
    ),
    Mutant("tabular/illustrations.py", "and self.kernel_values_off_by <= KERNEL_EXACT", "", WALK),
    Mutant("tabular/illustrations.py", "and self.bcql_values_off_by <= BCQL_EXACT", "", WALK),
    Mutant("tabular/illustrations.py", "np.full((2, 2), 10.0)", "np.zeros((2, 2))", WALK),
    Mutant(
        "tabular/illustrations.py",
        "self.kernel_q - self.true_values[::-1]",
        "self.kernel_q[0, 0] * 0",
        WALK,
    ),
    Mutant("paper/claims.py", "and kernel <= KERNEL_EXACT", "", "test_claims.py"),
    Mutant("paper/claims.py", "and bcql <= BCQL_EXACT", "", "test_claims.py"),
    Mutant(
        "paper/claims.py",
        'one["worst"] <= self.tolerance',
        'one["worst"] <= one["tolerance"]',
        "test_claims.py",
    ),
    # Episodes in lock-step.
    Mutant(
        "simulation/rollouts.py",
        "            states=states,",
        "            states=[simulator_state(environments[i]) for i in running.tolist()],",
        "test_rollouts.py",
    ),
    Mutant(
        "simulation/rollouts.py",
        "running = running[~(step.terminated | step.truncated)]",
        "running = running[~step.terminated]",
        "test_rollouts.py",
    ),
    Mutant(
        "simulation/rollouts.py",
        "truncated=np.array(truncated, bool),",
        "truncated=np.array(terminated, bool),",
        "test_rollouts.py",
    ),
    Mutant(
        "simulation/rollouts.py",
        "environments[i].step(action)",
        "environments[i].step(actions[0])",
        "test_rollouts.py",
    ),
    Mutant(
        "simulation/rollouts.py",
        "observations = np.array(observations, np.float32)",
        "observations = np.asarray(observations, np.float32)",
        "test_rollouts.py",
    ),
    # Rows on disk and on the device.
    Mutant(
        "collection/buffer.py",
        'return rows[np.argsort(episodes, kind="stable")]',
        "return rows",
        "test_buffer.py",
    ),
    Mutant("collection/buffer.py", "capacity += WRITE_ROWS", "capacity += 0", "test_buffer.py"),
    Mutant(
        "collection/buffer.py",
        'columns["actions"] = bounds.normalise(padded["actions"])',
        "pass",
        "test_buffer.py",
    ),
    Mutant(
        "collection/buffer.py",
        'columns["actions"] = bounds.normalise(padded["actions"])',
        'columns["actions"] = bounds.normalise(padded["actions"])\n'
        '        columns["terminated"] = padded["terminated"] | padded["truncated"]',
        "test_buffer.py",
    ),
    Mutant(
        "collection/buffer.py",
        "buffer = write_in_place(buffer, new, start + first)",
        "buffer = write_in_place(buffer, new, start)",
        "test_buffer.py",
    ),
    Mutant("collection/buffer.py", "file.truncate(size)", "pass", "test_buffer.py"),
    # The behavioural agent.
    Mutant(
        "collection/behaviour.py",
        "random = agent.steps + time < random_steps",
        "random = False",
        "test_behaviour.py",
    ),
    Mutant(
        "collection/behaviour.py",
        "random = agent.steps + time < random_steps",
        "random = agent.steps < random_steps",
        "test_behaviour.py",
    ),
    Mutant(
        "collection/behaviour.py",
        "actions = chosen + generator.normal(0, noise, shape)",
        "actions = chosen + generator.normal(0, noise, shape) / bounds.half_width",
        "test_behaviour.py",
    ),
    Mutant(
        "collection/behaviour.py",
        "jnp.array([end])",
        "jnp.maximum(jnp.array([end - len(rows)]), 1)",
        "test_behaviour.py",
    ),
    Mutant(
        "collection/behaviour.py",
        "end = agent.steps + len(rows)",
        "end = agent.steps + len(rows) // 2",
        "test_behaviour.py",
    ),
    Mutant(
        "collection/behaviour.py",
        "due = agent.steps // schedule.evaluate_every > before // schedule.evaluate_every",
        "due = agent.steps % schedule.evaluate_every == 0",
        "test_behaviour.py",
    ),
    Mutant(
        "collection/behaviour.py",
        "environment.reset(seed=reset_seed(own, agent.episodes))",
        "environment.reset(seed=reset_seed(own, 0))",
        "test_behaviour.py",
    ),
    Mutant(
        "collection/behaviour.py",
        'episodes=int((rows["terminated"] | rows["truncated"]).sum()),',
        'episodes=int(rows["terminated"].sum()),',
        "test_behaviour.py",
    ),
    Mutant(
        "collection/behaviour.py", "log.cut_back(steps)", "log.path.touch()", "test_behaviour.py"
    ),
    Mutant(
        "collection/behaviour.py",
        'if not (rows["terminated"][-1] or rows["truncated"][-1]):',
        "if False:",
        "test_behaviour.py",
    ),
    Mutant("training/loop.py", "if step % ESTIMATE_EVERY == 0 and", "if", "test_behaviour.py"),
    Mutant("runs/recorder.py", ' or pointer.get("passing")', "", "test_interruption.py"),
    Mutant("runs/directory.py", '[: -1 if before.get("passing") else None]', "", "test_runs.py"),
    Mutant("runs/schedules.py", "warm_up = 10_000 if", "warm_up = 1_000 if", "test_behaviour.py"),
    # The recipes.
    Mutant(
        "collection/noise.py",
        "drawn = generator.normal(0, noise, len(bounds.low)) * bounds.half_width",
        "drawn = generator.normal(0, noise, len(bounds.low))",
        "test_collection.py",
    ),
    Mutant(
        "collection/recipes.py",
        'return Recipe("imitation", expert.environment, Demonstrator(expert), transitions, seed)',
        'return Recipe("imitation", expert.environment, Demonstrator(expert, 0.1), transitions, '
        "seed)",
        "test_collection.py",
    ),
    Mutant(
        "collection/noise.py",
        "return np.clip(action + drawn, bounds.low, bounds.high)",
        "return action + drawn",
        "test_collection.py",
    ),
    Mutant(
        "collection/recipes.py",
        "if generator.random() < self.random_probability:",
        "if generator.random() > self.random_probability:",
        "test_collection.py",
    ),
    Mutant(
        "collection/noise.py",
        "return generator.uniform(bounds.low, bounds.high)",
        "return generator.uniform(-1, 1, len(bounds.low))",
        "test_collection.py",
    ),
    Mutant(
        "collection/recipes.py",
        "play(environments, recipe, WAVE * waves)",
        "play(environments, recipe, 0)",
        "test_collection.py",
    ),
    Mutant(
        "collection/recipes.py", "log.cut_back(count)", "log.path.touch()", "test_collection.py"
    ),
    Mutant(
        "collection/recipes.py",
        "rows = log.read()[: recipe.transitions]",
        "rows = log.read()",
        "test_collection.py",
    ),
    Mutant(
        "collection/recipes.py",
        "    require_new(path)\n    folder =",
        "    folder =",
        "test_collection.py",
    ),
    Mutant(
        "collection/recipes.py",
        '("progress.json", "rows.bin", ".lock", ".*.tmp")',
        '("progress.json", "rows.bin", ".lock")',
        "test_collection.py",
    ),
    Mutant(
        "system/seeds.py",
        "return np.random.default_rng((seed, episode, 1))",
        "return np.random.default_rng(reset_seed(seed, episode))",
        "test_collection.py",
    ),
    Mutant(
        "system/seeds.py",
        "return np.random.default_rng((seed, episode, 1))",
        "return np.random.default_rng((seed, 1))",
        "test_collection.py",
    ),
    # Streams of their own.
    Mutant(
        "collection/behaviour.py",
        "keys = Keys.of(derive(schedule.seed, Role.AGENT))",
        "keys = Keys.of(schedule.seed)",
        "test_seeds.py",
    ),
    Mutant(
        "collection/behaviour.py",
        "own = derive(schedule.seed, Role.AGENT)",
        "own = derive(schedule.seed, Role.BATCH)",
        "test_seeds.py",
    ),
    Mutant(
        "simulation/evaluation.py",
        "seed = derive(seed, Role.EVALUATION)",
        "seed = derive(seed, Role.BATCH)",
        "test_seeds.py",
    ),
    # Checkpoints that are kept.
    Mutant(
        "runs/directory.py",
        "older[max(0, len(older) + 1 - keep) :]",
        "older[len(older) + 1 - keep :]",
        "test_runs.py",
    ),
    Mutant("runs/directory.py", "int(step) < known[-1] and", "", "test_runs.py"),
    # Experts.
    Mutant(
        "collection/experts.py",
        "choices = sorted(choices, key=lambda choice: choice.score, reverse=True)",
        "choices = sorted(choices, key=lambda choice: choice.score)",
        "test_experts.py",
    ),
    Mutant(
        "collection/experts.py",
        "sorted(evaluations)[-LAST:]",
        "sorted(evaluations)[:LAST]",
        "test_experts.py",
    ),
    Mutant(
        "collection/experts.py",
        "sorted(evaluations)[-LAST:]",
        "sorted(evaluations)",
        "test_experts.py",
    ),
    Mutant(
        "collection/experts.py",
        "for i, (run, step, score) in enumerate(choices)\n",
        "for i, (run, step, score) in enumerate(choices[:keep])\n",
        "test_experts.py",
    ),
    # Inspection.
    Mutant(
        "data/inspection.py",
        "lengths = (stops - starts)[complete]",
        "lengths = stops - starts",
        "test_inspection.py",
    ),
    Mutant(
        "data/inspection.py", "np.abs(scaled) >= 1 - AT_BOUND", "scaled >= 1", "test_inspection.py"
    ),
    # The concurrent task: which rows are there, when it ends, and that a run is concurrent at all.
    Mutant(
        "training/loop.py",
        "np.repeat(stops, stops - starts)[:allowed]",
        "np.arange(1, allowed + 1)",
        "test_concurrent.py",
    ),
    Mutant(
        "training/loop.py",
        "np.repeat(stops, stops - starts)[:allowed]",
        "np.repeat(np.maximum(starts, 1), stops - starts)[:allowed]",
        "test_concurrent.py",
    ),
    Mutant(
        "training/loop.py",
        "ends = np.flatnonzero(dataset.terminated | dataset.truncated)",
        "ends = np.flatnonzero(dataset.terminated)",
        "test_concurrent.py",
    ),
    Mutant(
        "training/loop.py", "return int(ends[-1]) + 1", "return len(dataset)", "test_concurrent.py"
    ),
    Mutant(
        "training/loop.py", "if steps > allowed:", "if steps > len(dataset):", "test_concurrent.py"
    ),
    Mutant(
        "training/loop.py",
        "return windows[jnp.minimum(step, len(windows) - 1)]",
        "return windows[-1]",
        "test_concurrent.py",
    ),
    Mutant(
        "training/loop.py",
        "indices = jax.random.randint(key, (rows,), 0, window)",
        "indices = jax.random.randint(key, (rows,), 0, len(batch.rewards))",
        "test_concurrent.py",
    ),
    Mutant(
        "training/loop.py",
        "window = window_at(windows, step - 1)",
        "window = window_at(windows, step)",
        "test_concurrent.py",
    ),
    Mutant(
        "runs/recording.py",
        "steps=min(schedule.steps, concurrent_updates(dataset))",
        "steps=schedule.steps",
        "test_concurrent.py",
    ),
    Mutant(
        "runs/recording.py",
        "concurrent=schedule.concurrent,",
        "concurrent=False,",
        "test_concurrent.py",
    ),
    # True values and the meter.
    Mutant(
        "simulation/true_values.py",
        "truths[step.episodes] += discount**time * step.rewards",
        "truths[step.episodes] += discount ** (time + 1) * step.rewards",
        "test_values.py",
    ),
    Mutant(
        "simulation/true_values.py",
        "within = time < left[step.episodes]",
        "within = time <= left[step.episodes]",
        "test_values.py",
    ),
    Mutant(
        "simulation/true_values.py", "past)), HORIZON)", "past)), HORIZON + 1)", "test_values.py"
    ),
    Mutant(
        "training/policy.py",
        "self.scaled(observations), self.task.bounds.normalise(actions)",
        "self.scaled(observations), actions",
        "test_values.py",
    ),
    Mutant(
        "simulation/true_values.py",
        "return np.asarray(limit - elapsed)",
        "return np.asarray(limit + 0 * elapsed)",
        "test_values.py",
    ),
    Mutant(
        "simulation/true_values.py",
        "set_simulator_state(env, state_at(dataset, env, row))",
        "pass",
        "test_values.py",
    ),
    Mutant(
        "simulation/environments.py",
        "**{} if time_limit else NO_TIME_LIMIT",
        "**{}",
        "test_values.py",
    ),
    Mutant("judging/meter.py", "jnp.where(excluded, jnp.inf, squares)", "squares", "test_meter.py"),
    Mutant("judging/meter.py", "np.where(scale > 0, scale, 1)", "1", "test_meter.py"),
    Mutant(
        "judging/meter.py",
        "return self.distance / self.data_distance",
        "return self.distance",
        "test_meter.py",
    ),
    # The reproduction: which jobs, in which order, judged by which rule.
    Mutant(
        "experiments/jobs.py",
        '"threads": threads, "numbers"',
        '"numbers"',
        "test_experiments.py",
    ),
    Mutant(
        "experiments/kinds.py",
        '            "batch": self.batch.as_json(),\n',
        '            "batch": self.batch.name,\n',
        "test_experiments.py",
    ),
    Mutant(
        "paper/presets.py",
        'noise = 0.5 if plan.task == "final-buffer" else 0.1',
        "noise = 0.1",
        "test_experiments.py",
    ),
    Mutant(
        "paper/presets.py",
        'concurrent=plan.task == "concurrent",',
        "concurrent=False,",
        "test_experiments.py",
    ),
    Mutant(
        "paper/presets.py",
        "seed=trial,\n            env=plan.env,",
        "seed=0,\n            env=plan.env,",
        "test_experiments.py",
    ),
    Mutant(
        "paper/figure_9_random_behaviour.py", "vae_l2=1e-3", "vae_l2=0.0", "test_experiments.py"
    ),
    Mutant(
        "experiments/waiting.py",
        "                self.missing[name] += 1\n",
        "",
        "test_runner.py",
    ),
    Mutant(
        "experiments/runner.py",
        "outcome.skipped += waiting.skip(one.job)",
        "waiting.skip(one.job)",
        "test_runner.py",
    ),
    Mutant(
        "experiments/waiting.py",
        "heappush(self.ready, (self.numbers[user], user))",
        "self.ready.append((self.numbers[user], user))",
        "test_runner.py",
    ),
    Mutant(
        "experiments/runner.py",
        "slot = heappop(free) if free else len(running)",
        "slot = len(running)",
        "test_runner.py",
    ),
    Mutant(
        "experiments/runner.py",
        "one: one.process.stop(), running",
        "one: None, running",
        "test_runner.py",
    ),
    Mutant("experiments/worker.py", "    end_with(os.getppid())\n", "", "test_runner.py"),
    # Two processes publish; a lease is never taken over; a stopped process shares its files.
    Mutant(
        "experiments/leases.py",
        "        if not created(self.place, self.number + 1, done):",
        "        if created(self.place, self.number + 1, done) is None:",
        "test_leases.py",
    ),
    Mutant(
        "experiments/leases.py",
        "ended or clock() - since > lease",
        "ended",
        "test_leases.py",
    ),
    Mutant(
        "experiments/leases.py",
        " or place.read(entry(number)) == content",
        "",
        "test_leases.py",
    ),
    Mutant(
        "experiments/storage.py",
        "if lease.after and before.is_dir():",
        "if before.is_dir():",
        "test_leases.py",
    ),
    Mutant(
        "experiments/storage.py",
        "            if pointers(source) == before:",
        "            if True:",
        "test_leases.py",
    ),
    Mutant(
        "experiments/worker.py",
        "        stay_on(int(core[0]))\n",
        "        pass\n",
        "test_runner.py",
    ),
    Mutant(
        "experiments/records.py",
        "returns(self)[-LAST:]",
        "returns(self)[:LAST]",
        "test_claims.py",
    ),
    # Claims: intervals, sides, pairing, what counts.
    Mutant(
        "paper/judging.py",
        "stats.t.ppf((1 + LEVEL) / 2, len(values) - 1)",
        "stats.norm.ppf((1 + LEVEL) / 2)",
        "test_claims.py",
    ),
    Mutant("paper/judging.py", "ddof=1", "ddof=0", "test_claims.py"),
    Mutant(
        "paper/judging.py",
        "for verdict in (FAILS, UNKNOWN, UNDECIDED, HOLDS)",
        "for verdict in (UNKNOWN, FAILS, UNDECIDED, HOLDS)",
        "test_claims.py",
    ),
    Mutant("paper/evidence.py", "one.evaluations[-LAST:]", "one.evaluations", "test_claims.py"),
    Mutant(
        "paper/evidence.py",
        'error = abs(row["estimate"] - row["truth"])',
        'error = (row["estimate"] - row["truth"])',
        "test_claims.py",
    ),
    Mutant("paper/evidence.py", "if step > one.updates / 2]", "]", "test_claims.py"),
    Mutant("paper/evidence.py", "np.std(np.diff(late))", "np.std(late)", "test_claims.py"),
    Mutant(
        "paper/evidence.py",
        "if one.updates < SETTLED and one.divergence is None:",
        "if False:",
        "test_claims.py",
    ),
    Mutant("paper/evidence.py", "experiment in one.experiments\n", "True\n", "test_claims.py"),
    Mutant(
        "paper/figure_2_results.py",
        "if 0 < step <= updates]",
        "if step <= updates]",
        "test_claims.py",
    ),
    Mutant(
        "experiments/records.py",
        '(agent, CANDIDATES, "candidate")',
        '(agent, "concurrent", "agent")',
        "test_records.py",
    ),
    Mutant(
        "experiments/jobs.py",
        "with suppress(DivergenceError):",
        "with suppress(KeyError):",
        "test_records.py",
    ),
    Mutant("experiments/kinds.py", ", first=self.transitions", "", "test_records.py"),
    # What is recorded is not repeated, what is not the preset's is not judged.
    Mutant(
        "experiments/records.py",
        "(fingerprint(run), task, role) not in keys",
        "fingerprint(run) not in {told for told, _, _ in keys}",
        "test_cumulative.py",
    ),
    Mutant(
        "experiments/records.py",
        "fingerprint(job) != checked",
        "theory is None",
        "test_cumulative.py",
    ),
    Mutant(
        "experiments/records.py",
        "one.key if one.fingerprint else n",
        "n",
        "test_cumulative.py",
    ),
    Mutant(
        "experiments/records.py",
        ", experiments=names)",
        ")",
        "test_cumulative.py",
    ),
    Mutant("paper/reproduce.py", "if one.key not in own]", "if False]", "test_cumulative.py"),
    Mutant("experiments/jobs.py", '"numbers": NUMBERS', '"numbers": 0', "test_experiments.py"),
    Mutant(
        "paper/drawing.py",
        "means.std(axis=0) / 2",
        "means.std(axis=0)",
        "test_reproduction.py",
    ),
    Mutant(
        "experiments/statistics.py",
        "ordered[cut : len(ordered) - cut]",
        "ordered[cut:]",
        "test_table.py",
    ),
    Mutant(
        "judging/meter.py",
        "jnp.abs(means) > vae.latent_clip",
        "means > vae.latent_clip + 1",
        "test_meter.py",
    ),
    # Logs of one's own.
    Mutant("data/doctor/numbers.py", "np.maximum(FAR, 5 * spread)", "5 * spread", "test_doctor.py"),
    Mutant(
        "data/doctor/alignment.py",
        "place = batch.rows + 1 + offset",
        "place = batch.rows + offset",
        "test_doctor.py",
    ),
    Mutant("data/doctor/alignment.py", "size += (steps", "size = (steps", "test_doctor.py"),
    Mutant(
        "data/doctor/stored_batch.py",
        "(SAME * self.spread)",
        "(1e3 * self.spread)",
        "test_doctor.py",
    ),
    Mutant("data/doctor/alignment.py", "(episode + 1,", "(episode + 2,", "test_doctor.py"),
    Mutant("data/doctor/ends.py", "if batch.truncated.any() or", "if", "test_doctor.py"),
    Mutant(
        "data/doctor/alignment.py",
        "residual(known, batch.rewards[two + late])",
        "residual(known, batch.rewards[two])",
        "test_doctor.py",
    ),
    Mutant("data/doctor/numbers.py", "leaps.max() > 10", "leaps.max() > 1.1", "test_doctor.py"),
    Mutant(
        "data/episodes.py",
        'truncated[rows & (arrays["terminated"] == 0)] = True',
        "pass",
        "test_doctor.py",
    ),
    Mutant(
        "data/doctor/examination.py",
        "replace(finding, rows=kept[finding.rows])",
        "finding",
        "test_doctor.py",
    ),
    Mutant(
        "data/columns.py",
        "return replace(finding, rows=np.sort(self.rows[finding.rows]))",
        "return finding",
        "test_tables.py",
    ),
    Mutant(
        "data/bounds.py",
        "room: Column = margin * (highest - lowest)",
        "room: Column = margin",
        "test_dataset.py",
    ),
    Mutant(
        "data/formats/minari.py",
        '"next_observations": observations[1:],',
        '"next_observations": observations[:-1],',
        "test_minari.py",
    ),
    Mutant(
        "data/formats/minari.py", "arrays = cut(arrays, unflagged)\n", "pass\n", "test_minari.py"
    ),
    Mutant(
        "data/episodes.py",
        'truncated[rows & (arrays["terminated"] == 0)] = True',
        "truncated[rows] = True",
        "test_tables.py",
    ),
    Mutant(
        "data/formats/minari.py", "if not NAME.fullmatch(identity):", "if False:", "test_minari.py"
    ),
    Mutant("data/formats/npz.py", "if kind.kind not in kinds:", "if False:", "test_npz.py"),
    Mutant("data/formats/npz.py", 'order="F" if in_columns else "C"', 'order="C"', "test_npz.py"),
    Mutant("data/formats/limits.py", "claimed > MOST_COMPRESSED * stored", "False", "test_npz.py"),
    Mutant(
        "data/formats/tables.py",
        "ahead = min(stop + 1, len(log))",
        "ahead = stop",
        "test_tables.py",
    ),
    Mutant("data/formats/order.py", "cuts[gaps] = True", "pass", "test_tables.py"),
    # Signs of decimals mixed up; categories in any order, or scaled; the past of another episode.
    Mutant(
        "data/formats/dialect.py",
        'return Dialect(";", ",")',
        'return Dialect(";")',
        "test_dialect.py",
    ),
    Mutant("data/formats/texts.py", "sorted(together", "tuple(together", "test_categories.py"),
    Mutant("data/scaling.py", "varies & ~unscaled", "varies", "test_categories.py"),
    Mutant("data/history.py", "np.maximum(rows - lag, begins)", "rows - lag", "test_lags.py"),
    Mutant(
        "data/history.py",
        "observations, done, *past",
        "observations, 0 * done, *past",
        "test_lags.py",
    ),
    Mutant(
        "data/formats/tables.py",
        "np.lexsort((episodes,) if steps is None else (steps, episodes))",
        "np.argsort(episodes)[::-1]",
        "test_tables.py",
    ),
    Mutant(
        "data/formats/tables.py",
        "places[self.order] = np.arange(len(self.order))",
        "places = self.order",
        "test_tables.py",
    ),
    # A run that ignores its seed, part by part.
    Mutant(
        "runs/recording.py",
        "create(config, dataset, seed=schedule.seed)",
        "create(config, dataset, seed=0)",
        "test_seeds.py",
    ),
    Mutant(
        "runs/recording.py",
        "            seed=schedule.seed,\n            concurrent",
        "            seed=0,\n            concurrent",
        "test_seeds.py",
    ),
    Mutant(
        "runs/recording.py",
        "seed=reset_seed(schedule.seed, step),\n        window",
        "seed=reset_seed(0, step),\n        window",
        "test_seeds.py",
    ),
    Mutant(
        "runs/recorder.py",
        "seed = reset_seed(schedule.seed, step)\n",
        "seed = reset_seed(0, step)\n",
        "test_seeds.py",
    ),
    Mutant(
        "training/loop.py",
        "jax.random.fold_in(keys.estimates, step)",
        "jax.random.fold_in(jax.random.key(0), step)",
        "test_seeds.py",
    ),
    Mutant(
        "training/loop.py",
        "batch, scaling, windows, keys.updates, step, stop",
        "batch, scaling, windows, jax.random.key(0), step, stop",
        "test_seeds.py",
    ),
    Mutant(
        "training/loop.py",
        "learner.update(minibatch, update_key)",
        "learner.update(minibatch, jax.random.key(0))",
        "test_seeds.py",
    ),
    # The meter of large batches, its ratio and its signs; true values, their spread and intervals.
    Mutant(
        "judging/meter.py", "stride = -(-len(dataset) // REFERENCES)", "stride = 1", "test_meter.py"
    ),
    Mutant(
        "judging/meter.py",
        "references = np.arange(0, len(dataset), stride)",
        "references = np.arange(min(len(dataset), REFERENCES))",
        "test_meter.py",
    ),
    Mutant(
        "judging/meter.py",
        "jnp.asarray(references == row)",
        "jnp.asarray(np.arange(len(references)) == row)",
        "test_meter.py",
    ),
    Mutant(
        "judging/meter.py",
        "return self.reconstruction / self.data_reconstruction",
        "return 1.0",
        "test_meter.py",
    ),
    Mutant(
        "judging/meter.py",
        "reconstruction_error(vae, observations, logged[rows])",
        "reconstruction_error(vae, observations, actions)",
        "test_meter.py",
    ),
    Mutant(
        "judging/meter.py",
        "reconstruction_error(vae, observations, logged[rows])",
        "reconstruction_error(vae, observations, logged[: len(rows)])",
        "test_meter.py",
    ),
    Mutant("judging/meter.py", "(jnp.abs(residuals) > 0.95", "(residuals > 0.95", "test_meter.py"),
    Mutant(
        "judging/meter.py",
        "jnp.abs(means) > vae.latent_clip",
        "means > vae.latent_clip",
        "test_meter.py",
    ),
    Mutant(
        "simulation/true_values.py",
        "seed=seed, step=time, rows",
        "seed=seed, step=0, rows",
        "test_values.py",
    ),
    Mutant(
        "simulation/true_values.py",
        "seed=seed, step=time, rows",
        "seed=0, step=time, rows",
        "test_values.py",
    ),
    Mutant(
        "simulation/true_values.py",
        "rows=pairs, capacity=len(rows)",
        "capacity=len(rows)",
        "test_values.py",
    ),
    Mutant(
        "simulation/true_values.py",
        "float(self.truths.std())",
        "float(self.limited.std())",
        "test_values.py",
    ),
    Mutant(
        "simulation/true_values.py",
        "float(self.truths.std())",
        "float(self.estimates.std())",
        "test_values.py",
    ),
    Mutant("simulation/true_values.py", "[2.5, 97.5]", "[10, 90]", "test_values.py"),
    Mutant(
        "simulation/true_values.py",
        "self.estimates[rows], self.truths[rows]",
        "self.estimates[rows], self.truths",
        "test_values.py",
    ),
    Mutant(
        "simulation/true_values.py",
        "seed = derive(seed, Role.VALUES)",
        "seed = derive(seed, Role.EVALUATION)",
        "test_values.py",
    ),
    Mutant(
        "simulation/true_values.py",
        'for name in ("estimate", "truth", "limited")',
        'for name in ("estimate", "limited", "truth")',
        "test_values.py",
    ),
    Mutant(
        "runs/value_logs.py",
        "run.policy(), dataset, environment, discount=discount, seed=seed",
        "run.policy(), dataset, environment, discount=discount",
        "test_values.py",
    ),
    Mutant(
        "judging/meter.py",
        "(actions < near.min(axis=1)) | (actions > near.max(axis=1))",
        "(actions > near.max(axis=1))",
        "test_meter.py",
    ),
    Mutant(
        "judging/meter.py",
        "compared(logged[rows], near)",
        "compared(logged[: len(rows)], near)",
        "test_meter.py",
    ),
    # Rates that are no setting, and Adam's constants.
    Mutant(
        "algorithms/learning.py",
        "        return optax.adam(learning_rate)",
        "        return optax.adam(1e-3)",
        SHARED,
    ),
    Mutant(
        "algorithms/learning.py",
        "optax.add_decayed_weights(l2), optax.adam(learning_rate)",
        "optax.add_decayed_weights(l2), optax.adam(1e-3)",
        SHARED,
    ),
    Mutant(
        "algorithms/learning.py",
        "        return optax.adam(learning_rate)",
        "        return optax.adam(learning_rate, eps=1e-6)",
        SHARED,
    ),
    Mutant(
        "algorithms/learning.py",
        "        return optax.adam(learning_rate)",
        "        return optax.adam(learning_rate, b1=0.5)",
        SHARED,
    ),
    Mutant(
        "algorithms/learning.py",
        "        return optax.adam(learning_rate)",
        "        return optax.adam(learning_rate, b2=0.99)",
        SHARED,
    ),
    Mutant(
        "algorithms/bcq.py",
        "vae, adam(self.learning_rate, self.vae_l2)",
        "vae, adam(1e-3, self.vae_l2)",
        LOOP,
    ),
    Mutant("algorithms/bcq.py", "critics, adam(self.learning_rate)", "critics, adam(1e-3)", LOOP),
    Mutant(
        "algorithms/bcq.py",
        "perturbation, adam(self.learning_rate)",
        "perturbation, adam(1e-3)",
        LOOP,
    ),
    Mutant("algorithms/ddpg.py", "adam(self.actor_learning_rate)", "adam(1e-3)", LOOP),
    Mutant(
        "algorithms/ddpg.py",
        "adam(self.critic_learning_rate, self.critic_l2)",
        "adam(1e-3, self.critic_l2)",
        LOOP,
    ),
    Mutant("algorithms/dqn.py", "adam(self.learning_rate)", "adam(1e-3)", LOOP),
    Mutant("algorithms/bc.py", "adam(self.learning_rate)", "adam(1e-3)", LOOP),
    Mutant(
        "algorithms/vae_bc.py",
        "adam(self.learning_rate, self.vae_l2)",
        "adam(1e-3, self.vae_l2)",
        LOOP,
    ),
    Mutant("algorithms/ensemble.py", "actor, adam(self.learning_rate)", "actor, adam(1e-3)", LOOP),
    Mutant(
        "algorithms/ensemble.py", "critics, adam(self.learning_rate)", "critics, adam(1e-3)", LOOP
    ),
    Mutant(
        "algorithms/bcq.py",
        "vae, adam(self.learning_rate, self.vae_l2)",
        "vae, adam(self.learning_rate)",
        LOOP,
    ),
    # Tables in parts, a column with two roles; episodes that are no copies.
    Mutant(
        "data/actions.py",
        "low = least if low is None else np.fmin(low, least)",
        "low = least",
        "test_tables.py",
    ),
    Mutant(
        "data/actions.py",
        "high = most if high is None else np.fmax(high, most)",
        "high = most",
        "test_tables.py",
    ),
    Mutant(
        "data/formats/tables.py",
        "ahead > stop and bool(ahead_is_there)",
        "ahead > stop",
        "test_tables.py",
    ),
    Mutant(
        "data/formats/tables.py",
        "cut(arrays, self.cuts[start:stop])",
        "cut(arrays, self.cuts[: stop - start])",
        "test_tables.py",
    ),
    Mutant(
        "data/formats/tables.py",
        "else log.order[start:ahead]",
        "else np.arange(start, ahead)",
        "test_tables.py",
    ),
    Mutant("data/formats/mapping.py", "if len(taken) < len(given):", "if False:", "test_tables.py"),
    Mutant(
        "data/formats/mapping.py",
        "free = [name for name in present if name not in taken]",
        "free = present",
        "test_tables.py",
    ),
    Mutant(
        "data/doctor/ends.py",
        "[batch.observations, batch.actions, batch.rewards[:, None]]",
        "[batch.observations, batch.actions]",
        "test_doctor.py",
    ),
    Mutant("collection/buffer.py", 'kind="stable"', 'kind="quicksort"', "test_buffer.py"),
    # What reaches the disk, and when.
    Mutant(
        "system/files.py",
        "            os.fsync(file.fileno())\n        temporary",
        "            pass\n        temporary",
        "test_runs.py",
    ),
    Mutant("system/files.py", "        sync_directory(path.parent)\n", "", "test_runs.py"),
    Mutant("system/files.py", "        os.fsync(descriptor)\n", "        pass\n", "test_runs.py"),
    Mutant(
        "runs/directory.py",
        "                    os.fsync(file.fileno())\n",
        "                    pass\n",
        "test_runs.py",
    ),
    Mutant(
        "runs/directory.py",
        "write_text(self.directory / log, as_json_lines(rows))",
        "(self.directory / log).write_text(as_json_lines(rows))",
        "test_runs.py",
    ),
    Mutant(
        "collection/buffer.py",
        "            os.fsync(file.fileno())",
        "            pass",
        "test_buffer.py",
    ),
    Mutant("collection/recipes.py", "                log.sync()\n", "", "test_collection.py"),
    Mutant(
        "runs/directory.py",
        "for log in (*LOGS, ROWS):",
        "for log in LOGS:",
        "test_behaviour.py",
    ),
    Mutant(
        "collection/behaviour.py",
        "        log.sync()\n        recorder.finish",
        "        recorder.finish",
        "test_behaviour.py",
    ),
    # Figures: half a standard deviation, and the truth as the truth.
    Mutant(
        "runs/plots.py",
        "means - spreads / 2, means + spreads / 2",
        "means - spreads, means + spreads",
        "test_plots.py",
    ),
    Mutant(
        "runs/plots.py",
        "truths = np.array([values.truths.mean()",
        "truths = np.array([values.estimates.mean()",
        "test_plots.py",
    ),
    Mutant("runs/plots.py", "        spreads / 2,\n", "        spreads,\n", "test_plots.py"),
    Mutant(
        "runs/plots.py",
        "believed = [values.estimates.mean()",
        "believed = [values.truths.mean()",
        "test_plots.py",
    ),
    Mutant(
        "runs/plots.py",
        'values.truths, values.estimates, "."',
        'values.estimates, values.truths, "."',
        "test_plots.py",
    ),
    Mutant(
        "paper/drawing.py",
        '(r["step"], r["truth"]) for r in one.truths',
        '(r["step"], r["estimate"]) for r in one.truths',
        "test_figures.py",
    ),
    Mutant(
        "paper/drawing.py",
        "mean = truths.mean(axis=0)",
        "mean = truths[0]",
        "test_figures.py",
    ),
    Mutant(
        "paper/figure_9_random_behaviour.py",
        'truth_of=["bcq", "ddpg"])',
        'truth_of=["bcq"])',
        "test_figures.py",
    ),
    Mutant("paper/figure_8_uncertainty.py", "truth_of=labels)", "truth_of=[])", "test_figures.py"),
    Mutant(
        "paper/drawing.py",
        'means = [one.batch["expert_return"] for one',
        'means = [one.batch["mean_return"] for one',
        "test_figures.py",
    ),
    Mutant(
        "paper/drawing.py",
        '            and one.settings.get("max_perturbation", 0.05) == 0.05\n',
        "",
        "test_figures.py",
    ),
    Mutant("paper/drawing.py", "            and one.task == task\n", "", "test_figures.py"),
    Mutant(
        "paper/figure_7_perturbation.py",
        '[one for one in mine if one.settings["max_perturbation"] == phi]',
        "mine",
        "test_figures.py",
    ),
    Mutant(
        "paper/drawing.py",
        "here = [one for one in mine if one.env == env]",
        "here = mine",
        "test_figures.py",
    ),
    Mutant(
        "paper/figure_7_perturbation.py",
        "one.final, of.batch_return(one)",
        "one.best, of.batch_return(one)",
        "test_claims.py",
    ),
    Mutant(
        "paper/figure_8_uncertainty.py",
        "of_ensemble(which, of.settled_error)",
        "of_ensemble(which, of.value_error)",
        "test_claims.py",
    ),
    # Claims: finals that are bests, early without a limit, groups that run together.
    Mutant(
        "paper/figure_1_extrapolation.py",
        'if first <= row["step"] <= last]',
        'if first <= row["step"]]',
        "test_claims.py",
    ),
    Mutant(
        "paper/figure_1_extrapolation.py",
        'and one.divergence["step"] <= last',
        "",
        "test_claims.py",
    ),
    Mutant(
        "paper/figure_1_extrapolation.py",
        'of.share(a.final, b.final, "the agent")',
        'of.share(a.best, b.best, "the agent")',
        "test_claims.py",
    ),
    Mutant(
        "paper/figure_1_extrapolation.py",
        "return max(value for _, value in one.estimates)",
        "return min(value for _, value in one.estimates)",
        "test_claims.py",
    ),
    Mutant(
        "paper/evidence.py",
        "one.final - other.final, abs",
        "one.best - other.best, abs",
        "test_claims.py",
    ),
    Mutant("paper/evidence.py", "abs(batch_return(one))", "batch_return(one)", "test_claims.py"),
    Mutant("paper/evidence.py", "np.mean(np.abs(late))", "np.mean(late)", "test_claims.py"),
    Mutant(
        "paper/evidence.py",
        "both = sorted(one.keys() & other.keys())",
        "both = sorted(one.keys())",
        "test_claims.py",
    ),
    Mutant(
        "paper/evidence.py",
        '            and one.settings.get("max_perturbation", PHI) == PHI\n',
        "",
        "test_claims.py",
    ),
    Mutant(
        "paper/evidence.py",
        "return value_error(settled(one))",
        "return value_error(one)",
        "test_claims.py",
    ),
    Mutant(
        "paper/evidence.py",
        "trial: roughness(settled(one))",
        "trial: roughness(one)",
        "test_claims.py",
    ),
    Mutant(
        "paper/figure_2_results.py",
        "if step in steps[-LAST:]]",
        "if step in steps]",
        "test_claims.py",
    ),
    Mutant(
        "paper/figure_2_results.py", "if 0 < step <= updates]", "if 0 < step]", "test_claims.py"
    ),
    Mutant("paper/figure_2_results.py", "STRONGLY = 1.5", "STRONGLY = 1.9", "test_claims.py"),
    Mutant(
        "paper/figure_7_perturbation.py",
        '"large" if phi >= 1 else None',
        '"large"',
        "test_claims.py",
    ),
    Mutant(
        "paper/judging.py",
        "self.low > bar, self.high < bar",
        "self.low >= bar, self.high <= bar",
        "test_claims.py",
    ),
    Mutant(
        "paper/judging.py",
        "for one in outcomes if env in",
        "for one in outcomes[:1] if env in",
        "test_claims.py",
    ),
    # Scaling: a part of the border where it is missing, or applied twice.
    *(
        Mutant(file, old, new, "test_scaling.py")
        for file, old, new in (
            ("data/scaling.py", ".clip(-LIMIT, LIMIT)", ""),
            ("data/scaling.py", "return rewards / self", "return (rewards - 1) / self"),
            ("data/scaling.py", "return values * self.reward_spread", "return values"),
            ("data/scaling.py", "np.where(varies, spread, 1.0)", "spread"),
            ("data/scaling.py", "mean(rewards, squared=True)", "mean(rewards)"),
            ("training/loop.py", "        rewards=scaling.rewards(drawn.rewards),\n", ""),
            (
                "training/loop.py",
                "next_observations=scaling.observations(drawn.next_observations)",
                "next_observations=drawn.next_observations",
            ),
            ("training/loop.py", "if scaling is None else scaling.values(estimate)", ""),
            ("training/policy.py", "if scaling is None else scaling.observations(obs", "#"),
            ("training/policy.py", "broken.any() and fallback is None", "False"),
            ("runs/recording.py", 'if choice == "auto":', "if False:"),
        )
    ),
    # Missing cells filled from another episode, or counted wrongly; times in the order they appear.
    *(
        Mutant("data/missing.py", old, new, "test_missing.py")
        for old, new in (
            ("known = last >= begins[:, None]", "known = last >= 0"),
            ('FILLED = ("observations", "actions")', 'FILLED = ("observations",)'),
            (
                "arrays, kept = without_rows(arrays, bad)",
                "arrays, kept = without_rows(arrays, ~bad)",
            ),
            ("np.sort(rows[touched])", "np.sort(rows[bad])"),
            ('flags["terminated"] | flags["truncated"]', 'flags["terminated"]'),
        )
    ),
    Mutant(
        "data/formats/order.py",
        "before + row}",
        "row}",
        "test_tables.py",
    ),
    Mutant(
        "data/formats/tables.py", "np.median(np.diff(ends", "np.min(np.diff(ends", "test_tables.py"
    ),
    Mutant(
        "data/doctor/alignment.py",
        "without_reaction(now[two + row], acted[two + row])",
        "acted[two + row]",
        "test_doctor.py",
    ),
    Mutant(
        "experiments/runner.py",
        'Path(f"/proc/{process}/autogroup").write_text(str(LOW_PRIORITY))',
        "pass",
        "test_runner.py",
    ),
    Mutant("paper/drawing.py", " and one.label in labels]", "]", "test_figures.py"),
    *(
        Mutant("paper/table.py", old, new, "test_table.py")
        for old, new in [
            ("sorted(trials, key=lambda one: one.seed)", "trials"),
            ('and "results" in one.experiments', ""),
            (
                '(one.env, one.task, one.role) == (env, task, "learner")',
                "(one.env, one.task) == (env, task)",
            ),
        ]
    ),
    Mutant(
        "paper/table.py",
        "label = one.label if phi == 0.05 else",
        "label = one.label if True else",
        "test_table.py",
    ),
    # Choices: what published ports of discrete BCQ and DQN get wrong, and masks on their way.
    *(
        Mutant(file, old, new, tests)
        for file, old, new, tests in [
            (DISCRETE_BCQ, "logits.max(axis=-1, keepdims=True)", "logits.max()", CHOICES[0]),
            (DISCRETE_BCQ, "> threshold", ">= threshold", CHOICES[0]),
            (DISCRETE_BCQ, "jnp.where(permitted, logits, -jnp.inf)", "logits", CHOICES[0]),
            (
                DISCRETE_BCQ,
                "values = values_of(self.target_network, following, actions)",
                "values = values_of(self.network.model, following, actions)",
                CHOICES[0],
            ),
            (
                "algorithms/learning.py",
                "optax.huber_loss(values, target)",
                "(values - target) ** 2",
                CHOICES[0],
            ),
            (
                DISCRETE_BCQ,
                "actions = self.act(following, jnp.empty(0), batch.next_permitted)",
                "actions = self.act(following, jnp.empty(0))",
                CHOICES[0],
            ),
            (
                "algorithms/discrete_dqn.py",
                "values = values_of(self.target_network, following, actions)",
                "values = self.target_network(following).max(axis=-1)",  # not double
                CHOICES[0],
            ),
            (
                "algorithms/learning.py",
                "loss + logit_penalty * (logits**2).mean()",
                "loss + logit_penalty * jnp.abs(logits).mean()",
                CHOICES[0],
            ),
            (
                "training/loop.py",
                "next_permitted=jax.device_put(dataset.next_permitted)",
                "next_permitted=jax.device_put(dataset.permitted)",
                CHOICES[1],
            ),
            (
                "training/policy.py",
                "self.require_masks(permitted, count, size)",
                "None",
                CHOICES[1],
            ),
            ("data/checks.py", "(numbers % 1 == 0) &", "", CHOICES[2]),
            ("data/checks.py", "& (numbers >= 0)", "", CHOICES[2]),
            ("data/checks.py", "& (numbers <= last)", "", CHOICES[2]),
            ("data/formats/choices.py", "ordered[role] = tuple(", "tuple(", CHOICES[2]),
            (
                "data/formats/choices.py",
                "Choices(sorted(texts.categories() | masked))",
                "Choices(list(texts.categories() | masked))",
                CHOICES[2],
            ),
            (
                "data/actions.py",
                "values == set(map(float, range(len(values))))",
                "True",
                CHOICES[2],
            ),
            (
                "data/formats/mapping.py",
                "own = [name for name in free if closest[name] in patterns]",
                "own = free",
                "test_tables.py",
            ),
            (
                "data/formats/minari.py",
                '.reshape(len(arrays["rewards"]), -1) - first',
                "",
                CHOICES[2],
            ),
        ]
    ),
    *(
        Mutant(f"judging/{file}.py", old, new, tests)
        for file, old, new, tests in [
            ("fitting", "jnp.where(steps.terminated, 0.0, next_values)", "next_values", JUDGING),
            (
                "fitting",
                "return jnp.clip(steps.rewards",
                "return (lambda x, *_: x)(steps.rewards",
                JUDGING,
            ),
            ("fitting", "1 / (period * (1 - discount))", "0.005", JUDGING),
            ("fitting", "* AHEAD", "* 0", JUDGING),
            (
                "values",
                "np.where(dataset.terminated[stops - 1], 0.0, discount**lengths)",
                "discount**lengths",
                JUDGING,
            ),
            ("values", "reached > low + NEAR_LIMIT", "False and low > low + NEAR_LIMIT", JUDGING),
            (
                "values",
                ", float(np.median(dataset.rewards)) / (1 - discount))",
                ", -np.inf)",
                JUDGING,
            ),
            ("values", "of_policy - of_behaviour", "of_policy", JUDGING),
            (
                "importance",
                "np.where(table.exists, table.of(ratios), 1.0)",
                "table.of(ratios)",
                JUDGING,
            ),
            (
                "importance",
                "before * table.of(state_values)",
                "shares * table.of(state_values)",
                JUDGING,
            ),
            (
                "verdict",
                "return not suspect, self.values",
                "return True, self.values",
                "test_verdict.py",
            ),
            (
                "verdict",
                "return not suspect, self.values",
                "return self.sound, self.values",
                "test_verdict.py",
            ),
            ("values", "of_behaviour, settings.widening", "of_behaviour", JUDGING),
            (
                "values",
                "self.fits - other.fits, self.widening",
                "self.fits - other.fits",
                "test_verdict.py",
            ),
            (
                "verdict",
                "self.values.difference.low > 0",
                "self.values.difference.value > 0",
                "test_verdict.py",
            ),
            ("values", "fitted.settled and complete", "fitted.settled", JUDGING),
            ("values", "low - behaviour.high, high - behaviour.low", "low, high", JUDGING),
            (
                "values",
                "low - behaviour.high, high - behaviour.low",
                "low - usual, high - usual",
                JUDGING,
            ),
            ("verdict", "if self.doubts:", "if False:", "test_verdict.py"),
            ("support", "rarity * min(1 /", "rarity * max(1 /", "test_verdict.py"),
            (
                "support",
                "dataset.episodes[:, 0], ~dataset.terminated",
                "dataset.episodes[:, 0], dataset.terminated | True",
                "test_verdict.py",
            ),
            ("behaviour", "np.where(permitted, chances, 0.0)", "chances", "test_verdict.py"),
            ("candidates", "for one in alike)", "for one in alike[:1])", "test_verdict.py"),
            (
                "candidates",
                "numbers[start::2]) for start in (0, 1)",
                "numbers[start::2]) for start in (0, 0)",
                "test_verdict.py",
            ),
        ]
    ),
    # Sweeps and comparisons.
    *(
        Mutant(f"experiments/{file}.py", old, new, tests)
        for file, old, new, tests in [
            ("statistics", "(middle * (middle - 1))", "(count * (count - 1))", STATISTICS),
            ("statistics", "float(own), middle - 1.0)", "float(own), count - 1.0)", STATISTICS),
            ("statistics", "(1 - LEVEL) / max(1, count - 1)", "(1 - LEVEL)", STATISTICS),
            ("statistics", ".interval(1 - (1 - LEVEL) / count)", ".interval()", STATISTICS),
            ("comparison", "(means[1:] or means)[-LAST:]", "means[-LAST:]", COMPARISON),
            ("comparison", "(not one.objected, one.centre", "(True, one.centre", COMPARISON),
            ("comparison", "in self.ranked if not one.objected]", "in self.ranked]", COMPARISON),
            ("comparison", "float(np.mean(widths)) / reach if widths else", "", COMPARISON),
            ("file_jobs", '"scaling": self.scaling,', '"scaling": "auto",', SWEEPS),
            ("file_jobs", '"content": self.content,', '"content": "",', SWEEPS),
            ("file_jobs", "dataset.fingerprint != self.content", "False", SWEEPS),
            ("file_jobs", "hold_out.divide(dataset)[1]", "hold_out.divide(dataset)[0]", SWEEPS),
            ("sweeps", "if one.content == new.content:", "if False:", SWEEPS),
        ]
    ),
    # The service: who may ask, what it refuses, slow clients, its log and how that is read.
    Mutant(
        "serving/service.py",
        'if hmac.compare_digest(given, f"Bearer {self.token}".encode()):',
        'if given.startswith(f"Bearer {self.token[:4]}".encode()):',
        SERVING,
    ),
    Mutant(
        "serving/service.py",
        "if self.token is None or path in OPEN:",
        "if self.token is None or path in PATHS:",
        SERVING,
    ),
    Mutant("serving/service.py", "if self.local and host not in LOCAL:", "if False:", SERVING),
    Mutant(
        "serving/service.py",
        'if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":',
        "if False:",
        SERVING,
    ),
    Mutant(
        "serving/service.py",
        "if without.any():",
        "if False:",
        SERVING,
    ),
    Mutant(
        "serving/service.py",
        "async with asyncio.timeout(BODY_SECONDS):",
        "async with asyncio.timeout(None):",
        SERVING,
    ),
    Mutant(
        "serving/service.py", "if size > LARGEST_BODY:", "if size > 100 * LARGEST_BODY:", SERVING
    ),
    Mutant(
        "serving/running.py",
        "self.timer = self.loop.call_later(PATIENCE, self.transport.abort)",
        "pass",
        SERVING,
    ),
    Mutant(
        "serving/running.py",
        "super().on_response_complete()\n        self.wait()",
        "super().on_response_complete()",
        SERVING,
    ),
    Mutant(
        "serving/running.py",
        "return interruption.requested() or await super().on_tick(counter)",
        "return await super().on_tick(counter)",
        SERVING,
    ),
    Mutant(
        "serving/running.py",
        "if self.log is not None and counter % FLUSH_TICKS == 0:",
        "if False:",
        SERVING,
    ),
    Mutant(
        "serving/requests.py",
        "json.loads(body, parse_constant=refuse_constant)",
        "json.loads(body)",
        SERVING,
    ),
    Mutant("serving/requests.py", "if len(rows) > MOST_ROWS:", "if False:", SERVING),
    Mutant(
        "serving/requests.py",
        "return [name in permitted for name in choices]",
        "return [True for name in choices]",
        SERVING,
    ),
    Mutant(
        "serving/log.py",
        "pa.Table.from_batches([*self.written, batch])",
        "pa.Table.from_batches([batch])",
        SERVING,
    ),
    Mutant("serving/log.py", "self.new = rows + self.new", "pass", SERVING),
    Mutant(
        "serving/log.py",
        '"episode": question.episodes[row] or name,',
        '"episode": question.episodes[row] or "none",',
        SERVING,
    ),
    Mutant(
        "serving/log.py",
        "self.number = max(last, default=0) + 1",
        "self.number = max(last, default=1)",
        SERVING,
    ),
    Mutant(
        "serving/log.py",
        "if found is not None and found.as_json() != policy.log_form.as_json():",
        "if False:",
        SERVING,
    ),
    Mutant("serving/log.py", 'f"{time.time_ns() // 1_000_000:x}"', '"a"', SERVING),
    Mutant(
        "serving/policy.py",
        "actions[~valid] = policy.fallback.astype(actions.dtype)",
        "pass",
        SERVING,
    ),
    Mutant(
        "data/formats/decisions.py",
        'aggregate([("row", "max")])["row_max"]',
        'aggregate([("row", "min")])["row_min"]',
        SERVING,
    ),
    Mutant("data/formats/decisions.py", "tuple(map(escape, columns))", "tuple(columns)", SERVING),
    Mutant(
        "data/formats/decisions.py",
        'if not unknown or name != "step"]',
        'if name != "step"]',
        SERVING,
    ),
    Mutant(
        "data/formats/tables.py",
        "choices=self.choices if told is None else told.choices,",
        "choices=self.choices,",
        SERVING,
    ),
    Mutant(
        "data/formats/tables.py", "categories={**log.categories, **told}, task", "task", SERVING
    ),
    Mutant("data/opening.py", 'missing = "cut"  #', 'missing = "refuse"  #', SERVING),
    Mutant(
        "export/exporting.py",
        'if weights != run.checkpoints()[-1]["sha256"]:',
        "if False:",
        "test_export.py",
    ),
]


def first_tests(mutant: Mutant, suite: Suite) -> dict[str, float]:
    """The tests of its file that call the changed function, quick ones first."""
    text = suite.package[mutant.file]
    function = function_at(text, text.count("\n", 0, text.index(mutant.old)) + 1)
    calling = {
        test: suite.seconds[test]
        for test, functions in suite.called.items()
        if "::" in test and file_of(test) == mutant.tests and function in functions
    }
    return dict(sorted(calling.items(), key=lambda one: one[1]))


def is_caught(copy: Copy, mutant: Mutant, suite: Suite) -> bool:
    """Whether a test fails on a copy of the project with that one line changed."""
    path, text = copy.package / mutant.file, suite.package[mutant.file]
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.file}: {text.count(mutant.old)} places read {mutant.old!r}")
    path.write_text(text.replace(mutant.old, mutant.new))
    try:
        few, whole = first_tests(mutant, suite), {mutant.tests: suite.seconds[mutant.tests]}
        return bool(few and copy.test(few).failed) or bool(copy.test(whole).failed)
    finally:
        path.write_text(text)


def main() -> None:
    """Tries every mutant of the last commit, two at a time."""
    wanted = [mutant for mutant in MUTANTS if all(word in str(mutant) for word in sys.argv[1:])]
    commit = subprocess.check_output(["git", "-C", ROOT, "rev-parse", "HEAD"], text=True).strip()
    home = ROOT / ".mutants"
    copies, suite = prepare(home, commit)
    results = home / commit / "regression.jsonl"
    caught = {line["mutant"]: line["caught"] for line in read_lines(results)}
    left = [mutant for mutant in wanted if str(mutant) not in caught]

    def seen_by_tests(copy: Copy, mutant: Mutant) -> bool:
        copy.warm_up(home / "warm")
        return is_caught(copy, mutant, suite)

    for mutant, seen in in_turn(copies, left, seen_by_tests, "mutants"):
        append_line(results, mutant=str(mutant), caught=seen)
        caught[str(mutant)] = seen
    survivors = [mutant for mutant in wanted if not caught[str(mutant)]]
    for mutant in survivors:
        print(f"survived: {mutant.file}: {mutant.new}")
    print(f"{len(wanted) - len(survivors)} of {len(wanted)} mutants caught, commit {commit[:12]}")
    sys.exit(bool(survivors))


if __name__ == "__main__":
    main()
