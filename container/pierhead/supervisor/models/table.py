"""The table of a multi-model endpoint: which models are loaded, being loaded, and being unloaded.

The supervisor's loop alone changes it. Nothing in it waits: what may take time runs in threads that report to
the loop's inbox, and whoever asked is answered when the outcome is known. So loads run side by side, and no
other request waits for one. Source: SageMaker's platform contract, section 2.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from pierhead.control import ServerAddress
from pierhead.errors import Code, ServingError
from pierhead.settings import Settings
from pierhead.supervisor.events import (
    Answer,
    LoadRequested,
    ModelEvent,
    ModelPrepared,
    ModelRemoved,
    UnloadRequested,
)
from pierhead.supervisor.group import ProcessGroup, Surroundings, stop_highest_stage
from pierhead.supervisor.memory_use import MemoryUse
from pierhead.supervisor.models.failures import (
    explain_end,
    explain_refusal,
    explain_timeout,
    refuse_full_memory,
)
from pierhead.supervisor.models.model import Model, ModelState, PreparedModel
from pierhead.supervisor.models.preparation import Preparer
from pierhead.supervisor.models.publication import Publication
from pierhead.supervisor.outputs import Outputs
from pierhead.supervisor.process import Process

__all__ = ["ModelTable"]

UNLOAD_SECONDS = 25.0
LAST_LINES_SECONDS = 0.3
GONE_SECONDS = 2.0
GONE_POLL_SECONDS = 0.005
log = logging.getLogger(__name__)


class ModelTable:
    """The models by name.

    `report` puts an event into the loop's inbox; `memory` tells what is in use.
    """

    def __init__(
        self,
        settings: Settings,
        surroundings: Surroundings,
        *,
        preparer: Preparer,
        publication: Publication,
        report: Callable[[ModelEvent], None],
        memory: Callable[[], MemoryUse | None],
        outputs: Outputs,
    ) -> None:
        self.ends: Counter[str] = Counter()
        self._settings = settings
        self._surroundings = surroundings
        self._preparer = preparer
        self._publication = publication
        self._report = report
        self._memory = memory
        self._outputs = outputs
        self._models: dict[str, Model] = {}
        self._outer: Mapping[str, Process] = {}
        self._count = 0
        self._is_stopping = False

    def open(self, outer: Mapping[str, Process]) -> None:
        """Take the processes of the stack, which those of models may need."""
        self._outer = outer

    def loaded(self) -> dict[str, str]:
        """Return the urls of all loaded models by name, sorted; may be called from any thread."""
        models = tuple(self._models.values())
        return dict(sorted((each.name, each.url) for each in models if each.state is ModelState.LOADED))

    def groups(self) -> Iterator[ProcessGroup]:
        """Yield the processes of each model; may be called from any thread."""
        for model in list(self._models.values()):
            if model.group is not None:
                yield model.group

    def servers(self) -> Iterator[tuple[Process, ServerAddress]]:
        """Yield the model servers of loaded models; may be called from any thread."""
        for model in list(self._models.values()):
            group, prepared = model.group, model.prepared
            if model.state is ModelState.LOADED and group is not None and prepared is not None:
                servers = (group.processes[name] for name in prepared.probes)
                yield from zip(servers, prepared.addresses, strict=True)

    def deadlines(self) -> list[float]:
        """Return when `advance` has something to do without an event."""
        return [model.deadline for model in self._models.values() if model.deadline is not None]

    def handle(self, event: ModelEvent, now: float) -> None:
        """Take one event."""
        match event:
            case LoadRequested():
                self._begin_load(event, now)
            case UnloadRequested(name, answer):
                self._begin_unload(name, answer, now)
            case ModelPrepared(number, result):
                self._note_prepared(self._by_number(number), result, now)
            case ModelRemoved(number):
                self._forget(self._by_number(number), now)

    def advance(self, now: float) -> None:
        """Do all that is due."""
        for model in list(self._models.values()):
            if model.group is not None:
                model.group.advance(now, may_start=not (model.is_going or self._is_stopping))
            if model.is_starting:
                self._advance_load(model, now)
            elif model.state is ModelState.LOADED:
                self._watch(model, now)
            if model.state is ModelState.ENDING:
                self._advance_end(model, now)

    def begin_stop(self) -> None:
        """Answer all who wait, and end what has served nobody yet; the stack stops all other processes.

        nginx, which ends first, ends when the last request is answered.
        """
        self._is_stopping = True
        for model in self._models.values():
            if model.is_starting and model.group is not None:
                model.group.kill()
            self._answer_loader(model, _stopping())
            postponed = [request.answer for request in model.postponed]
            for answer in (*model.unloaders, *model.latecomers, *postponed):
                answer(_stopping())
            model.unloaders, model.latecomers, model.postponed = [], [], []

    # Loading.

    def _begin_load(self, request: LoadRequested, now: float) -> None:
        present = self._models.get(request.name)
        if self._is_stopping:
            request.answer(_stopping())
        elif present is None:
            self._add(request, now)
        elif present.is_going:
            present.postponed.append(request)
        else:
            sentence = f"model '{request.name}' {present.state.value} already"
            request.answer(ServingError(Code.ALREADY_EXISTS, sentence))

    def _add(self, request: LoadRequested, now: float) -> None:
        self._count += 1
        number, deadline = self._count, now + self._settings.wait_time_seconds
        model = Model(number, request.name, request.url, request.answer, now, deadline)
        self._models[request.name] = model

        def prepare() -> None:
            try:
                result: PreparedModel | ServingError = self._preparer.prepare(
                    number, request.name, request.url
                )
            except ServingError as problem:
                result = problem
            except Exception as problem:
                log.exception("model %s cannot be prepared", request.name)
                result = ServingError(Code.INTERNAL, f"it cannot be prepared: {type(problem).__name__}")
            self._report(ModelPrepared(number, result))

        threading.Thread(target=prepare, name=f"prepare-{number}", daemon=True).start()

    def _note_prepared(self, model: Model, result: PreparedModel | ServingError, now: float) -> None:
        model.is_preparing = False
        if isinstance(result, ServingError):
            self._fail(model, result, now)
            return
        model.prepared = result
        if model.state is not ModelState.PREPARING:
            return
        model.state = ModelState.STARTING
        model.group = ProcessGroup(
            result.specs,
            self._surroundings,
            probes=result.probes,
            workers=result.workers,
            worker_count=self._settings.gunicorn_workers,
            outer=self._outer,
        )

    def _advance_load(self, model: Model, now: float) -> None:
        """End the load where it has succeeded, lasted too long, or failed.

        Its own limit comes before those of its processes, which may be due at the same time.
        """
        group, watermark = model.group, self._settings.memory_watermark_percent
        if group is not None and group.was_ready:
            refusal = refuse_full_memory(model.name, self._memory(), watermark)
            if refusal is None:
                self._note_loaded(model, now)
            else:
                self._fail(model, refusal, now)
        elif model.deadline is not None and now >= model.deadline:
            seconds = self._settings.wait_time_seconds
            self._fail(model, explain_timeout(model.name, seconds, self._memory(), watermark), now)
        elif group is not None and group.hopeless is not None:
            self._fail(model, self._explain_end(model, group.hopeless), now)

    def _note_loaded(self, model: Model, now: float) -> None:
        try:
            self._publication.publish(model.name, model.number)
        except OSError as problem:
            self._fail(model, explain_refusal(model.name, problem), now)
            return
        model.state, model.deadline = ModelState.LOADED, None
        self._direct(model)
        self.ends["loaded"] += 1
        log.info("model loaded name=%s seconds=%.2f", model.name, now - model.requested)
        self._answer_loader(model, None)

    def _answer_loader(self, model: Model, refusal: ServingError | None) -> None:
        if model.loader is not None:
            model.loader(refusal)
        model.loader = None

    # Serving.

    def _watch(self, model: Model, now: float) -> None:
        """Keep nginx from a model of which a process is away; drop the model when that is for good."""
        assert model.group is not None
        lost = model.group.hopeless
        if lost is None:
            self._direct(model)
            return
        self.ends["dropped"] += 1
        log.error("model dropped name=%s: %s %s", model.name, lost.name, lost.reason)
        self._end(model, now, at_once=True)

    def _direct(self, model: Model) -> None:
        assert model.group is not None
        assert model.prepared is not None
        names = model.prepared.at_sockets
        is_open = bool(names) and model.group.are_ready(names)
        if is_open == model.is_direct:
            return
        if not is_open:
            self._publication.close_direct(model.name)
            model.is_direct = False
            return
        try:
            self._publication.open_direct(model.name, model.number)
        except OSError as problem:
            # The shared handler workers answer for it until there is room for the link.
            log.warning("no direct way to model name=%s: %s", model.name, problem)
        else:
            model.is_direct = True

    # Ending.

    def _begin_unload(self, name: str, answer: Answer, now: float) -> None:
        model = self._models.get(name)
        if self._is_stopping:
            answer(_stopping())
        elif model is None:
            answer(_not_loaded(name))
        elif model.is_going:
            model.latecomers.append(answer)
        else:
            model.unloaders.append(answer)
            if model.is_starting:
                sentence = f"model '{name}' was unloaded while it was being loaded"
                model.failure = ServingError(Code.ABORTED, sentence)
            self.ends["failed" if model.is_starting else "unloaded"] += 1
            self._end(model, now, at_once=model.is_starting)

    def _fail(self, model: Model, failure: ServingError, now: float) -> None:
        """End a load that cannot succeed; one that is still being prepared is answered already now."""
        if model.is_going:
            return
        self.ends["failed"] += 1
        log.error("model not loaded name=%s: %s", model.name, failure.message)
        model.failure = failure
        if model.is_preparing:
            self._answer_loader(model, failure)
        self._end(model, now, at_once=True)

    def _end(self, model: Model, now: float, *, at_once: bool) -> None:
        """Begin to end a model: no request reaches it any more, those in flight are finished."""
        if model.state is ModelState.LOADED:
            self._publication.withdraw(model.name)
        model.state, model.deadline = ModelState.ENDING, now + UNLOAD_SECONDS
        if at_once and model.group is not None:
            model.group.kill()

    def _advance_end(self, model: Model, now: float) -> None:
        if model.group is not None and model.deadline is not None and not self._is_stopping:
            stop_highest_stage(model.group.processes.values(), now, model.deadline)
        if model.is_over:
            model.state, model.deadline = ModelState.REMOVING, None
            threading.Thread(
                target=self._remove, args=(model,), name=f"remove-{model.number}", daemon=True
            ).start()

    def _remove(self, model: Model) -> None:
        """Remove what is left of a model, in a thread: folders may be large."""
        addresses = model.prepared.addresses if model.prepared is not None else ()
        processes = model.group.processes.values() if model.group is not None else ()
        pids = [process.last_pid for process in processes if process.last_pid is not None]
        self._surroundings.spawner.wait_until_gone(pids, GONE_SECONDS, GONE_POLL_SECONDS)
        self._preparer.give_back(model.number, addresses)
        self._report(ModelRemoved(model.number))

    def _forget(self, model: Model, now: float) -> None:
        del self._models[model.name]
        for name in model.group.processes if model.group is not None else ():
            self._outputs.forget(name)
        self._answer_loader(model, model.failure)
        if model.unloaders:
            log.info("model unloaded name=%s", model.name)
        for answer in model.unloaders:
            answer(None)
        for answer in model.latecomers:
            answer(_not_loaded(model.name))
        for request in model.postponed:
            self._begin_load(request, now)

    def _explain_end(self, model: Model, process: Process) -> ServingError:
        assert model.group is not None
        last_lines = self._outputs.last_lines(process.name, LAST_LINES_SECONDS)
        return explain_end(model.name, process, model.group, last_lines)

    def _by_number(self, number: int) -> Model:
        return next(model for model in self._models.values() if model.number == number)


def _not_loaded(name: str) -> ServingError:
    return ServingError(Code.NOT_FOUND, f"model '{name}' is not loaded")


def _stopping() -> ServingError:
    return ServingError(Code.UNAVAILABLE, "the container is being stopped")
