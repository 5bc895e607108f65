/**
 * Scores a run's episodes again with another reward, from its records if they suffice. The run's own files do not
 * change.
 */
import type { RewardSettings } from '../../rewards/schema/reward.js';
import { DataError, EditrlError } from '../../core/errors.js';
import { requireWritable, writeFileAtomic } from '../../core/files.js';
import { chosenTerms, decidingKinds, rewardName, showsOne } from '../../rewards/score/choice.js';
import { createReward } from '../../rewards/score/combined.js';
import type { JudgeAddress } from '../../rewards/judge/endpoints.js';
import type { Judge } from '../../rewards/judge/judge.js';
import { groupName, isJudgeAbsent, scoreChunk } from '../../rewards/score/iteration.js';
import {
  judgementForm,
  type JudgeItem,
  type Judgement,
  type JudgementStore,
  type Reward,
} from '../../rewards/score/types.js';
import type { TermServices } from '../../rewards/terms/term.js';
import {
  listEpisodeFiles,
  parseHeldOutKey,
  readRecordedEpisodes,
  type EpisodeFile,
  type RecordedEpisode,
} from '../../run/episodes.js';
import { encodeLine } from '../../run/journal.js';
import { Exchanges } from '../../run/exchanges.js';
import type { RunPaths } from '../../run/paths.js';
import type { RunResolver } from '../../models/reference.js';
import { Judges, termServices } from '../scoring/judges.js';
import { redrawsIdentically, recordedItems, type ItemSources, type RecordedTask } from './recorded_items.js';
import { RecordedJudge, RecordedReplies, type JudgeCounts } from './recorded_judge.js';
import { summarizeRescored, type RescoredEpisode, type RescoreSummary } from './rescore_summary.js';

export interface RescoreRequest {
  readonly paths: RunPaths;
  /** Opens the run's task. Raises EditrlError if data or models no longer exist. */
  readonly openTask: () => Promise<RecordedTask>;
  /** Number of prompts per training iteration. */
  readonly promptsPerIteration: number;
  /** The run's own reward. */
  readonly recordedReward: RewardSettings;
  /** The reward to score by. */
  readonly reward: RewardSettings;
  /** The name of the files in rescored/. */
  readonly name: string;
  readonly resolveRun: RunResolver;
  /** Returns the judge's address on first use. Null to send no requests. */
  readonly judge: (() => Promise<JudgeAddress>) | null;
  /** Whether to send no requests to the terms' own servers either. */
  readonly offline?: boolean;
  /** Whether to leave out training episodes. */
  readonly heldOutOnly?: boolean;
  /** Whether to score only the first and the last held-out evaluation. */
  readonly endsOnly?: boolean;
  /** Whether the value is that of the single term in `reward.terms`, on its own scale. */
  readonly native?: boolean;
  /** Additional fields of the summary, computed from the episodes. */
  readonly more?: (episodes: readonly RescoredEpisode[]) => object;
  /** Receives notes about the judge. See `WaitOptions`. */
  readonly onNote?: (note: string) => void;
  /** Called before each file of episodes. */
  readonly onProgress?: (file: EpisodeFile, at: number, of: number) => void;
}

/**
 * Scores every recorded episode of training and held-out evaluation, and writes `rescored/<name>.jsonl` and `.json`.
 * Stores judges' answers beside them, so that an interrupted call continues where it stopped. Raises EndpointError if a
 * needed judge is unreachable, ConfigError for a reward that cannot be created on this machine, and first of all RunError if
 * the run's folder is not writable.
 */
