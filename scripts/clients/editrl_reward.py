"""Rewards and runs of editrl for trainers in Python. One file, standard library only, Python 3.9 or newer.

    reward = Reward("http://127.0.0.1:4876")       # a server started with `editrl serve rewards`
    trainer = GRPOTrainer(..., reward_funcs=reward.trl(expected="solution"))
    run = editrl_run()                             # metrics, checkpoints and stop requests under `editrl run`

An item that gets no score is None, never a number. TRL leaves it out of its group. UniRL gets a failure, and ends.
The other trainers compute the mean of each group from every reward. A NaN would reach the weights, and ms-swift counts None as 0.
Their adapters raise `Unscored` instead, so that the training ends and resumes from its last checkpoint.
Keyword arguments of an adapter name the trainer's column for a field of the reward server, such as `source="image"`.
"""

from __future__ import annotations

import base64, collections, contextlib, functools, http.client, io, itertools, json, os, random, signal, socket, struct, threading, time, types
import urllib.parse, zlib
from pathlib import Path
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Optional, Sequence, Tuple

IMAGES = ("image", "source", "truth", "mask")
TEXTS = ("prompt", "instruction", "answer", "expected")
FIELDS = (*IMAGES, *TEXTS, "finished")
# Another try may help, as in editrl's own runs. All other reasons are final. Tries that end with an AWAITED reason do not count.
TRANSIENT = ("timeout", "connection", "rate_limited", "server_error", "aborted")
AWAITED = ("connection", "rate_limited", "aborted")
ATTEMPTS, BACKOFF_BASE_S, BACKOFF_CAP_S, RETRY_AFTER_CAP_S = 5, 0.25, 8.0, 30.0
Item = Mapping[str, Any]


