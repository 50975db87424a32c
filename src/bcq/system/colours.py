"""The style of all figures."""

import matplotlib as mpl

mpl.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10})
# The Okabe-Ito palette, which colour-blind readers can distinguish; one colour per algorithm.
COLOURS = {
    "bcq": "#0072b2",
    "ddpg": "#d55e00",
    "dqn": "#cc79a7",
    "bc": "#009e73",
    "vae-bc": "#e69f00",
    "ensemble": "#56b4e9",
}
# An algorithm for choices has the colour of its counterpart.
COLOURS |= {f"discrete-{name}": COLOURS[name] for name in ("bcq", "dqn", "bc")}
BATCH_COLOUR = "#000000"
