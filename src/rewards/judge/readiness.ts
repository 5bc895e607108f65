/** Waits until a judge can judge: a server that lists its model may still be loading it, or accept one image only. */
import { untilReady, type ReadinessResult as LookAtEvery } from '../../core/remote/remote.js';
import { EndpointError, printable } from '../../core/errors.js';
import { checkedKey, noKey } from '../../core/http/key.js';
import { type Clock, Deadline, systemClock } from '../../core/clock.js';
import { toChatRequest } from './chat_request.js';
import {
  checkModel,
  isAlive,
  leaveOutAdvice,
  readCompletion,
  readError,
  type ModelAlias,
  type Problem,
  type Reply,
} from './completion.js';
import { allowBySetting, resolveEndpoints, type AllowAlias, type Endpoint } from './endpoints.js';
import { createHttpPool } from '../../core/http/pool.js';
import { dialectOf, type LeavableField } from './dialect.js';
import { imagesShown, type JudgeMessage, type JudgeQuery } from './judge.js';
import { excerpt } from './parse.js';
import { createClient } from './transport.js';
import type { RgbImage } from '../../core/images/image.js';
import { judgeImage } from './images.js';
import { twoScores } from './prompts.js';

/** The time limit of the wait, and the receivers of its reports. */
export interface WaitOptions {
  /** Seconds to wait for a judge that is down or starting. 0 checks once. */
  readonly maxWaitS: number;
  readonly clock?: Clock;
  readonly signal?: AbortSignal;
  /** The highest number of images of a prompt, which some terms show at once. Default: one for edits, and none for text answers. */
  readonly sources?: number;
  /** Called with the reason after every check that found a judge not ready. */
  readonly onWaiting?: (found: string, waitedS: number) => void;
  /** Called with one line about a ready judge: that it thinks. */
  readonly onNote?: (note: string) => void;
}

export interface ReadinessOptions extends WaitOptions {
  readonly apiKey?: string;
  /** Default: the run's judge. */
  readonly names?: JudgeNames;
  /** The number of images in its largest question, and so in the small request. Default: those of an edit of one image. */
  readonly shown?: number;
  /** Other names of the model, see `checkModel`. With any, the server need not list the model if it answers. */
  readonly alias?: ModelAlias;
  /** Fields that requests leave out. Default: none. */
  readonly leaveOut?: readonly LeavableField[];
  /** Tokens of its longest reply, which its context has to fit. Default: not compared. */
  readonly replyTokens?: number;
}

/** The names of a judge and its settings in messages. */
export interface JudgeNames {
  readonly judge: string;
  /** The setting with its address. */
  readonly endpoint: string;
  /** The setting with its model. */
  readonly model: string;
  /** The setting that allows the model's other names. */
  readonly allow: AllowAlias;
  /** The environment variable with its key. */
  readonly key: string;
  /** The advice if no one answers. */
  readonly start: string;
}

export interface ReadyJudge {
  /** Base URLs. */
  readonly endpoints: readonly string[];
  /** Tokens of the smallest context. Null if no server reports any. */
  readonly context: number | null;
}

const CHECK_INTERVAL_MS = 5_000;
/** A server with occasional failures looks wrong in a single check. A wrong server stays wrong. */
const FINAL_CHECKS = 3;
const RECHECK_MS = 1_000;
/** A first completion may compile kernels. A listing answers at once or the server is as good as down. */
const CHECK_TIMEOUT_MS = 120_000;

/** A model as a server lists it. `root` is the real model under that name, if the server reports it. */
export interface ListedModel {
  readonly id: string;
  readonly root: string | null;
  /** Its context in tokens, if the server reports it. */
  readonly maxModelLen: number | null;
}

/** The result of checking one judge: ready, `not_yet` (waiting may help) or `wrong` (waiting will not help). */
export type JudgeCheck =
  | {
      readonly state: 'ready';
      readonly maxModelLen: number | null;
      readonly models: readonly ListedModel[];
      /** Whether it thinks before it answers. Absent if it was not asked. */
      readonly thinks?: boolean;
    }
  | {
      readonly state: 'not_yet' | 'wrong';
      readonly found: string;
      readonly next: string;
      readonly models?: readonly ListedModel[];
      /** Whether it rejected the check because of too many requests (HTTP 429), which a working server does. */
      readonly busy?: boolean;
    };