class Score(NamedTuple):
    """The result of one item. `value` is from 0 to 1, and None if `kind` is "unscored"."""

    kind: str
    value: Optional[float]
    parts: dict[str, float]
    reason: Optional[str]
    detail: Optional[str]


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
        parts = urllib.parse.urlsplit(url.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ValueError(f"{url!r} is not the address of a reward server. Write it like http://127.0.0.1:4876.")
        self.url = url.strip().rstrip("/")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connect = functools.partial(kind, parts.hostname, parts.port)
        self._path = parts.path.rstrip("/") + "/v1/score"
        token = (token or os.environ.get("EDITRL_REWARD_TOKEN", "")).strip()
        self._headers = {"content-type": "application/x-ndjson", "transfer-encoding": "chunked", **({"authorization": f"Bearer {token}"} if token else {})}
        self._deadline_s, self._timeout_s = deadline_s, timeout_s
        self._lock = threading.Lock()
        self._counts = collections.Counter(dict.fromkeys(("requests", "items", "scored", "zero_by_rule", "unscored"), 0))
        self._settings: Optional[str] = None

    def __call__(self, items: Sequence[Item]) -> list[Score]:
        """Scores items with the fields of `POST /v1/score`, in their order. One stream carries all of them, so memory stays small.

        Images are base64 or `data:` texts, bytes of a file, paths (`pathlib.Path`), PIL images, `{"bytes", "path"}` of datasets,
        arrays [height, width, 3] of uint8, or tensors [3, height, width] of uint8 or from 0 to 1. Raises ValueError for other items.
        """
        for index, item in enumerate(items):
            _check(item, f"items[{index}]")
        end = time.monotonic() + self._deadline_s
        scores = [_lost("timeout", "the deadline was over before a request")] * len(items)
        attempts, todo, requests = [0] * len(items), list(range(len(items))), 0
        while todo and time.monotonic() < end:
            answers, lost, wait_s = self._stream(items, todo, end)
            for index in todo:
                scores[index] = answers.get(index, lost)
                attempts[index] += index in answers or lost.reason not in AWAITED
            todo = [index for index in todo if scores[index].reason in TRANSIENT and attempts[index] < ATTEMPTS]
            pause = wait_s or random.random() * min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2**requests)
            requests += 1
            time.sleep(max(0.0, min(pause if todo else 0.0, end - time.monotonic())))
        with self._lock:
            self._counts.update({"requests": requests, "items": len(items)})
            self._counts.update(score.kind for score in scores)
            self._counts.update(f"unscored/{score.reason}" for score in scores if score.value is None)
        return scores

    def stats(self) -> dict[str, float]:
        """Counts since the start, as metrics: requests, items, scored, zero_by_rule, unscored, and unscored by reason."""
        with self._lock:
            return {f"reward_server/{name}": float(count) for name, count in self._counts.items()}

    def _stream(self, items: Sequence[Item], todo: Sequence[int], end: float) -> Tuple[dict[int, Score], Score, float]:
        """One request. Returns the answers by index, the score of the other items, and seconds to wait before the next request."""
        answers: dict[int, Score] = {}
        broken: list[Exception] = []
        left, wait_s = max(0.001, end - time.monotonic()), 0.0
        try:
            with contextlib.closing(self._connect(timeout=min(left, self._timeout_s))) as connection:
                connection.request("POST", self._path, headers=self._headers)
                sock = connection.sock  # The connection drops it when the server announces that it will close.
                timer = threading.Timer(left, _disconnect, [sock])  # A socket's timeout bounds each read only.
                sender = threading.Thread(target=_send, args=(sock, items, todo, broken), daemon=True)
                timer.start()
                sender.start()
                try:
                    lost, wait_s = self._read(connection.getresponse(), todo, answers)
                finally:
                    timer.cancel()
                    _disconnect(sock)
                    sender.join()
        except (OSError, http.client.HTTPException) as error:
            lost = _lost("timeout" if isinstance(error, socket.timeout) else "connection", f"{self.url}: {error!r}")
        if broken:
            raise broken[0]
        return answers, (lost if time.monotonic() < end else _lost("timeout", f"{self.url} did not answer before the deadline")), wait_s

    def _read(self, response: http.client.HTTPResponse, todo: Sequence[int], answers: dict[int, Score]) -> Tuple[Score, float]:
        if response.status != 200:
            return self._refused(response.status, repr(response.read()[:300]), response.headers.get("retry-after"))
        settings = response.headers.get("x-editrl-reward")
        with self._lock:
            self._settings = self._settings or settings
        if settings is None or settings != self._settings:
            found = "is no reward server" if settings is None else "has changed its settings. Start it again with the earlier ones"
            raise RewardServerError(f"{self.url} {found}.")
        lost = _lost("server_error", "the reply ended early")
        for line in response:
            try:
                reply = json.loads(line)
                if "error" not in reply:
                    answers[int(reply["key"])] = _parse(reply["outcome"])
                    continue
                lost, wait_s = self._refused(int(reply["error"]["code"]), str(reply["error"]["message"]), None)
                if lost.reason == "bad_request":  # The line at fault is the first without an answer.
                    answers[next((index for index in todo if index not in answers), -1)] = lost
                    lost = _lost("aborted", "another item ended the stream")
                return lost, wait_s
            except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
                lost = _lost("server_error", f"malformed reply ({error!r}): {line[:300]!r}")
        return lost, 0.0

    def _refused(self, status: int, text: str, after: Optional[str]) -> Tuple[Score, float]:
        if status < 500 and status not in (400, 408, 413, 415, 422, 429):
            raise RewardServerError(f"{self.url}: HTTP {status} {text}. Check the address and EDITRL_REWARD_TOKEN.")
        reason = {408: "timeout", 429: "rate_limited", 503: "connection"}.get(status, "server_error" if status >= 500 else "bad_request")
        wait_s = min(RETRY_AFTER_CAP_S, float(after)) if after and after.isdigit() else float(status in (429, 503))
        return _lost(reason, f"HTTP {status}: {text}"), wait_s

    def _values(self, items: Sequence[Item]) -> list[float]:
        """The value of every item. Raises Unscored if one has none."""
        scores = self(items)
        if lost := [score for score in scores if score.value is None]:
            raise Unscored(f"{len(lost)} of {len(scores)} items have no score. The first: {lost[0].reason}: {lost[0].detail}")
        return [score.value for score in scores if score.value is not None]

    def trl(self, **columns: str) -> Callable[..., list[Optional[float]]]:
        """One of the `reward_funcs` of TRL 1.16 (grpo_trainer.py, `_calculate_rewards`). Some older ones count None as 0. Logs the unscored share."""
        def editrl(prompts: list[Any], completions: list[Any], **kwargs: Any) -> list[Optional[float]]:
            values = [score.value for score in self(_conversations(prompts, completions, columns, kwargs))]
            if "log_metric" in kwargs and values:
                kwargs["log_metric"]("editrl/unscored", values.count(None) / len(values))
            return values
        return editrl

    def verl_batch(self, **columns: str) -> Callable[..., list[float]]:
        """The `compute_score` of verl 0.9's reward manager `batch` (batch.py, `verify`). Columns are keys of `extra_info`."""
        def compute_score(data_sources: Any, solution_strs: Any, ground_truths: Any, extra_infos: Any, **_: Any) -> list[float]:
            items = _items(columns, extra_infos, "extra_info", prompt=itertools.repeat(""), answer=solution_strs)
            return self._values([{**({} if truth is None else {"expected": str(truth)}), **item} for truth, item in zip(ground_truths, items)])
        return compute_score

    def verl(self, **columns: str) -> Callable[..., float]:
        """The `compute_score` of verl 0.9 (reward_loop, naive.py, `run_single`). Columns are keys of `extra_info`, such as `prompt="question"`."""
        one = self.verl_batch(**columns)
        return lambda data_source, solution_str, ground_truth, extra_info=None, **_: one([data_source], [solution_str], [ground_truth], [extra_info])[0]

    def verl_omni(self, **columns: str) -> Callable[..., float]:
        """verl-omni's `compute_score` (a1139baf, visual.py, `run_single`). `ground_truth` is the prompt unless a column is."""
        return lambda data_source, solution_image, ground_truth, extra_info=None, **_: self._values(
            _items(columns, [extra_info], "extra_info", prompt=[str(ground_truth)], image=[solution_image])
        )[0]

    def flow_grpo(self, **columns: str) -> Callable[..., Tuple[list[float], dict[str, Any]]]:
        """A score function of flow_grpo (54809b5f, rewards.py, `multi_score`). Columns are keys of each image's metadata."""
        return lambda images, prompts, metadata: (self._values(_items(columns, metadata, "the metadata", prompt=prompts, image=images)), {})

    def easyr1(self) -> Callable[..., list[dict[str, float]]]:
        """The function of EasyR1's `BatchFunctionRewardManager` (46c6c210). It gets no prompt, so the reward must not need one."""
        def compute_score(reward_inputs: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
            items = [{"prompt": "", "answer": one["response"], "expected": str(one["ground_truth"])} for one in reward_inputs]
            return [{"overall": value} for value in self._values(items)]
        return compute_score

    def swift(self, **columns: str) -> Callable[..., Callable[..., list[float]]]:
        """An entry of the table of ms-swift 4.6 (grpo_algorithm.py): `orms["editrl"] = reward.swift(expected="solution")`."""
        def score(completions: Sequence[str], messages: Sequence[Any], **kwargs: Any) -> list[float]:
            return self._values(_conversations([one[:-1] for one in messages], completions, columns, kwargs))
        return lambda args=None: score

    def unirl(self, kind: str = "image", **columns: str) -> types.SimpleNamespace:
        """The backend of UniRL's `RewardService` (1a7b501) for a `kind` "image" or "text". A request's conditioning image is the source."""
        def compute_rewards(request: Any) -> types.SimpleNamespace:
            fields = {"image": request.images or []} if kind == "image" else {"answer": request.texts}
            if request.primitives.get("image") is not None:
                fields["source"] = request.primitives["image"].pixels
            scores = self(_items(columns, request.metadata or itertools.repeat(None), "the metadata", prompt=request.prompts, **fields))
            rewards = [float("nan") if one.value is None else one.value for one in scores]
            errors = [None if one.value is not None else f"{one.reason}: {one.detail}" for one in scores]
            successes = [one is None for one in errors]
            return types.SimpleNamespace(rewards=rewards, component_rewards={}, successes=successes, errors=errors, compute_time=0.0)
        about = {"preferred_input_kind": kind, "get_model_name": lambda: "editrl", "is_available": lambda: True}
        return types.SimpleNamespace(compute_rewards=compute_rewards, **about, **dict.fromkeys(("offload", "onload", "dispose"), lambda: None))


def _disconnect(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # The exchange may end by itself at this moment.
        sock.shutdown(socket.SHUT_RDWR)


def _send(sock: socket.socket, items: Sequence[Item], todo: Sequence[int], broken: list[Exception]) -> None:
    """Sends items as the server reads them. An item that cannot be encoded goes to `broken`, and ends the exchange."""
    with contextlib.suppress(OSError):  # The reader learns why.
        for index in todo:
            try:
                fields = {name: _image(value) if name in IMAGES else value for name, value in items[index].items()}
                line = json.dumps({**fields, "key": str(index)}).encode() + b"\n"
            except Exception as error:
                broken.append(error)
                return _disconnect(sock)
            sock.sendall(b"%x\r\n%s\r\n" % (len(line), line))
        sock.sendall(b"0\r\n\r\n")


def _lost(reason: str, detail: str) -> Score:
    return Score("unscored", None, {}, reason, detail)


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
    for name, value in item.items():
        if name not in FIELDS or (name in TEXTS and not isinstance(value, str)):
            raise ValueError(f"{place} has {name!r} of {type(value).__name__}. Allowed: {FIELDS}, with texts in {TEXTS}.")
    if ("prompt" in item) == ("instruction" in item):
        raise ValueError(f"{place} needs either a prompt or an instruction.")


def _image(value: Any) -> Optional[str]:
    if isinstance(value, dict):
        value = Path(value["path"]) if value.get("bytes") is None else value["bytes"]
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        value = Path(value).read_bytes()
    if hasattr(value, "save"):
        value.save(file := io.BytesIO(), format="PNG")
        value = file.getvalue()
    if hasattr(value, "detach") and value.dim() == 3 and bool(value.isfinite().all()):
        value = value.detach()
        value = (value.float().clamp(0, 1) * 255).round().byte() if value.is_floating_point() else value
        value = value.permute(1, 2, 0).contiguous().cpu().numpy()
    if len(getattr(value, "shape", ())) == 3 and value.shape[2] == 3 and str(value.dtype) == "uint8":
        value = _png(value.tobytes(), *value.shape[:2])
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    found = f"{type(value).__name__} {tuple(getattr(value, 'shape', ()))} {getattr(value, 'dtype', '')}"
    raise ValueError(f"{found} is not an image. Allowed: the forms in the documentation of Reward.__call__.")


def _png(rgb: bytes, height: int, width: int) -> bytes:
    """A PNG file (ISO/IEC 15948) of RGB bytes, row by row."""
    rows = b"".join(b"\0" + rgb[start : start + 3 * width] for start in range(0, len(rgb), 3 * width))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b""))
    packed = (struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def _fields(columns: Mapping[str, str], row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The fields of one row. `columns`: the row's column for each field."""
    if missing := set(columns.values()).difference(row):
        raise ValueError(f"{where} has no {min(missing)!r}. Found: {', '.join(map(str, row)) or 'nothing'}.")
    return {name: row[column] for name, column in columns.items()}


def _text(value: Any) -> str:
    """A text, or the text of the last message of a conversation."""
    content = (value if isinstance(value, str) else value[-1]["content"]) or ""  # None: it only calls a tool.
    return content if isinstance(content, str) else "".join(part.get("text") or "" for part in content)


def _items(columns: Mapping[str, str], rows: Iterable[Any], where: str, **fields: Iterable[Any]) -> list[Item]:
    """Items of fields as lists. `columns`: further fields, from each row."""
    lists = zip(rows if columns else itertools.repeat(None), *fields.values())
    return [{**dict(zip(fields, values)), **_fields(columns, row or {}, where)} for row, *values in lists]


def _conversations(asked: Any, answers: Any, columns: Mapping[str, str], table: Mapping[str, Any]) -> list[Item]:
    """Items of texts or conversations. `table`: the dataset's columns as lists."""
    return _items({}, (), "", prompt=map(_text, asked), answer=map(_text, answers), **_fields(columns, table, "the dataset"))


class Run:
    """One start of a trainer under editrl, or alone with its files in `folder`. The main thread creates it, because it handles SIGTERM."""

    STOPPED = 128 + signal.SIGTERM  # The exit code after a stop request, as shells report SIGTERM. 0 would finish the run.

    def __init__(self, folder: str = "run"):
        env = os.environ
        self.checkpoints = env.get("EDITRL_CHECKPOINTS", os.path.join(folder, "checkpoints"))
        self.metrics = env.get("EDITRL_METRICS", os.path.join(folder, "metrics.jsonl"))
        os.makedirs(self.checkpoints, exist_ok=True)
        self.resumed: bool = env["RESUME"] == "1" if "EDITRL_METRICS" in env else bool(os.listdir(self.checkpoints))  # An earlier start exists.
        self.rank = int(env.get("RANK", "0"))
        self.config: dict[str, Any] = json.loads(Path(env["EDITRL_CONFIG"]).read_bytes()) if "EDITRL_CONFIG" in env else {}
        self.parameters: dict[str, Any] = self.config.get("parameters", {})
        self._stop = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: self._stop.set())

    def log(self, iteration: int, metrics: Mapping[str, Any]) -> None:
        """Appends the metrics of one iteration (from 0), on rank 0 only. Values are numbers, or tensors with one number."""
        if self.rank == 0:
            with open(self.metrics, "a") as file:
                file.write(json.dumps({"iteration": int(iteration), **{name: float(value) for name, value in metrics.items()}}) + "\n")

    def should_stop(self) -> bool:
        """Whether SIGTERM arrived: from `editrl stop`, Ctrl+C or Slurm. Save a checkpoint, then `sys.exit(run.STOPPED)`."""
        return self._stop.is_set()

editrl_run = Run