export async function rescore(request: RescoreRequest): Promise<RescoreSummary> {
  const { paths, recordedReward, reward, name, promptsPerIteration } = request;
  requireWritable(
    paths.rescoredDir,
    "Rescoring writes there. Copy the run's folder to a writable place, and name the copy: editrl rescore /path/RUN",
  );
  const counts: JudgeCounts = { replayed: 0, parsed_again: 0, asked: 0, missing: 0 };
  const connection = new Connection(request);
  const recorded = new Exchanges(paths.judgements, judgementForm, { isOwner: false, from: null });
  const offline = request.offline === true;
  const replies = new RecordedReplies(recorded, offline, counts);
  const sourcesOfAnswers: Lacking[] = [replies];
  const recordedJudge = (model: string, liveJudge: Judge | null): Judge => {
    const judge = new RecordedJudge({ model, recorded, leaveOut: reward.leave_out, judge: liveJudge }, counts);
    sourcesOfAnswers.push(judge);
    return judge;
  };
  const { task, noTask } = await openTask(request);
  const made = termServices(reward, connection, request.resolveRun, { store: () => connection.store() });
  const services: TermServices = {
    ...made,
    judge: (model = reward.model) => recordedJudge(model, request.judge === null ? null : connection.take(model)),
    ownJudge: (options) => {
      const server = offline ? null : made.ownJudge(options);
      // Recorded answers may suffice, so the server is contacted on first use.
      let found: Promise<void> | null = null;
      const serverJudge: Judge | null = server && {
        ask: async (...question) => {
          await (found ??= server.untilReady?.({ maxWaitS: 0 }) ?? Promise.resolve());
          return server.ask(...question);
        },
      };
      const judge = recordedJudge(options.model, serverJudge);
      return { ask: (...question) => judge.ask(...question), close: async () => server?.close() };
    },
    records: { offline, reply: (key, requestHash, isUsable) => replies.find(key, requestHash, isUsable) },
  };
  const scored = await createReward(reward, services, request.native);
  try {
    const episodes: RescoredEpisode[] = [];
    const files = episodeFilesOf(request);
    const found = { paths, task, noTask, promptsPerIteration };
    const sources = { ...found, redraws: await redrawsIdentically(files, found) };
    for (const [at, file] of files.entries()) {
      request.onProgress?.(file, at, files.length);
      episodes.push(...(await rescoreFile(file, scored, reward, sources, sourcesOfAnswers)));
    }
    const place = paths.rescored(name);
    const summaryOfScores = summarizeRescored(episodes, {
      run_name: paths.runName,
      name,
      reward: rewardName(reward),
      recorded_reward: rewardName(recordedReward),
      judgements: counts,
      file: place.outcomes,
    });
    const summary = { ...summaryOfScores, ...request.more?.(episodes) };
    writeFileAtomic(place.outcomes, episodes.map((episode) => `${encodeLine(episode).line}\n`).join(''));
    writeFileAtomic(place.summary, `${encodeLine(summary).line}\n`);
    return summary;
  } finally {
    await scored.close();
    await connection.close();
    recorded.close();
    await task?.dispose();
  }
}

function episodeFilesOf({ paths, heldOutOnly, endsOnly }: RescoreRequest): EpisodeFile[] {
  const files = listEpisodeFiles(paths).filter(({ heldOut }) => heldOut || heldOutOnly !== true);
  if (endsOnly !== true) return files;
  const evaluations = files.filter(({ heldOut }) => heldOut);
  return files.filter((file) => !file.heldOut || file === evaluations.at(0) || file === evaluations.at(-1));
}

/** The run's task, or why it cannot be opened. Episodes with recorded images do not need it. */
async function openTask({ openTask: open }: RescoreRequest): Promise<{ task: RecordedTask | null; noTask: string }> {
  try {
    return { task: await open(), noTask: '' };
  } catch (error) {
    if (!(error instanceof EditrlError)) throw error;
    return { task: null, noTask: `the run's data or a model is missing (${error.message})` };
  }
}

async function rescoreFile(
  file: EpisodeFile,
  scored: Reward,
  reward: RewardSettings,
  sources: ItemSources,
  answers: readonly Lacking[],
): Promise<RescoredEpisode[]> {
  const episodes = readRecordedEpisodes(file.path);
  const found = (await recordedItems(file, episodes, sources)).map((one) =>
    one.item === null ? one : { item: one.item, missing: lacking(one.item, reward) },
  );
  const items = found.flatMap(({ item, missing }) => (item === null || missing !== null ? [] : [item]));
  const { reward: lenient, faults } = toleratingFaults(scored);
  const outcomes = await scoreChunk(lenient, items);
  const groupOf = new Map(scored.compares === true ? items.map((item) => [item.key, groupName(item)]) : []);
  const groupsLacking = new Set(items.flatMap(({ key }) => (isMissing(key, answers) ? [groupOf.get(key)] : [])));
  /** Whether an answer is missing. A request about several answers has the key of one of them. */
  const lacks = (key: string): boolean => {
    const group = groupOf.get(key) ?? null;
    return isMissing(key, answers) || (group !== null && groupsLacking.has(group));
  };
  const byKey = new Map(items.map(({ key }, i) => [key, outcomes[i]]));
  return episodes.map((episode, i): RescoredEpisode => {
    const { key } = episode;
    const outcome = byKey.get(key);
    const fault = faults.get(key);
    const missing =
      found[i].missing ??
      (fault === undefined ? null : 'its prompt does not fit the reward') ??
      (outcome?.kind === 'unscored' && lacks(key) ? 'the judge was not asked this' : null);
    const common = { key, iteration: file.iteration, set: setOf(episode), recorded: episode.outcome };
    return missing === null && outcome !== undefined
      ? { ...common, rescored: outcome, missing: null }
      : {
          ...common,
          rescored: null,
          missing: missing ?? 'it is recorded twice',
          ...(fault === undefined ? {} : { detail: fault }),
        };
  });
}

