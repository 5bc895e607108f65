/** The client for trainers in Python, against the real reward server and against servers that fail. */
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';

import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { afterEach, describe, expect, it } from 'vitest';
import type { Outcome } from '../../../src/rewards/score/types.js';
import { fingerprint, picture, place, readsAndJudges, rewardOf } from '../../rewards/server/served.js';
import { imageOf } from '../../rewards/terms/term_contract.js';

const clients = resolve(import.meta.dirname, '../../../scripts/clients');
const hasPython = spawnSync('python3', ['-c', 'import sys; sys.exit(sys.version_info < (3, 9))']).status === 0;

const here = place();
const servers: Server[] = [];
const folders: string[] = [];
afterEach(async () => {
  await here.close();
  servers.splice(0).forEach((server) => {
    server.closeAllConnections();
    server.close();
  });
  folders.splice(0).forEach((folder) => rmSync(folder, { recursive: true, force: true }));
});

async function serve(listener: RequestListener): Promise<string> {
  const server = createServer(listener);
  servers.push(server);
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

function folder(): string {
  folders.push(mkdtempSync(join(tmpdir(), 'editrl-client-')));
  return folders[folders.length - 1];
}

interface Ended {
  readonly code: number | null;
  readonly result: unknown;
  readonly err: string;
}

/** Runs a program that may print one line of JSON: its result. `given` is available as a variable. */
function python(program: string, given: unknown = {}, env: Readonly<Record<string, string>> = {}): Promise<Ended> {
  const whole = `import json, sys\nfrom editrl_reward import *\ngiven = json.loads(sys.argv[1])\n${program}`;
  const child = spawn('python3', ['-c', whole, JSON.stringify(given)], {
    env: { ...process.env, PYTHONPATH: clients, PYTHONDONTWRITEBYTECODE: '1', ...env },
  });
  let out = '';
  let err = '';
  child.stdout.on('data', (bytes: Buffer) => (out += bytes.toString()));
  child.stderr.on('data', (bytes: Buffer) => (err += bytes.toString()));
  return new Promise((ended) =>
    child.on('close', (code) => ended({ code, err, result: out === '' ? null : (JSON.parse(out) as unknown) })),
  );
}

/** 1 for the expected answer, 0 for others. No score for "mumble", as if the judge's reply could not be read. */
const answers = (seen: unknown[] = []) =>
  rewardOf({
    exact: {
      weight: 1,
      score: ({ instruction, answer, expected }): Outcome => {
        seen.push({ instruction, answer, expected });
        if (answer === 'mumble') return { kind: 'unscored', reason: 'unparsable', detail: 'no grade', parts: {} };
        const value = Number(answer === expected);
        return { kind: 'scored', value, normalised: value, parts: { 'exact/length': answer?.length ?? 0 } };
      },
    },
  });

const three = [
  { prompt: 'a', answer: 'yes', expected: 'yes' },
  { prompt: 'b', answer: 'mumble', expected: 'yes' },
  { prompt: 'c', answer: 'no', expected: 'yes' },
];
const counts = (of: Readonly<Record<string, number>>) =>
  Object.fromEntries(Object.entries(of).map(([name, count]) => [`reward_server/${name}`, count]));

// Its reason: the client under test is a Python file.
describe.skipIf(!hasPython)('Reward', () => {
  it('scores items in their order, without a number for an item that the judge did not score', async () => {
    const { url } = await here.start(answers());
    const { result, err } = await python(
      'reward = Reward(given["url"]); print(json.dumps([reward(given["items"]), reward([]), reward.stats()]))',
      { url, items: three },
    );
    expect(err).toBe('');
    expect(result).toEqual([
      [
        ['scored', 1, { 'exact/length': 3, 'exact/normalised': 1 }, null, null],
        ['unscored', null, {}, 'unparsable', 'exact: no grade'],
        ['scored', 0, { 'exact/length': 2, 'exact/normalised': 0 }, null, null],
      ],
      [],
      counts({ requests: 1, items: 3, scored: 2, zero_by_rule: 0, unscored: 1, 'unscored/unparsable': 1 }),
    ]);
  });

  it('sends images of every kind, and an item without one gets 0 by the rule of the server', async () => {
    const { url } = await here.start(readsAndJudges);
    const encoded = await picture(2);
    const file = join(folder(), 'image.png');
    writeFileSync(file, Buffer.from(encoded, 'base64'));
    const { result, err } = await python(
      `
import base64
from pathlib import Path
class Saves:
    def save(self, file, format): file.write(content)
class Array:
    shape, dtype = (2, 2, 3), "uint8"
    def tobytes(self): return bytes([1, 2, 3] * 4)
content = base64.b64decode(given["encoded"])
images = [given["encoded"], content, Path(given["file"]), {"bytes": None, "path": given["file"]}, {"bytes": content}, Saves()]
print(json.dumps([s.value for s in Reward(given["url"])([{"prompt": "x", "image": image} for image in [*images, Array(), None]])]))`,
      { url, encoded, file },
    );
    expect(err).toBe('');
    const values = result as number[];
    expect(new Set(values.slice(0, 6)).size).toBe(1);
    expect(values[0]).toBeGreaterThan(0);
    expect(values.slice(6)).toEqual([expect.closeTo(0.8 * (0x010203 / 0xffffff), 12), 0]);
  });

  it('rejects items and images that it does not know', async () => {
    const { url } = await here.start(answers());
    const { err } = await python(
      `
class Diverged:
    """A tensor of pixels, one of which is NaN."""
    shape, dtype = (3, 2, 2), "float32"
    def detach(self): return self
    def dim(self): return 3
    def isfinite(self): return self
    def all(self): return False
for item in [{"prompt": "x", "imge": ""}, {"answer": "x"}, {"prompt": 3}, {"prompt": "x", "image": 3}, {"prompt": "x", "image": Diverged()}]:
    try: Reward(given["url"])([item])
    except ValueError as error: print(error, file=sys.stderr)`,
      { url },
    );
    expect(err.split('\n')).toEqual([
      expect.stringContaining("items[0] has 'imge' of str. Allowed: ('image',"),
      'items[0] needs either a prompt or an instruction.',
      expect.stringContaining("items[0] has 'prompt' of int."),
      expect.stringContaining('int ()  is not an image.'),
      expect.stringContaining('Diverged (3, 2, 2) float32 is not an image.'),
      '',
    ]);
  });

  it('sends its token, and ends with a clear message when the server rejects it', async () => {
    const { url } = await here.start(answers(), { token: 'a-token-of-the-test' });
    const program = 'print(json.dumps([score.kind for score in Reward(given["url"])(given["items"])]))';
    const given = { url, items: three.slice(0, 1) };
    const right = await python(program, given, { EDITRL_REWARD_TOKEN: 'a-token-of-the-test' });
    expect(right.result).toEqual(['scored']);
    const wrong = await python(program, given, { EDITRL_REWARD_TOKEN: '' });
    expect(wrong.code).toBe(1);
    expect(wrong.err).toMatch(/RewardServerError: http:\S+: HTTP 401 .*Check the address and EDITRL_REWARD_TOKEN/);
  });

  it('ends when the settings of the server change', async () => {
    const first = await here.start(answers());
    const other = await here.start({ ...answers(), digest: 'another' });
    const { err } = await python(
      'reward = Reward(given["first"]); reward(given["items"]); reward._connect = Reward(given["other"])._connect; reward(given["items"])',
      { first: first.url, other: other.url, items: three.slice(0, 1) },
    );
    expect(err).toMatch(/RewardServerError: \S+ has changed its settings/);
  });
});

const HEADERS = { 'content-type': 'application/x-ndjson', 'x-editrl-reward': 'digest' };

describe.skipIf(!hasPython)('Reward with a server that fails', () => {
  const program = `
import time
start = time.monotonic()
reward = Reward(given["url"], **given.get("limits", {}))
scores = reward(given["items"])
print(json.dumps([[[s.kind, s.value, s.reason] for s in scores], reward.stats(), time.monotonic() - start]))`;
  type Result = [unknown[], Record<string, number>, number];

  it('waits for a server that is down until the deadline', async () => {
    const server = await here.start(answers());
    const { url } = server;
    here.servers.length = 0;
    await server.close();
    const { result } = await python(program, { url, items: three, limits: { deadline_s: 1 } });
    const [scores, stats, seconds] = result as Result;
    expect(scores).toEqual(three.map(() => ['unscored', null, 'connection']));
    expect(stats).toMatchObject(counts({ items: 3, scored: 0, unscored: 3, 'unscored/connection': 3 }));
    expect(seconds).toBeGreaterThan(0.9);
    expect(seconds).toBeLessThan(3);
  });

  it('ends a reply that never ends when its time is over', async () => {
    const url = await serve((_, response) => {
      response.writeHead(200, HEADERS);
      const drip = setInterval(() => response.write(' '), 20);
      response.on('close', () => clearInterval(drip));
    });
    const { result } = await python(program, { url, items: three, limits: { deadline_s: 1, timeout_s: 0.3 } });
    const [scores, stats, seconds] = result as Result;
    expect(scores).toEqual(three.map(() => ['unscored', null, 'timeout']));
    expect(stats).toMatchObject(counts({ items: 3, unscored: 3, 'unscored/timeout': 3 }));
    expect(seconds).toBeLessThan(3);
  });

  it('has no value for malformed replies, and the right one for the others', async () => {
    const malformed: readonly ((reply: string) => string)[] = [
      () => 'no JSON',
      () => '[]',
      (reply) => reply.replace('"normalised":1', '"normalised":7'),
      (reply) => reply.replaceAll('"normalised":1', '"normalised":null'),
      (reply) => reply.replace(/"key":"\d+"/, '"key":"another"'),
      (reply) => reply.slice(0, -5),
    ];
    const outcome = { kind: 'scored', value: 1, normalised: 1, parts: {}, reason: null, detail: null };
    const url = await serve((request, response) => {
      response.writeHead(200, HEADERS);
      createInterface({ input: request })
        .on('line', (line) => {
          const { key } = JSON.parse(line) as { key: string };
          const reply = JSON.stringify({ key, outcome, terms: {} });
          const index = Number(key);
          response.write(`${index % 2 === 0 ? reply : malformed[(index - 1) / 2](reply)}\n`);
        })
        .on('close', () => response.end());
    });
    const items = Array.from({ length: 2 * malformed.length }, () => ({ prompt: 'x' }));
    const { result } = await python(program, { url, items });
    const [scores, stats] = result as Result;
    expect(scores).toEqual(
      items.map((_, index) => (index % 2 === 0 ? ['scored', 1, null] : ['unscored', null, 'server_error'])),
    );
    const half = malformed.length;
    expect(stats).toMatchObject(
      counts({ requests: 5, items: 2 * half, scored: half, unscored: half, 'unscored/server_error': half }),
    );
  }, 30_000);

  it('scores all items but the one that ends the stream', async () => {
    const { url } = await here.start(answers(), { limits: { bodyBytes: 1_000 } });
    const items = [...three, { prompt: 'd'.repeat(1_000) }, ...three];
    const { result } = await python(program, { url, items });
    const [scores, stats] = result as Result;
    const kinds = (scores as [string, unknown, string | null][]).map(([kind, , reason]) => reason ?? kind);
    expect(kinds).toEqual(['scored', 'unparsable', 'scored', 'bad_request', 'scored', 'unparsable', 'scored']);
    expect(stats).toMatchObject(counts({ requests: 2, items: 7, scored: 4, unscored: 3 }));
  });

  it('asks again for what a server that broke off did not answer', async () => {
    const asked: string[][] = [];
    const outcome = { kind: 'scored', value: 1, normalised: 1, parts: {}, reason: null, detail: null };
    const url = await serve((request, response) => {
      const keys: string[] = [];
      asked.push(keys);
      response.writeHead(200, HEADERS);
      createInterface({ input: request })
        .on('line', (line) => keys.push((JSON.parse(line) as { key: string }).key))
        .on('close', () => {
          const answered = asked.length === 1 ? keys.slice(0, 1) : keys;
          response.write(answered.map((key) => `${JSON.stringify({ key, outcome, terms: {} })}\n`).join(''), () =>
            asked.length === 1 ? response.destroy() : response.end(),
          );
        });
    });
    const { result } = await python(program, { url, items: three });
    expect((result as Result)[0]).toEqual(three.map(() => ['scored', 1, null]));
    expect(asked).toEqual([
      ['0', '1', '2'],
      ['1', '2'],
    ]);
  });

  it('sends all items on one connection, although the server announces that it will close it', async () => {
    let connections = 0;
    const outcome = { kind: 'scored', value: 1, normalised: 1, parts: {}, reason: null, detail: null };
    const url = await serve((request, response) => {
      connections++;
      response.writeHead(200, { ...HEADERS, connection: 'close' }).flushHeaders();
      createInterface({ input: request })
        .on('line', (line) => {
          const { key } = JSON.parse(line) as { key: string };
          response.write(`${JSON.stringify({ key, outcome, terms: {} })}\n`);
        })
        .on('close', () => response.end());
    });
    const { result, err } = await python(
      `
import time
class Slow:
    def save(self, file, format): time.sleep(0.3)
reward = Reward(given["url"], deadline_s=5)
print(json.dumps([[score.value for score in reward([{"prompt": "x", "image": Slow()}] * 3)], reward.stats()["reward_server/requests"]]))`,
      { url },
    );
    expect(err).toBe('');
    expect(result).toEqual([[1, 1, 1], 1]);
    expect(connections).toBe(1);
  });

  it('waits as long as a busy server asks, and tries again when the judge was unreachable', async () => {
    const seen: string[] = [];
    let calls = 0;
    const away: Outcome = { kind: 'unscored', reason: 'timeout', detail: 'the judge is away', parts: {} };
    const { url } = await here.start(
      rewardOf({
        exact: {
          weight: 1,
          score: () => (++calls === 1 ? away : { kind: 'scored', value: 1, normalised: 1, parts: {} }),
        },
      }),
    );
    const busy = await serve((request, response) => {
      seen.push(request.url ?? '');
      if (seen.length === 1) response.writeHead(429, { 'retry-after': '1' }).end();
      else response.writeHead(307, { location: `${url}/v1/score` }).end();
    });
    const direct = await python(program, { url, items: three.slice(0, 1) });
    expect((direct.result as Result)[0]).toEqual([['scored', 1, null]]);
    expect(calls).toBe(2);
    const started = Date.now();
    const { err } = await python(program, { url: busy, items: three.slice(0, 1) });
    expect(err).toContain('HTTP 307');
    expect(Date.now() - started).toBeGreaterThan(950);
    expect(seen).toEqual(['/v1/score', '/v1/score']);
  });
});

/** The part of a torch tensor [3, height, width] that the client uses. */
const TENSOR = `
class Tensor:
    def __init__(self, dtype, values): self.dtype, self.values = dtype, values
    def is_floating_point(self): return self.dtype == "float32"
    def dim(self): return 3
    def isfinite(self): return self
    def all(self): return True
    def detach(self): return self
    float = contiguous = cpu = numpy = round = detach
    def clamp(self, low, high): return self
    def __mul__(self, by): return Tensor(self.dtype, [[[value * by for value in row] for row in plane] for plane in self.values])
    def byte(self): return Tensor("uint8", self.values)
    def permute(self, *axes):
        planes = self.values
        return Tensor(self.dtype, [[[int(plane[y][x]) for plane in planes] for x in range(len(planes[0][0]))] for y in range(len(planes[0]))])
    @property
    def shape(self): return (len(self.values), len(self.values[0]), len(self.values[0][0]))
    def tobytes(self): return bytes(value for row in self.values for pixel in row for value in pixel)
`;

describe.skipIf(!hasPython)('adapters', () => {
  const conversation = (user: string) => [
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: [{ type: 'image' }, { type: 'text', text: user }] },
  ];

  it('trl: texts and conversations, None for unscored, and its share as a metric', async () => {
    const seen: unknown[] = [];
    const { url } = await here.start(answers(seen));
    const { result, err } = await python(
      `
logged = []
reward = Reward(given["url"]).trl(expected="solution")
columns = dict(completion_ids=[[1], [2]], trainer_state=None, log_extra=None, log_metric=lambda *of: logged.append(of))
texts = reward(prompts=["p", "q"], completions=["yes", "mumble"], solution=["yes", "yes"], **columns)
talks = reward(prompts=given["prompts"], completions=given["completions"], solution=["yes"] * 3, **columns)
print(json.dumps([reward.__name__, texts, talks, logged]))`,
      {
        url,
        prompts: [conversation('c'), conversation('d'), conversation('e')],
        // A message that only calls a tool has no content.
        completions: ['no', 'yes', null].map((content) => [{ role: 'assistant', content }]),
      },
    );
    expect(err).toBe('');
    expect(result).toEqual([
      'editrl',
      [1, null],
      [0, 1, 0],
      [
        ['editrl/unscored', 0.5],
        ['editrl/unscored', 0],
      ],
    ]);
    expect(seen[2]).toEqual({ instruction: 'c', answer: 'no', expected: 'yes' });
    const missing = await python('Reward(given["url"]).trl(expected="label")(["p"], ["c"], solution=["s"])', { url });
    expect(missing.err).toContain("ValueError: the dataset has no 'label'. Found: solution.");
  });

  it('verl: one answer or a batch, and an error in place of a score that does not exist', async () => {
    const seen: unknown[] = [];
    const { url } = await here.start(answers(seen));
    const program = `
extra = {"question": "2 + 2", "index": 7, "num_turns": None, "rollout_reward_scores": {}}
one = Reward(given["url"]).verl(prompt="question")
batch = Reward(given["url"]).verl_batch(prompt="question")
single = one(data_source="gsm8k", solution_str="4", ground_truth=4, extra_info=extra, reward_router_address="x")
print(json.dumps([single, batch(data_sources=["gsm8k"] * 2, solution_strs=given["answers"], ground_truths=["4", "4"], extra_infos=[extra] * 2)]))`;
    const { result, err } = await python(program, { url, answers: ['4', '5'] });
    expect(err).toBe('');
    expect(result).toEqual([1, [1, 0]]);
    expect(seen[0]).toEqual({ instruction: '2 + 2', answer: '4', expected: '4' });
    const unscored = await python(program, { url, answers: ['4', 'mumble'] });
    expect(unscored.code).toBe(1);
    expect(unscored.err).toContain('Unscored: 1 of 2 items have no score. The first: unparsable: exact: no grade');
  });

  it('flow_grpo: a batch of images with metadata', async () => {
    const { url } = await here.start(readsAndJudges);
    const { result, err } = await python(
      `
class Array:
    dtype, shape = "uint8", (1, 2, 3)
    def tobytes(self): return bytes([0, 0, 255] * 2)
score = Reward(given["url"]).flow_grpo(source="before")
print(json.dumps(score([Array(), Array()], ("p", "q"), ({"before": given["image"]}, {"before": None}))))`,
      { url, image: await picture(2) },
    );
    expect(err).toBe('');
    expect(result).toEqual([[0.8 * (255 / 0xffffff), 0.8 * (255 / 0xffffff)], {}]);
  });

  it('verl-omni: one image as a tensor of bytes, with the label as the prompt', async () => {
    const { url } = await here.start(readsAndJudges);
    const { result, err } = await python(
      `
${TENSOR}
score = Reward(given["url"]).verl_omni()
extra = {"num_turns": None, "rollout_reward_scores": {}}
print(json.dumps(score(data_source="ocr", solution_image=Tensor("uint8", [[[0, 0]], [[0, 0]], [[255, 255]]]), ground_truth="a sign", extra_info=extra)))`,
      { url },
    );
    expect(err).toBe('');
    expect(result).toBeCloseTo(0.8 * (255 / 0xffffff), 12);
  });

  it('UniRL: a request of images with sources, or of texts, and failures in place of scores', async () => {
    const seen: unknown[] = [];
    const images = await here.start(readsAndJudges);
    const texts = await here.start(answers(seen));
    const { result, err } = await python(
      `
from types import SimpleNamespace as Of
${TENSOR}
class Images:
    pixels = [Tensor("float32", [[[0.0]], [[0.0]], [[1.0]]])] * 2
class Request:
    metadata, primitives, prompts = None, {"text": None, "image": Images}, ["p", "q"]
    images = [given["image"], given["image"]]
backend = Reward(given["images"]).unirl()
flow = backend.compute_rewards(Request)
about = (backend.preferred_input_kind, backend.get_model_name(), backend.is_available())
language = Reward(given["texts"]).unirl("text", expected="answer").compute_rewards(
    Of(prompts=["a", "b"], texts=["yes", "mumble"], primitives={}, metadata=[{"answer": "yes"}, {"answer": "no"}]))
print(json.dumps([about, flow.rewards, flow.successes, language.rewards[0], language.successes, language.errors, language.component_rewards]))`,
      { images: images.url, texts: texts.url, image: await picture(2) },
    );
    expect(err).toBe('');
    const value = expect.closeTo(0.8 * fingerprint(imageOf(2)), 12) as number;
    expect(result).toEqual([
      ['image', 'editrl', true],
      [value, value],
      [true, true],
      1,
      [true, false],
      [null, 'unparsable: exact: no grade'],
      {},
    ]);
    expect(seen[0]).toEqual({ instruction: 'a', answer: 'yes', expected: 'yes' });
  });

  it('EasyR1 and ms-swift: batches of answers', async () => {
    const seen: unknown[] = [];
    const { url } = await here.start(answers(seen));
    const { result, err } = await python(
      `
reward = Reward(given["url"])
easy = reward.easyr1()([{"response": "yes", "response_length": 1, "ground_truth": "yes"}, {"response": "n", "response_length": 1, "ground_truth": "y"}])
orm = reward.swift(expected="solution")(args=None)
print(json.dumps([easy, orm(["no"], trainer_state=None, messages=given["messages"], solution=["no"])]))`,
      { url, messages: [[...conversation('c'), { role: 'assistant', content: 'no' }]] },
    );
    expect(err).toBe('');
    expect(result).toEqual([[{ overall: 1 }, { overall: 0 }], [1]]);
    expect(seen.at(-1)).toEqual({ instruction: 'c', answer: 'no', expected: 'no' });
  });
});

