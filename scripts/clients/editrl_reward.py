"""Rewards and runs of editrl for trainers in Python. One file, standard library only, Python 3.9 or newer.

    reward = Reward("http://127.0.0.1:4876")       # a server started with `editrl serve rewards`
    trainer = GRPOTrainer(..., reward_funcs=reward.trl(expected="solution"))
    run = editrl_run()                             # metrics, checkpoints and stop requests under `editrl run`

An item that gets no score is None, never a number. Trainers differ in their support for None:

| adapter      | unscored items | the trainer's source that the signature comes from                                 |
| ------------ | -------------- | ---------------------------------------------------------------------------------- |
| `trl`        | None           | TRL 1.16.0, trl/trainer/grpo_trainer.py, `_calculate_rewards`                      |
| `verl`       | raises         | verl 0.9.1, verl/experimental/reward_loop/reward_manager/naive.py, `run_single`    |
| `verl_batch` | raises         | verl 0.9.1, verl/workers/reward_manager/batch.py, `verify`                         |
| `flow_grpo`  | raises         | flow_grpo 54809b5f, flow_grpo/rewards.py, `multi_score`                            |
| `easyr1`     | raises         | EasyR1 46c6c210, verl/workers/reward/function.py, `BatchFunctionRewardManager`     |
| `swift`      | raises         | ms-swift 4.6.0, swift/rl_core/grpo_algorithm.py, `compute_rewards_per_func`        |
| `verl_omni`  | raises         | verl-omni a1139baf, verl_omni/reward_loop/reward_manager/visual.py, `run_single`   |
| `unirl`      | failures       | UniRL 1a7b501, unirl/reward/service.py, `score_and_attach`, which then raises      |

The others compute the mean of each group from every reward. A NaN would reach the weights, and ms-swift counts None as 0.
Their adapters raise `Unscored` instead, so that the training ends and resumes from its last checkpoint.
Keyword arguments of an adapter name the trainer's column for a field of the reward server, such as `source="image"`.
"""

from __future__ import annotations

import base64, contextlib, http.client, io, json, os, random, signal, socket, struct, threading, time, zlib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence, Tuple
from urllib.parse import urlsplit

IMAGES = ("image", "source", "truth", "mask")
TEXTS = ("prompt", "instruction", "answer", "expected")
FIELDS = (*IMAGES, *TEXTS, "finished")
# Another try may help, as in editrl's own runs. All other reasons are final.
TRANSIENT = ("timeout", "connection", "rate_limited", "server_error", "aborted")
ATTEMPTS = 5
BACKOFF_BASE_S, BACKOFF_CAP_S, RETRY_AFTER_CAP_S = 0.25, 8.0, 30.0
Item = Mapping[str, Any]


class Score(NamedTuple):
    """The result of one item. `value` is from 0 to 1, and None if `kind` is "unscored"."""

    kind: str
    value: Optional[float]
    parts: dict[str, float]
    reason: Optional[str]
    detail: Optional[str]


# What an item without an answer gets, whether that counts as an attempt, and seconds to wait. A server that is away or busy is awaited.
Lost = Tuple[Score, bool, float]


class Unscored(RuntimeError):
    """Items have no score, and the trainer has no place for that."""


class RewardServerError(RuntimeError):
    """The address, the token or the settings of the reward server are wrong. Trying again does not help."""


