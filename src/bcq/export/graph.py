"""The ONNX graph of a policy: each function stands beside the `act` of its algorithms.

Imported only when an ONNX file is asked for, because it needs the package onnx.
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, checker, helper, numpy_helper

from bcq.export.content import Content

OPSET = 17
IR_VERSION = 8  # the one of opset 17, so that older runtimes read the file
LARGEST = np.finfo(np.float32).max
NOWHERE = float("-inf")


class Graph:
    """Nodes in order; the output of a node is known by its name."""

    def __init__(self, content: Content):
        self.arrays, self.acting = content.arrays, content.card["acting"]
        self.nodes: list[Any] = []
        self.constants: dict[str, NDArray[Any]] = {}

    def add(self, kind: str, *inputs: str | float | NDArray[Any], **attributes: Any) -> str:
        """A node; an input is the name of another output, or a constant."""
        names = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        output = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [output], name=output, **attributes))
        return output

    def constant(self, value: float | NDArray[Any], name: str | None = None) -> str:
        """A constant; numbers are in single precision."""
        name = name or f"constant_{len(self.constants)}"
        self.constants[name] = np.asarray(value, None if isinstance(value, np.ndarray) else "f4")
        return name

    def stored(self, name: str) -> str:
        """An array of the file, under its own name."""
        return self.constant(self.arrays[name], name)

    def network(self, name: str, inputs: str) -> str:
        """`networks.MLP`: fully connected layers with ReLU between them, (rows, inputs)."""
        depth = sum(each.startswith(f"{name}.") for each in self.arrays) // 2
        for number in range(depth):
            inputs = self.add("Relu", inputs) if number else inputs
            layer = (self.stored(f"{name}.{number}.{part}") for part in ("weight", "bias"))
            inputs = self.add("Gemm", inputs, *layer)
        return inputs

    def reshape(self, value: str, *shape: int) -> str:
        """The same numbers in another shape."""
        return self.add("Reshape", value, np.array(shape))

    def every(self, flags: str) -> str:
        """Whether all flags of a row are set, (rows,)."""
        numbers = self.add("Cast", flags, to=TensorProto.FLOAT)
        least = self.add("ReduceMin", numbers, axes=[1], keepdims=0)
        return self.add("Cast", least, to=TensorProto.BOOL)

    def finite(self, numbers: str) -> str:
        """Whether each number is finite; a comparison with NaN is false."""
        return self.add("LessOrEqual", self.add("Abs", numbers), float(LARGEST))


def actor(graph: Graph, observations: str, noise: str) -> str:
    """`Actor`: BC, DDPG, the ensemble."""
    del noise  # nothing is drawn
    return graph.add("Tanh", graph.network("actor", observations))


def bins(graph: Graph, observations: str, noise: str) -> str:
    """`DQN.act`: the centre of the best bin, dimension by dimension."""
    del noise  # nothing is drawn
    count, size = graph.acting["num_bins"], len(graph.arrays["action_low"])
    values = graph.reshape(graph.network("network", observations), -1, size, count)
    best = graph.add("ArgMax", values, axis=2, keepdims=0)
    twice = graph.add("Mul", graph.add("Cast", best, to=TensorProto.FLOAT), 2.0)
    share = graph.add("Div", graph.add("Add", twice, 1.0), float(count))
    return graph.add("Sub", share, 1.0)


def sample(graph: Graph, observations: str, noise: str) -> str:
    """`ConditionalVAE.generate`: the action of a latent, which is clipped."""
    limit = graph.acting["latent_clip"]
    latents = graph.add("Clip", noise, -limit, limit)
    return graph.add("Tanh", graph.network("decoder", beside(graph, observations, latents)))


def candidates(graph: Graph, observations: str, noise: str) -> str:
    """`BCQ.act_with`: samples, moved by the perturbation model; the best by the first critic."""
    (count, latent_size), size = graph.acting["noise_shape"], len(graph.arrays["action_low"])
    observation_size = len(graph.arrays["decoder.0.weight"]) - latent_size
    apart = graph.add("Unsqueeze", observations, np.array([1]))
    repeated = graph.add("Expand", apart, np.array([1, count, 1]))  # (rows, n, numbers)
    states = graph.reshape(repeated, -1, observation_size)  # (rows n, numbers)
    made = sample(graph, states, graph.reshape(noise, -1, latent_size))
    tanh = graph.add("Tanh", graph.network("perturbation", beside(graph, states, made)))
    residuals = graph.add("Mul", tanh, graph.acting["max_perturbation"])
    moved = graph.add("Clip", graph.add("Add", made, residuals), -1.0, 1.0)
    values = graph.network("critic", beside(graph, states, moved))
    best = graph.add("ArgMax", graph.reshape(values, -1, count), axis=1, keepdims=1)  # (rows, 1)
    apart = graph.add("Unsqueeze", best, np.array([2]))
    places = graph.add("Expand", apart, np.array([1, 1, size]))  # (rows, 1, size)
    chosen = graph.add("GatherElements", graph.reshape(moved, -1, count, size), places, axis=1)
    return graph.add("Squeeze", chosen, np.array([1]))


def best(graph: Graph, observations: str, permitted: str) -> str:
    """`learning.best`: the choice with the highest value or logit, of those permitted."""
    values = graph.add("Where", permitted, graph.network("network", observations), NOWHERE)
    return graph.add("ArgMax", values, axis=1, keepdims=0)


def likely(graph: Graph, observations: str, permitted: str) -> str:
    """`DiscreteBCQ.act`: the best of the choices that the behaviour finds likely enough."""
    logits = graph.add("Where", permitted, graph.network("behaviour", observations), NOWHERE)
    highest = graph.add("ReduceMax", logits, axes=[1], keepdims=1)
    share = graph.add("Exp", graph.add("Sub", logits, highest))
    return best(graph, observations, graph.add("Greater", share, graph.acting["threshold"]))


KINDS: dict[str, Callable[[Graph, str, str], str]] = {
    **{"actor": actor, "bins": bins, "sample": sample, "candidates": candidates},
    **{"best": best, "likely": likely},
}


def beside(graph: Graph, *parts: str) -> str:
    """Inputs of a network side by side."""
    return graph.add("Concat", *parts, axis=1)


def model_of(content: Content) -> ModelProto:
    """The whole policy: an observation in the user's units in, an action in the user's units out.

    The action of a row that is not valid is the fallback; it is never NaN.
    """
    graph, task = Graph(content), content.card["task"]
    size, names = task["observation_size"], task.get("action_names")
    inputs = [helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["rows", size])]
    finite = graph.finite("observation")
    whole = graph.every(finite)
    # Zeros instead of NaN: runtimes differ in where they find the maximum of NaN.
    states = scaled(graph, graph.add("Where", finite, "observation", 0.0))
    kind = KINDS[graph.acting["kind"]]
    if names is None:
        noise = noise_of(graph)
        if noise == "noise":
            shape = ["rows", *graph.acting["noise_shape"]]
            inputs.append(helper.make_tensor_value_info(noise, TensorProto.FLOAT, shape))
        found = in_units(graph, kind(graph, states, noise))
        valid = graph.add("And", whole, graph.every(graph.finite(found)))
        column = graph.add("Unsqueeze", valid, np.array([1]))
        action = graph.add("Where", column, found, graph.stored("fallback"))
        out = helper.make_tensor_value_info(
            "action", TensorProto.FLOAT, ["rows", len(graph.arrays["fallback"])]
        )
    else:
        permitted = graph.constant(np.ones((1, len(names)), bool), "permitted")
        shape = ["rows or 1", len(names)]  # an input with a default, which is all choices
        inputs.append(helper.make_tensor_value_info(permitted, TensorProto.BOOL, shape))
        none = graph.every(graph.add("Not", permitted))
        valid = graph.add("And", whole, graph.add("Not", none))
        fallback = graph.arrays["fallback"].astype(np.int64)
        action = graph.add("Where", valid, kind(graph, states, permitted), fallback)
        out = helper.make_tensor_value_info("action", TensorProto.INT64, ["rows"])
    return finished(graph, content, inputs, out, {action: "action", valid: "valid"})


def scaled(graph: Graph, observations: str) -> str:
    """`Scaling.observations`."""
    if "centre" not in graph.arrays:
        return observations
    limit = graph.acting["scaled_limit"]
    distance = graph.add("Sub", observations, graph.stored("centre"))
    return graph.add("Clip", graph.add("Div", distance, graph.stored("spread")), -limit, limit)


def in_units(graph: Graph, actions: str) -> str:
    """`ActionBounds.denormalise`."""
    wide = graph.add("Mul", actions, graph.stored("action_half_width"))
    found = graph.add("Add", wide, graph.stored("action_centre"))
    found = graph.add("Max", found, graph.stored("action_low"))
    return graph.add("Min", found, graph.stored("action_high"))


def noise_of(graph: Graph) -> str:
    """The bank of latents for each row, or the name of the second input, or nothing."""
    if graph.acting["mode"] != "deterministic":
        return "noise" if graph.acting["mode"] == "noise-input" else ""
    rows = graph.add("Shape", "observation", start=0, end=1)
    shape = graph.add("Concat", rows, np.array(graph.acting["noise_shape"]), axis=0)
    return graph.add("Expand", graph.stored("latents"), shape)


def inside_of(graph: Graph) -> str:
    """Whether each observation is finite and within the range of the batch, if it is known."""
    within = graph.finite("observation")
    if "seen_low" in graph.arrays:
        above = graph.add("GreaterOrEqual", "observation", graph.stored("seen_low"))
        below = graph.add("LessOrEqual", "observation", graph.stored("seen_high"))
        within = graph.add("And", within, graph.add("And", above, below))
    return graph.every(within)


def finished(
    graph: Graph, content: Content, inputs: list[Any], out: Any, outputs: dict[str, str]
) -> ModelProto:
    """The model, checked, with its card."""
    outputs = {**outputs, inside_of(graph): "inside"}
    for source, name in outputs.items():
        graph.nodes.append(helper.make_node("Identity", [source], [name], name=name))
    flags = ("valid", "inside")
    told = [helper.make_tensor_value_info(name, TensorProto.BOOL, ["rows"]) for name in flags]
    constants = [numpy_helper.from_array(each, name) for name, each in graph.constants.items()]
    model = helper.make_model(
        helper.make_graph(graph.nodes, "policy", inputs, [out, *told], constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="bcq",
        producer_version=content.card["exported_by"]["bcq"],
    )
    helper.set_model_props(model, {"card": json.dumps(content.card)})
    checker.check_model(model, full_check=True)
    return model