/**
 * Returns when every endpoint lists the model and completes a small request, with as many images as it will see at once. Raises
 * EndpointError (exit code 3) with the address, the finding and advice: after three checks in a row with a result that waiting cannot
 * change (another model, no OpenAI-compatible server, a rejected key), otherwise after `maxWaitS`. Waits for a node file that does not
 * exist yet. Raises ConfigError for a malformed address or key.
 */
export async function waitUntilReady(
  endpoint: Endpoint,
  model: string,
  options: ReadinessOptions,
): Promise<ReadyJudge> {
  const { clock = systemClock, signal, names, alias, shown, leaveOut, replyTokens } = options;
  const apiKey = checkedKey(options.apiKey, 'the API key of the judge') ?? noKey;
  const pool = createHttpPool({ connections: 2, secret: apiKey });
  try {
    const context = { clock, pool, apiKey, signal, names, alias, shown, leaveOut, replyTokens };
    const { judge, notes } = await untilReady(() => checkAllJudges(endpoint, model, context), {
      clock,
      maxWaitMs: options.maxWaitS * 1000,
      signal,
      pauseMs: CHECK_INTERVAL_MS,
      finalChecks: { count: FINAL_CHECKS, pauseMs: RECHECK_MS },
      onWaiting: options.onWaiting,
    });
    for (const note of notes) options.onNote?.(note);
    return judge;
  } finally {
    await pool.close();
  }
}

export interface JudgeCheckContext {
  readonly names?: JudgeNames | undefined;
  readonly alias?: ModelAlias | undefined;
  readonly shown?: number | undefined;
  readonly leaveOut?: readonly LeavableField[] | undefined;
  readonly replyTokens?: number | undefined;
  readonly clock: Clock;
  readonly pool: ReturnType<typeof createHttpPool>;
  readonly apiKey?: string;
  readonly signal?: AbortSignal | undefined;
  /** Time limit of the check. Default: two minutes. */
  readonly timeoutMs?: number;
}

type JudgesCheck = LookAtEvery<{ readonly judge: ReadyJudge; readonly notes: readonly string[] }>;

async function checkAllJudges(endpoint: Endpoint, model: string, context: JudgeCheckContext): Promise<JudgesCheck> {
  let endpoints: readonly string[];
  try {
    endpoints = resolveEndpoints(endpoint);
  } catch (error) {
    if (error instanceof EndpointError) return { error, final: false };
    throw error;
  }
  const looks = await Promise.all(endpoints.map((url) => checkJudge(url, model, context)));
  const { judge } = context.names ?? runsJudge;
  let thinks = false;
  let least = Infinity;
  for (const [i, look] of looks.entries()) {
    if (look.state !== 'ready') {
      const error = new EndpointError(`${judge} is not ready: ${look.found}`, { where: endpoints[i], next: look.next });
      return { error, final: look.state === 'wrong' };
    }
    least = Math.min(least, look.maxModelLen ?? Infinity);
    thinks ||= look.thinks === true;
  }
  const notes = thinks ? [`${judge} '${model}' ${thinking}`] : [];
  return { ready: { judge: { endpoints, context: Number.isFinite(least) ? least : null }, notes } };
}

const thinking =
  'thinks before it answers, and its thoughts count as tokens of its reply: if they are cut off, the question is asked again with four times as many. Set reward.max_reply_tokens to give them room at once';

const runsJudge: JudgeNames = {
  judge: 'the judge',
  endpoint: 'reward.endpoint',
  model: 'reward.model',
  allow: allowBySetting('reward.model_alias'),
  key: 'OPENAI_API_KEY',
  start:
    'Start the judge (scripts/ has a script that serves it with vLLM), check host and port, then run the same command again.',
};

function checkAddress({ endpoint }: JudgeNames): string {
  return `Correct ${endpoint}: it must be the base URL of an OpenAI-compatible server, such as http://host:4877/v1.`;
}

