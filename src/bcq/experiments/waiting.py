"""Jobs that wait for other jobs. A change costs as much as the jobs that it touches."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from pathlib import Path

from bcq.experiments.forms import steps_done
from bcq.experiments.jobs import Job, fingerprint


class Waiting:
    """Jobs that are neither started nor skipped, in the order given, needs first."""

    def __init__(self, jobs: Sequence[Job], folder: Path):
        self.jobs = {fingerprint(job): job for job in jobs}
        self.numbers = {name: number for number, name in enumerate(self.jobs)}
        self.to_do = {name: job.length - steps_done(job, folder) for name, job in self.jobs.items()}
        self.missing: Counter[str] = Counter()  # by job: how many of its needs are not done
        self.users: dict[str, list[str]] = defaultdict(list)  # by job: those that need it
        self.steps: Counter[str] = Counter()  # by kind of job: steps to do
        for name, job in self.jobs.items():
            self.steps[kind(job)] += self.to_do[name]
            for need in {fingerprint(need) for need in job.needs} & self.jobs.keys():
                self.missing[name] += 1
                self.users[need].append(name)
        self.ready = [(self.numbers[name], name) for name in self.jobs if not self.missing[name]]
        heapify(self.ready)

    def __len__(self) -> int:
        return len(self.jobs)

    def take(self) -> Job | None:
        """The first job whose needs are done. It does not wait any more."""
        return self.remove(heappop(self.ready)[1]) if self.ready else None

    def done(self, job: Job) -> None:
        """Takes note that a job is done: others may be ready now."""
        for user in self.users.pop(fingerprint(job), ()):
            self.missing[user] -= 1
            if not self.missing[user] and user in self.jobs:
                heappush(self.ready, (self.numbers[user], user))

    def skip(self, failed: Job) -> list[Job]:
        """Removes the jobs that need a failed job, and those that need them; in order."""
        lost, unseen = set[str](), [fingerprint(failed)]
        while unseen:
            new = set(self.users.pop(unseen.pop(), ())) - lost
            lost |= new
            unseen += new
        return [self.remove(name) for name in sorted(lost & self.jobs.keys(), key=self.place)]

    def place(self, name: str) -> int:
        """Where a job stands in the order given."""
        return self.numbers[name]

    def remove(self, name: str) -> Job:
        """Takes a job out."""
        job = self.jobs.pop(name)
        self.steps[kind(job)] -= self.to_do[name]
        if not self.steps[kind(job)]:
            del self.steps[kind(job)]
        return job


def kind(job: Job) -> str:
    """The name without the seed: jobs of one kind take about the same time."""
    return job.name.rsplit("-seed", 1)[0]