class Reward:
    """A reward server as a function of items. Several threads may share it.

    `deadline_s` limits one call, and `timeout_s` the time without a reply. A server that is away or busy is awaited until the deadline.
    Other failures get 5 attempts. `token` is EDITRL_REWARD_TOKEN by default. Raises ValueError for a malformed address.
    """

    def __init__(self, url: str, token: str = "", deadline_s: float = 600.0, timeout_s: float = 300.0):
        parts = urlsplit(url.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ValueError(f"{url!r} is not the address of a reward server. Write it like http://127.0.0.1:4876.")
        self.url = url.strip().rstrip("/")
        self._parts, self._path = parts, parts.path.rstrip("/") + "/v1/score"
        token = (token or os.environ.get("EDITRL_REWARD_TOKEN", "")).strip()
        self._headers = {"content-type": "application/x-ndjson", "transfer-encoding": "chunked", **({"authorization": f"Bearer {token}"} if token else {})}
        self._deadline_s, self._timeout_s = deadline_s, timeout_s
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._settings: Optional[str] = None

    def __call__(self, items: Sequence[Item]) -> list[Score]:
        """Scores items with the fields of `POST /v1/score`, in their order. One stream carries all of them, so memory stays small.

        Images are base64 or `data:` texts, bytes of a file, paths (`pathlib.Path`), PIL images, `{"bytes", "path"}` of datasets,
        arrays [height, width, 3] of uint8, or tensors [3, height, width] of uint8 or from 0 to 1. Raises ValueError for other
        items, and RewardServerError for a wrong address or token, and if the settings of the server change.
        """
        for index, item in enumerate(items):
            _check(item, f"items[{index}]")
        end = time.monotonic() + self._deadline_s
        scores = [Score("unscored", None, {}, "timeout", "the deadline was over before a request")] * len(items)
        attempts, todo, failures = [0] * len(items), list(range(len(items))), 0
        while todo and time.monotonic() < end:
            self._count("requests")
            answers, lost = self._stream(items, todo, end)
            for index in todo:
                scores[index] = answers.get(index, lost[0])
                attempts[index] += index in answers or lost[1]
            todo = [index for index in todo if scores[index].reason in TRANSIENT and attempts[index] < ATTEMPTS]
            pause = lost[2] or random.random() * min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2**failures)
            failures += 1
            time.sleep(max(0.0, min(pause if todo else 0.0, end - time.monotonic())))
        for score in scores:
            self._count("items", score.kind, *([f"unscored/{score.reason}"] if score.kind == "unscored" else []))
        return scores

    def stats(self) -> dict[str, float]:
        """Counts since the start, as metrics: requests, items, scored, zero_by_rule, unscored, and unscored by reason."""
        with self._lock:
            names = {"requests": 0, "items": 0, "scored": 0, "zero_by_rule": 0, "unscored": 0, **self._counts}
            return {f"reward_server/{name}": float(count) for name, count in names.items()}

    def _count(self, *names: str) -> None:
        with self._lock:
            self._counts.update(names)

    def _stream(self, items: Sequence[Item], todo: Sequence[int], end: float) -> Tuple[dict[int, Score], Lost]:
        """One request. Returns the answers by index, and what becomes of the other items."""
        answers: dict[int, Score] = {}
        broken: list[Exception] = []
        lost = _lost("server_error", "the reply ended early")
        left = max(0.001, end - time.monotonic())
        connect = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = connect(self._parts.hostname or "", self._parts.port, timeout=min(left, self._timeout_s))
        timer = threading.Timer(left, _disconnect, [connection])  # A socket's timeout bounds each read only.
        sender = threading.Thread(target=_send, args=(connection, items, todo, broken), daemon=True)
        try:
            connection.connect()
            timer.start()
            connection.putrequest("POST", self._path)
            for header in self._headers.items():
                connection.putheader(*header)
            connection.endheaders()
            sender.start()
            response = connection.getresponse()
            if response.status != 200:
                return answers, self._refused(response.status, repr(response.read()[:300]), response.headers.get("retry-after"))
            self._check_settings(response.headers.get("x-editrl-reward"))
            for line in response:
                try:
                    reply = json.loads(line)
                    if "error" not in reply:
                        answers[int(reply["key"])] = _parse(reply["outcome"])
                        continue
                    lost = self._refused(int(reply["error"]["code"]), str(reply["error"]["message"]), None)
                    if lost[0].reason == "bad_request":  # The line at fault is the first without an answer.
                        answers[next((index for index in todo if index not in answers), -1)] = lost[0]
                        lost = _lost("aborted", "another item ended the stream", False)
                    return answers, lost
                except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
                    lost = _lost("server_error", f"malformed reply ({error!r}): {line[:300]!r}")
        except (OSError, http.client.HTTPException) as error:
            late = isinstance(error, socket.timeout)
            lost = _lost("timeout", f"no reply for {self._timeout_s} s") if late else _lost("connection", f"{self.url}: {error!r}", False)
        finally:
            timer.cancel()
            _disconnect(connection)
            connection.close()
            if sender.ident is not None:
                sender.join()
        if broken:
            raise broken[0]
        return answers, lost if time.monotonic() < end else _lost("timeout", f"{self.url} did not answer before the deadline")

    def _refused(self, status: int, text: str, after: Optional[str]) -> Lost:
        if status < 500 and status not in (400, 408, 413, 415, 422, 429):
            raise RewardServerError(f"{self.url}: HTTP {status} {text}. Check the address and EDITRL_REWARD_TOKEN.")
        reason = {408: "timeout", 429: "rate_limited"}.get(status, "server_error" if status >= 500 else "bad_request")
        busy = status in (429, 503)
        wait_s = min(RETRY_AFTER_CAP_S, float(after)) if after and after.isdigit() else float(busy)
        return _lost(reason, f"HTTP {status}: {text}", not busy, wait_s)

    def _check_settings(self, settings: Optional[str]) -> None:
        with self._lock:
            self._settings = self._settings or settings
            if settings is None or settings != self._settings:
                found = "is no reward server" if settings is None else "has changed its settings. Start it again with the earlier ones"
                raise RewardServerError(f"{self.url} {found}.")

    def _values(self, items: Sequence[Item]) -> list[float]:
        """The value of every item. Raises Unscored if one has none."""
        scores = self(items)
        if lost := [score for score in scores if score.value is None]:
            raise Unscored(f"{len(lost)} of {len(scores)} items have no score. The first: {lost[0].reason}: {lost[0].detail}")
        return [score.value for score in scores if score.value is not None]

    def trl(self, **columns: str) -> Callable[..., list[Optional[float]]]:
        """One of TRL's `reward_funcs`. TRL 1.16 leaves None out of groups, some older ones count it as 0. Logs the unscored share."""
        def editrl(prompts: list[Any], completions: list[Any], **kwargs: Any) -> list[Optional[float]]:
            values = [score.value for score in self(_conversations(prompts, completions, columns, kwargs))]
            if "log_metric" in kwargs and values:
                kwargs["log_metric"]("editrl/unscored", values.count(None) / len(values))
            return values

        return editrl

    def verl_batch(self, **columns: str) -> Callable[..., list[float]]:
        """The `compute_score` of verl's reward manager `batch`. Columns are keys of `extra_info`, such as `prompt="question"`."""
        def compute_score(data_sources: Any, solution_strs: Any, ground_truths: Any, extra_infos: Any, **_: Any) -> list[float]:
            items = []
            for answer, truth, extra in zip(solution_strs, ground_truths, extra_infos):
                expected = {} if truth is None else {"expected": str(truth)}
                items.append({"prompt": "", "answer": answer, **expected, **_fields(columns, extra or {}, "extra_info")})
            return self._values(items)

        return compute_score

    def verl(self, **columns: str) -> Callable[..., float]:
        """verl's `compute_score`. Columns are keys of `extra_info`, such as `prompt="question"`."""
        one = self.verl_batch(**columns)
        return lambda data_source, solution_str, ground_truth, extra_info=None, **_: one(
            [data_source], [solution_str], [ground_truth], [extra_info]
        )[0]

    def flow_grpo(self, **columns: str) -> Callable[..., Tuple[list[float], dict[str, Any]]]:
        """One of flow_grpo's score functions. Columns are keys of each image's metadata."""
        def score(images: Any, prompts: Sequence[str], metadata: Any) -> Tuple[list[float], dict[str, Any]]:
            rows = [_fields(columns, metadata[index] if columns else {}, "the metadata") for index in range(len(prompts))]
            items = [{"prompt": prompt, "image": image, **row} for prompt, image, row in zip(prompts, images, rows)]
            return self._values(items), {}

        return score

    def easyr1(self) -> Callable[..., list[dict[str, float]]]:
        """EasyR1's reward function of type `batch`. EasyR1 passes no prompt, so the reward must not need one."""
        def compute_score(reward_inputs: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
            items = [{"prompt": "", "answer": one["response"], "expected": str(one["ground_truth"])} for one in reward_inputs]
            return [{"overall": value} for value in self._values(items)]

        return compute_score

    def swift(self, **columns: str) -> Callable[..., Callable[..., list[float]]]:
        """An entry of ms-swift's table: `orms["editrl"] = reward.swift(expected="solution")`."""
        def score(completions: Sequence[str], messages: Sequence[Any], **kwargs: Any) -> list[float]:
            return self._values(_conversations([one[:-1] for one in messages], completions, columns, kwargs))

        return lambda args=None: score

    def verl_omni(self, **columns: str) -> Callable[..., float]:
        """verl-omni's `compute_score`. Columns are keys of `extra_info`. `ground_truth` is the prompt unless a column is."""
        def compute_score(data_source: str, solution_image: Any, ground_truth: Any, extra_info: Any = None, **_: Any) -> float:
            row = {"prompt": str(ground_truth), **_fields(columns, extra_info or {}, "extra_info")}
            return self._values([{"image": solution_image, **row}])[0]

        return compute_score

    def unirl(self, kind: str = "image", **columns: str) -> "UniRL":
        """The backend of UniRL's `RewardService`. `kind` is "image" or "text". Columns are keys of each sample's metadata."""
        return UniRL(self, kind, columns)


class UniRL:
    """See `Reward.unirl`. The conditioning image of a request is the source. UniRL ends the training if a sample has failed."""

    def __init__(self, reward: Reward, kind: str, columns: Mapping[str, str]):
        self.preferred_input_kind, self._reward, self._columns = kind, reward, columns
        self.get_model_name, self.is_available = lambda: "editrl", lambda: True
        self.offload = self.onload = self.dispose = lambda: None

    def compute_rewards(self, request: Any) -> SimpleNamespace:
        answers = [{"image": one} for one in request.images or []] if self.preferred_input_kind == "image" else [{"answer": one} for one in request.texts]
        sources = request.primitives.get("image")
        items = []
        for index, answer in enumerate(answers):
            source = {} if sources is None else {"source": sources.pixels[index]}
            row = _fields(self._columns, (request.metadata or [])[index] or {}, "the metadata") if self._columns else {}
            items.append({"prompt": request.prompts[index], **answer, **source, **row})
        scores = self._reward(items)
        errors = [None if one.value is not None else f"{one.reason}: {one.detail}" for one in scores]
        rewards = [float("nan") if one.value is None else one.value for one in scores]
        successes = [error is None for error in errors]
        return SimpleNamespace(rewards=rewards, component_rewards={}, successes=successes, errors=errors, compute_time=0.0)


def _disconnect(connection: http.client.HTTPConnection) -> None:
    with contextlib.suppress(OSError, AttributeError):  # The exchange may end by itself at this moment.
        connection.sock.shutdown(socket.SHUT_RDWR)


def _send(connection: http.client.HTTPConnection, items: Sequence[Item], todo: Sequence[int], broken: list[Exception]) -> None:
    """Sends items as the server reads them. An item that cannot be encoded goes to `broken`, and ends the exchange."""
    for index in todo:
        try:
            fields = {name: _image(value) if name in IMAGES else value for name, value in items[index].items()}
            line = json.dumps({**fields, "key": str(index)}).encode() + b"\n"
        except Exception as error:
            broken.append(error)
            return _disconnect(connection)
        with contextlib.suppress(OSError):  # The reader learns why.
            connection.send(b"%x\r\n%s\r\n%s" % (len(line), line, b"0\r\n\r\n" if index == todo[-1] else b""))
            continue
        return None


def _lost(reason: str, detail: str, counts: bool = True, wait_s: float = 0.0) -> Lost:
    return Score("unscored", None, {}, reason, detail), counts, wait_s


def _parse(outcome: Mapping[str, Any]) -> Score:
    """The score of a reply. Raises ValueError and its like for a reply that breaks the protocol."""
    kind, value = outcome["kind"], outcome["normalised"]
    parts = {str(name): float(part) for name, part in outcome["parts"].items()}
    if kind == "unscored" and value is None and isinstance(outcome["reason"], str):
        return Score(kind, None, parts, outcome["reason"], str(outcome["detail"]))
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1
    if not is_number or kind not in ("scored", "zero_by_rule") or (kind == "zero_by_rule" and value != 0):
        raise ValueError(f"kind {kind!r} with value {value!r}")
    return Score(kind, float(value), parts, outcome["reason"], None)


def _check(item: Item, place: str) -> None:
    for name in item:
        if name not in FIELDS or (name in TEXTS and not isinstance(item[name], str)):
            raise ValueError(f"{place} has {name!r} of {type(item[name]).__name__}. Allowed: {FIELDS}, with texts in {TEXTS}.")
    if ("prompt" in item) == ("instruction" in item):
        raise ValueError(f"{place} needs either a prompt or an instruction.")


def _image(value: Any) -> Optional[str]:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, dict):
        return _image(Path(value["path"]) if value.get("bytes") is None else value["bytes"])
    if isinstance(value, os.PathLike):
        return _image(Path(value).read_bytes())
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if hasattr(value, "save"):
        file = io.BytesIO()
        value.save(file, format="PNG")
        return _image(file.getvalue())
    if hasattr(value, "detach") and value.dim() == 3 and bool(value.isfinite().all()):
        value = value.detach()
        value = (value.float().clamp(0, 1) * 255).round().byte() if value.is_floating_point() else value
        value = value.permute(1, 2, 0).contiguous().cpu().numpy()
    if len(getattr(value, "shape", ())) == 3 and value.shape[2] == 3 and str(value.dtype) == "uint8":
        return _image(_png(value.tobytes(), *value.shape[:2]))
    found = f"{type(value).__name__} {tuple(getattr(value, 'shape', ()))} {getattr(value, 'dtype', '')}"
    raise ValueError(f"{found} is not an image. Allowed: the forms in the documentation of Reward.__call__.")


