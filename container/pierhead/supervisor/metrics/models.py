"""The metrics of a multi-model endpoint: its table, and the servers of the models that are loaded.

What the servers of a model have counted leaves the page with the model; the counts of loads stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pierhead.prometheus_text import Metric, Page
from pierhead.supervisor.metrics.servers import ServerMetrics
from pierhead.supervisor.models.table import ModelTable
from pierhead.supervisor.process import Process

__all__ = ["METRICS", "ModelMetrics"]

LOADED = Metric("pierhead_models_loaded", "gauge", "Models that are loaded at the multi-model endpoint.")
LOADS = Metric(
    "pierhead_model_loads_total",
    "counter",
    "Loads that are over: `loaded`, `failed`; and loaded models that are gone: `unloaded`, `dropped`.",
    ("result",),
)
METRICS = (LOADED, LOADS)


class ModelMetrics:
    """The table, as a part of the page."""

    name = "models"

    def __init__(self, table: ModelTable) -> None:
        self._table = table
        self._servers: dict[Process, ServerMetrics] = {}
        self._page = Page()

    def refresh(self, _deadline: float) -> None:
        """Look at the table."""
        page = Page()
        page.set(LOADED, len(self._table.loaded()))
        for result, count in sorted(self._table.ends.items()):
            page.set(LOADS, count, result)
        self._page = page

    def page(self) -> Page:
        """Return what was seen last."""
        return self._page

    def servers(self) -> Sequence[ServerMetrics]:
        """Return the model servers of loaded models, each as a part of the page."""
        servers = {
            process: self._servers.get(process)
            or ServerMetrics(process.name, address.rest_port, partial(getattr, process, "pid"))
            for process, address in self._table.servers()
        }
        self._servers = servers
        return tuple(servers.values())