describe.skipIf(!hasPython)('editrl_run', () => {
  const program = `
import os
run = editrl_run(given["folder"])
run.log(0, {"reward/mean": 0.5, "count": 2})
run.log(1, {"reward/mean": float("nan")})
before = run.should_stop()
os.kill(os.getpid(), signal.SIGTERM)
print(json.dumps([run.config, run.parameters, run.resumed, run.rank, before, run.should_stop(), run.STOPPED]))`;

  it('uses the files and variables of a run of editrl', async () => {
    const at = folder();
    writeFileSync(join(at, 'c.json'), '{"seed": 3, "parameters": {"lr": 0.1}}');
    const env = {
      EDITRL_CONFIG: join(at, 'c.json'),
      EDITRL_METRICS: join(at, 'm.jsonl'),
      EDITRL_CHECKPOINTS: join(at, 'saved'),
      RESUME: '1',
      RANK: '0',
    };
    const { result, err } = await python(program, { folder: join(at, 'unused') }, env);
    expect(err).toBe('');
    expect(result).toEqual([{ seed: 3, parameters: { lr: 0.1 } }, { lr: 0.1 }, true, 0, false, true, 143]);
    expect(readFileSync(env.EDITRL_METRICS, 'utf8')).toBe(
      '{"iteration": 0, "reward/mean": 0.5, "count": 2.0}\n{"iteration": 1, "reward/mean": NaN}\n',
    );
    await python(program, { folder: at }, { ...env, RANK: '1', EDITRL_METRICS: join(at, 'of_rank_1') });
    expect(() => readFileSync(join(at, 'of_rank_1'))).toThrow(/ENOENT/);
  });

  it('works with plain files without editrl', async () => {
    const at = join(folder(), 'alone');
    const { result, err } = await python(program, { folder: at });
    expect(err).toBe('');
    expect(result).toEqual([{}, {}, false, 0, false, true, 143]);
    expect(readFileSync(join(at, 'metrics.jsonl'), 'utf8').split('\n')).toHaveLength(3);
    writeFileSync(join(at, 'checkpoints/last'), '');
    expect((await python(program, { folder: at })).result).toEqual([{}, {}, true, 0, false, true, 143]);
  });
});
