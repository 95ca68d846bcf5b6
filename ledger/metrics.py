"""What is counted in this process, and gauges read from the database when someone asks."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily

from ledger.queries import gauges

REGISTRY = CollectorRegistry()
REQUESTS = Histogram(
    "saga_request_seconds",
    "Time to answer an API request, waiting included.",
    ["method", "route", "status"],
    # From a replay on an idle machine to the longest wait that a caller may ask for.
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60),
    registry=REGISTRY,
)
PROPOSALS = Counter(
    "saga_proposals",
    "Submitted steps by what became of the submit: accepted, replayed, in_flight.",
    ["kind"],
    registry=REGISTRY,
)


class DatabaseGauges:
    """Read at every scrape; each query is bounded (ledger/queries/gauges.py)."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        steps = GaugeMetricFamily(
            "saga_steps", "Steps now in a state that should not last.", labels=["state"]
        )
        for state, count in gauges.steps_by_state().items():
            steps.add_metric([state], count)
        yield steps
        outbox = gauges.outbox()
        yield _gauge("saga_outbox_waiting", "Outbox messages that are due and untaken.", outbox.due)
        yield _gauge("saga_outbox_oldest_seconds", "Age of the oldest of them.", outbox.oldest_s)
        shifts = gauges.live_shifts()
        yield _gauge("saga_shifts_live", "Shifts with a lease that has not run out.", shifts)
        yield _gauge(
            "saga_queue_reports_ignored",
            "Shifts' jobs that RQ delivered again or called failed: the ledger heeds neither.",
            gauges.ignored_reports(),
        )
        lag = 0.0 if shifts else outbox.oldest_s
        yield _gauge(
            "saga_relay_lag_seconds", "How long due work has waited with no live shift.", lag
        )


def _gauge(name: str, meaning: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, meaning, value=value)


REGISTRY.register(DatabaseGauges())