/** Whether one judge can be asked: it lists the model and completes a small request. Never rejects. */
export async function checkJudge(url: string, model: string, context: JudgeCheckContext): Promise<JudgeCheck> {
  const { pool, apiKey = noKey, names = runsJudge, alias = false } = context;
  const many = context.shown ?? imagesShown.edit;
  const client = createClient(url, apiKey, pool);
  const deadline = new Deadline(context.clock, context.timeoutMs ?? CHECK_TIMEOUT_MS, context.signal);
  const { signal } = deadline;
  const ask = async (late: string, next: string, question: () => Promise<JudgeCheck>): Promise<JudgeCheck> => {
    try {
      return await question();
    } catch (error) {
      if (deadline.over) return { state: 'not_yet', found: late, next };
      return readFailure(readError(error, Date.now()), url, names, many);
    }
  };
  const completes = (listed: JudgeCheck): Promise<JudgeCheck> =>
    ask('it did not complete a small request in time', hangs, async () => {
      const form = { dialect: dialectOf([url]), leaveOut: context.leaveOut ?? [] };
      const request = await toChatRequest(canaryQuery(many), model, form);
      let got: Reply;
      try {
        got = readCompletion(await client.chat.completions.create(request, { signal }), request);
      } catch (error) {
        if (deadline.over) throw error;
        got = readError(error, Date.now());
        if (!isAlive(got)) return readFailure(got, url, names, many);
      }
      const reply = checkModel(got, model, alias, names.allow);
      if (isAlive(reply)) {
        const thinks = reply.kind === 'text' ? /^\s*<think>/.test(reply.text) : reply.thought === true;
        return { ...unlisted, ...(listed.state === 'ready' ? listed : { models: listed.models ?? [] }), thinks };
      }
      const found = `a small request${many === 0 ? '' : ` with ${countInWords(many)} images`} gave no text (${reply.problem}: ${reply.detail})`;
      const next =
        got === reply
          ? (adviceFor(reply, names) ??
            `Check what serves this address: it has to complete chats${many === 0 ? '' : ' with images'}. ${checkAddress(names)}`)
          : `Set ${names.model} to the name in its answers if that is the right model, or allow that name.`;
      return { state: 'wrong', found, next };
    });
  try {
    const listed = await ask('it did not answer in time', silent, async () =>
      readListing(await client.get('/models', { signal }), model, names),
    );
    const short = withoutRoom(listed, context.replyTokens);
    if (short !== null) return short;
    if (listed.state === 'ready') return withEarlierNotes(`it lists '${model}', but`, await completes(listed));
    // A server may serve a model that it does not list, if the config expects other names.
    if (listed.models === undefined || alias === false) return listed;
    return withEarlierNotes(`${listed.found}, and`, await completes(listed));
  } catch (error) {
    // An unexpected error: an odd listing, or a defect of this program.
    const found = `the check failed: ${error instanceof Error ? `${error.name}: ${error.message}` : String(error)}`;
    return { state: 'wrong', found, next: checkAddress(names) };
  } finally {
    deadline.dispose();
  }
}

const silent = 'The server accepts connections, but does not answer: read its log, and restart it.';
const hangs =
  'The server is up, but its engine does not answer: wake it if it sleeps (vLLM: POST /wake_up), else read its log and restart it.';

/** Why the context of a listed judge cannot fit its longest reply. Null if it can, as far as is known. */
function withoutRoom(listed: JudgeCheck, replyTokens = 0): JudgeCheck | null {
  const most = listed.state === 'ready' ? listed.maxModelLen : null;
  if (most === null || replyTokens < most) return null;
  return {
    state: 'wrong',
    found: `its context has ${most} tokens (max_model_len), and a reply may take ${replyTokens}, so the question does not fit`,
    next: 'Serve the model with a longer context (vllm serve ... --max-model-len), or lower max_reply_tokens of the reward.',
  };
}

/** A judge that answered without a readable listing. */
const unlisted = { state: 'ready', maxModelLen: null, models: [] } as const;

/** The finding with the one before it. Empty for a judge that is ready. */
function withEarlierNotes(before: string, look: JudgeCheck): JudgeCheck {
  return look.state === 'ready' ? look : { ...look, found: `${before} ${look.found}` };
}

function readListing(listing: unknown, model: string, names: JudgeNames): JudgeCheck {
  const data = typeof listing === 'object' && listing !== null ? (listing as { data?: unknown }).data : undefined;
  if (!Array.isArray(data) || data.includes(null)) {
    const found = typeof listing === 'string' ? excerpt(listing) : excerpt(JSON.stringify(listing) ?? 'nothing');
    return {
      state: 'wrong',
      found: `its /models is not a list of models as OpenAI-compatible servers send it, but ${found}`,
      next: checkAddress(names),
    };
  }
  const entries = data as readonly { id?: unknown; root?: unknown; parent?: unknown; max_model_len?: unknown }[];
  const models = entries.map(({ id, root, parent, max_model_len: own }) => {
    // vLLM lists an adapter without the length, which its parent has.
    const length = own ?? entries.find((entry) => entry.id === parent)?.max_model_len;
    return {
      id: String(id),
      root: typeof root === 'string' ? root : null,
      maxModelLen: typeof length === 'number' ? length : null,
    };
  });
  const wanted = models.find(({ id }) => id === model);
  if (wanted === undefined) {
    return {
      state: 'wrong',
      models,
      found: `it does not serve '${model}'; it serves: ${nameSome(models)}`,
      next: `Set ${names.model} to a model that it serves, or serve that one (vllm serve MODEL, or --served-model-name). If the server also answers to that name, ${names.allow(null)}.`,
    };
  }
  return { state: 'ready', maxModelLen: wanted.maxModelLen, models };
}

