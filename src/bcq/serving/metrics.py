"""What a service counts, in the text format of Prometheus."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import accumulate

BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # seconds


class Metrics:
    """Counters of one process, since its start."""

    def __init__(self, **about: str):
        self.about = about
        self.requests: Counter[tuple[str, int]] = Counter()  # by path and status
        self.counts: Counter[str] = Counter()
        self.durations = [0] * (len(BUCKETS) + 1)  # of acting; the last is for longer ones
        self.seconds = 0.0

    def acted(self, seconds: float) -> None:
        """Takes the time that acting took for a request."""
        self.seconds += seconds
        self.durations[sum(seconds > bucket for bucket in BUCKETS)] += 1

    def text(self, gauges: Mapping[str, float]) -> str:
        """Everything, and some numbers of this moment."""
        return "\n".join([*self.lines(gauges), ""])

    def lines(self, gauges: Mapping[str, float]) -> Iterator[str]:
        """The lines of the text."""
        yield "# TYPE bcq_policy gauge"
        yield f"bcq_policy{labels(**self.about)} 1"
        yield "# TYPE bcq_requests_total counter"
        for (path, status), count in sorted(self.requests.items()):
            yield f"bcq_requests_total{labels(path=path, status=str(status))} {count}"
        for name in ("decisions", "decisions_outside", "decisions_not_valid", "outcomes"):
            yield f"# TYPE bcq_{name}_total counter"
            yield f"bcq_{name}_total {self.counts[name]}"
        yield "# TYPE bcq_act_seconds histogram"
        ends = (*map(str, BUCKETS), "+Inf")
        for end, count in zip(ends, accumulate(self.durations), strict=True):
            yield f"bcq_act_seconds_bucket{labels(le=end)} {count}"
        yield f"bcq_act_seconds_sum {self.seconds:.6f}"
        yield f"bcq_act_seconds_count {sum(self.durations)}"
        for name, number in gauges.items():
            yield f"# TYPE bcq_{name} gauge"
            yield f"bcq_{name} {number:g}"


def labels(**named: str) -> str:
    """Labels, with the characters escaped that the format reserves."""
    escaped = {
        key: text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        for key, text in named.items()
    }
    return "{" + ",".join(f'{key}="{text}"' for key, text in escaped.items()) + "}"