def _png(rgb: bytes, height: int, width: int) -> bytes:
    """A PNG file (ISO/IEC 15948) of RGB bytes, row by row."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = b"".join(b"\0" + rgb[start : start + 3 * width] for start in range(0, len(rgb), 3 * width))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")


def _fields(columns: Mapping[str, str], row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The fields of one row. `columns`: the row's column for each field."""
    for column in columns.values():
        if column not in row:
            raise ValueError(f"{where} has no {column!r}. Found: {', '.join(map(str, row)) or 'nothing'}.")
    return {name: row[column] for name, column in columns.items()}


def _text(value: Any) -> str:
    """A text, or the text of the last message of a conversation."""
    content = (value if isinstance(value, str) else value[-1]["content"]) or ""  # None: it only calls a tool.
    return content if isinstance(content, str) else "".join(part.get("text") or "" for part in content)


def _conversations(asked: Any, answers: Any, columns: Mapping[str, str], table: Mapping[str, Any]) -> list[Item]:
    """Items of texts or conversations. `table`: the dataset's columns as lists."""
    lists = _fields(columns, table, "the dataset")
    rows = [{name: values[index] for name, values in lists.items()} for index in range(len(asked))]
    return [{"prompt": _text(one), "answer": _text(answer), **row} for one, answer, row in zip(asked, answers, rows)]