/**
 * Makes a reward tolerate prompts that it cannot score, by returning no score. Training on such data would have to
 * stop. `faults` contains the problem of each prompt, by its episode's key.
 */
function toleratingFaults(scored: Reward): { reward: Reward; faults: ReadonlyMap<string, string> } {
  const faults = new Map<string, string>();
  const score: Reward['score'] = async (item, signal, options) => {
    try {
      return await scored.score(item, signal, options);
    } catch (error) {
      if (!(error instanceof DataError)) throw error;
      faults.set(item.key, error.message);
      return { kind: 'unscored', reason: 'bad_request', detail: error.message, parts: {} };
    }
  };
  return { reward: { ...scored, score }, faults };
}

/** Why the reward cannot score answers to the prompt, as a sentence. Null if it can. */
function lacking(item: JudgeItem, reward: RewardSettings): string | null {
  const kinds = decidingKinds(reward);
  if (item.truth === null && kinds.some(({ needs }) => needs.truth)) return 'its prompt has no labeled result';
  if (item.expected === undefined && kinds.some(({ needs }) => needs.words === true)) {
    return 'its prompt has no labeled words';
  }
  const blind = item.beside === undefined ? undefined : chosenTerms(reward).find((term) => showsOne(term, reward));
  return blind === undefined ? null : `its prompt has several images, but '${blind.name}' shows the judge one`;
}

/** Answers from the records, and the items with a missing answer. */
type Lacking = Pick<RecordedJudge, 'missing'>;

/** Whether a request with this episode's key was never sent to the judge. */
function isMissing(key: string, answers: readonly Lacking[]): boolean {
  return answers.some(({ missing }) => missing.has(key));
}

/** `training`, or the set and sampling mode of a held-out evaluation. */
function setOf({ key }: RecordedEpisode): string {
  const place = parseHeldOutKey(key);
  return place === null ? 'training' : `${place.set}/${place.sampling}`;
}

/** Judges that receive requests. They are connected on the first request. */
class Connection {
  readonly #judges = new Judges();
  #store: Exchanges<Judgement> | null = null;
  #connected: Promise<void> | null = null;

  constructor(private readonly request: RescoreRequest) {}

  take(model: string): Judge {
    const judge = this.#judges.take(model);
    return {
      ask: async (query, signal, options) => {
        await (this.#connected ??= this.#connect());
        return judge.ask(query, signal, options);
      },
    };
  }

  /**
   * Answers that this rescoring got from servers. Failures do not count as answers, so a later call sends the request
   * again.
   */
  store(): JudgementStore {
    const { paths, name } = this.request;
    const { judgements } = paths.rescored(name);
    const store = (this.#store ??= new Exchanges(judgements, judgementForm, { isOwner: true, from: null }));
    return {
      find: (key, requestHash) => {
        const found = store.find(key, requestHash);
        const { problem = null } = found ?? {};
        return problem !== null && isJudgeAbsent[problem] ? undefined : found;
      },
      put: (judgement) => store.put(judgement),
    };
  }

  async close(): Promise<void> {
    await this.#judges.close();
    this.#store?.close();
  }

  async #connect(): Promise<void> {
    const { judge, reward, onNote } = this.request;
    if (judge === null) return;
    const noted = onNote === undefined ? {} : { onNote };
    await this.#judges.open(reward, await judge(), { ...noted, maxWaitS: 0, store: this.store() });
  }
}
