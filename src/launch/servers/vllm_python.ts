/** Modules that vLLM loads by its flags, in Python. */
import { join } from 'node:path';
import { writeFileAtomic } from '../../core/files.js';
import { RULES_ARGUMENT } from '../../engines/vllm/wire.js';

/** The name of the middleware, for `--middleware`. */
export const GUARD = 'editrl_guard.Guard';

/**
 * Writes them into a folder that PYTHONPATH has to name. Raises RunError when the disk refuses.
 *
 * vLLM asks for its key at some routes alone, not at those of its development mode, by which weights are replaced: on a machine that others use too,
 * they could replace them as well. With the first module it asks everywhere but at /health. The second keeps answers to the rules that come with a
 * request.
 */
export function writeModules(folder: string): void {
  writeFileAtomic(join(folder, 'editrl_guard.py'), GUARD_CODE);
  writeFileAtomic(join(folder, 'editrl_rules.py'), RULES_CODE);
}

const GUARD_CODE = `"""Asks for the key of VLLM_API_KEY at every route but /health."""
import os
import secrets


class Guard:
    def __init__(self, app):
        self.app = app
        self.expected = ("Bearer " + os.environ["VLLM_API_KEY"]).encode()

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan" or scope.get("path") == "/health":
            return await self.app(scope, receive, send)
        given = dict(scope.get("headers") or []).get(b"authorization", b"")
        if secrets.compare_digest(given, self.expected):
            return await self.app(scope, receive, send)
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1008})
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"error": "Unauthorized"}'})
`;

const RULES_CODE = `"""Keeps answers to the rules of image blocks that come with a request as extra_args["${RULES_ARGUMENT}"]."""
from vllm.v1.sample.logits_processor import LogitsProcessor, process_dict_updates

NAME = "${RULES_ARGUMENT}"


class Answer:
    def __init__(self, rules, output):
        self.output = output
        self.read = 0
        self.opening = rules["opening"]
        self.at = 0 if self.opening is None else -1
        self.first, self.end = rules["second"]
        self.before, self.after = rules["before"], rules["after"]
        self.block = [token for token, times in rules["block"] for _ in range(times)]

    def restrict(self, row):
        for token in self.output[self.read :]:
            if self.at >= 0 or token == self.opening:
                self.at += 1
        self.read = len(self.output)
        if 0 <= self.at < len(self.block):
            token = self.block[self.at]
            if token is None:
                row[: self.first] = float("-inf")
                row[self.end :] = float("-inf")
            else:
                kept = row[token].clone()
                row[:] = float("-inf")
                row[token] = kept
        else:
            row[self.first :] = float("-inf")
            excluded = self.before if self.at < 0 else self.after
            if excluded:
                row[excluded] = float("-inf")


class Rules(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        self.answers = {}

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        process_dict_updates(self.answers, batch_update, self.begin)

    @staticmethod
    def begin(params, _prompt, output):
        rules = (params.extra_args or {}).get(NAME)
        return None if rules is None else Answer(rules, output)

    def apply(self, logits):
        for index, answer in self.answers.items():
            answer.restrict(logits[index])
        return logits
`;