class Run:
    """One start of a trainer, from the variables that `launch.command` sets. Without editrl, its files are in `folder`.

    Fields: `config` (all settings, empty without editrl), `parameters` (the trainer's own), `checkpoints` (a folder), `metrics`
    (a file), `resumed` (an earlier start exists) and `rank`. The main thread must create it, because it handles SIGTERM.
    """

    STOPPED = 128 + signal.SIGTERM  # The exit code after a stop request, as shells report SIGTERM. 0 would finish the run.

    def __init__(self, folder: str = "run"):
        env = os.environ
        self.checkpoints = env.get("EDITRL_CHECKPOINTS", os.path.join(folder, "checkpoints"))
        self.metrics = env.get("EDITRL_METRICS", os.path.join(folder, "metrics.jsonl"))
        os.makedirs(self.checkpoints, exist_ok=True)
        self.resumed: bool = env["RESUME"] == "1" if "EDITRL_METRICS" in env else bool(os.listdir(self.checkpoints))
        self.rank = int(env.get("RANK", "0"))
        settings = env.get("EDITRL_CONFIG")
        self.config: dict[str, Any] = json.loads(Path(settings).read_bytes()) if settings else {}
        self.parameters: dict[str, Any] = self.config.get("parameters", {})
        self._stop = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: self._stop.set())

    def log(self, iteration: int, metrics: Mapping[str, Any]) -> None:
        """Appends the metrics of one iteration (from 0), on rank 0 only. Values are numbers, or tensors with one number."""
        if self.rank == 0:
            line = {"iteration": int(iteration), **{name: float(value) for name, value in metrics.items()}}
            with open(self.metrics, "a") as file:
                file.write(json.dumps(line) + "\n")

    def should_stop(self) -> bool:
        """Whether SIGTERM arrived: from `editrl stop`, Ctrl+C or Slurm. Save a checkpoint, then `sys.exit(run.STOPPED)`."""
        return self._stop.is_set()

editrl_run = Run