/** A public service lists hundreds. */
const MAX_NAMED = 20;

function nameSome(models: readonly ListedModel[]): string {
  if (models.length === 0) return 'none';
  const named = models.slice(0, MAX_NAMED).map(({ id }) => `'${printable(id)}'`);
  const rest = models.length - named.length;
  return rest === 0 ? named.join(', ') : `${named.join(', ')} and ${rest} more`;
}

function readFailure(failed: Problem, url: string, names: JudgeNames, many: number): JudgeCheck {
  const { problem, detail, remedy } = failed;
  const advice = adviceFor(failed, names);
  if (remedy === 'retry') {
    const next = advice ?? (problem === 'connection' ? names.start : failing);
    return { state: 'not_yet', found: detail, next, busy: problem === 'rate_limited' };
  }
  const wrong = (next: string, found = detail): JudgeCheck => ({ state: 'wrong', found, next });
  if (advice !== null) return wrong(advice);
  if (problem === 'server_error') return wrong(checkAddress(names));
  if (many > 0 && /image/i.test(detail)) {
    return wrong(
      `Allow ${countInWords(many)} images per request on the server: vllm serve ... --limit-mm-per-prompt '{"image":${many},"video":0}'.`,
    );
  }
  return wrong(checkAddress(names), `${detail} (asked ${url})`);
}

const failing = 'The server is up, but cannot answer: wait until it has loaded its model, or read its log.';

/** The advice for a problem whose cause the server names. Null if it names none. */
function adviceFor({ cause, retryAfterMs }: Problem, { key, model }: JudgeNames): string | null {
  switch (cause) {
    case undefined:
      return null;
    case 'key':
      return `Export ${key} with a key that the server accepts.`;
    case 'funds':
      return `The quota or the balance of the account is used up: raise it, or export ${key} with the key of another account.`;
    case 'busy': {
      const wait = retryAfterMs === undefined ? 'a minute' : `${Math.ceil(retryAfterMs / 1000)} s`;
      return `Wait ${wait}, then run the same command again; if the quota is used up, raise it.`;
    }
    case 'stream_only':
      return `The server only streams its answers, which editrl does not read: set ${model} to a model that answers without streaming.`;
    case 'too_long':
      return 'Serve the model with a longer context (vllm serve ... --max-model-len).';
    default:
      return `If it rejects this field, ${leaveOutAdvice(cause)}.`;
  }
}

const side = 64;

function plain(level: number): RgbImage {
  return { width: side, height: side, data: new Uint8Array(side * side * 3).fill(level) };
}

function asking(...parts: JudgeMessage['parts']): JudgeQuery {
  return { ...question, messages: [{ role: 'user', parts }] };
}

const question: Omit<JudgeQuery, 'messages'> = {
  key: 'canary',
  format: twoScores,
  temperature: 0,
  maxCompletionTokens: 16,
  parse: () => ({ ok: true, scores: [] }),
};

function looking(shown: number): JudgeQuery {
  const images = Array.from({ length: shown }, (_, i) => judgeImage(plain((96 + 64 * i) % 256), 'canary'));
  const words = countInWords(shown);
  const text = `This is a check of the connection. ${words[0].toUpperCase()}${words.slice(1)} images follow. Answer with one short sentence.`;
  return asking(`${text}\nInstruction: leave the image as it is`, ...images);
}

const made = new Map<number, JudgeQuery>();

/** The test query for a judge whose largest questions have this many images: a server may allow fewer per request. */
export function canaryQuery(shown: number): JudgeQuery {
  const known = made.get(shown);
  if (known !== undefined) return known;
  const query =
    shown === 0 ? asking('This is a check of the connection. Answer with one short sentence.') : looking(shown);
  made.set(shown, query);
  return query;
}

const WORDS = ['no', 'one', 'two', 'three', 'four', 'five', 'six'] as const;

/** A number of images, for messages. */
export function countInWords(images: number): string {
  return WORDS.at(images) ?? String(images);
}
