/** Scoring a run's episodes again by another reward: from its records where they suffice. The run's own files stay as they are. */
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
import { summariseRescored, type RescoredEpisode, type RescoreSummary } from './rescore_summary.js';

export interface RescoreRequest {
  readonly paths: RunPaths;
  /** Opens the run's data and what makes its artifacts. Raises EditrlError where they are not there. */
  readonly openTask: () => Promise<RecordedTask>;
  /** Prompts of one iteration of training. */
  readonly promptsPerIteration: number;
  /** The run's own reward. */
  readonly recordedReward: RewardSettings;
  /** The reward to score by. */
  readonly reward: RewardSettings;
  /** Names the files under rescored/. */
  readonly name: string;
  readonly resolveRun: RunResolver;
  /** Finds the judge when it is first needed. Null where nobody is to be asked. */
  readonly judge: (() => Promise<JudgeAddress>) | null;
  /** Whether servers of the terms' own are not asked either. */
  readonly offline?: boolean;
  /** Whether episodes of training are left out. */
  readonly heldOutOnly?: boolean;
  /** Whether, of held-out evaluations, the first and the last alone are scored. */
  readonly endsOnly?: boolean;
  /** Whether the value is a single term's, on its own scale, though it stands in `reward.terms`. */
  readonly native?: boolean;
  /** Further fields of the summary, from the episodes. */
  readonly more?: (episodes: readonly RescoredEpisode[]) => object;
  /** Receives notes about the judge; see `WaitOptions`. */
  readonly onNote?: (note: string) => void;
  /** Called before each file of episodes. */
  readonly onProgress?: (file: EpisodeFile, at: number, of: number) => void;
}

/**
 * Scores every recorded episode of training and of held-out evaluations, and writes `rescored/<name>.jsonl` and `.json`. Judges' answers are stored
 * beside them, so that an interrupted call continues where it was. Raises EndpointError if a judge has to be asked and is not there, ConfigError for
 * a reward that cannot be made on this machine, and, before anything else, RunError if the run's folder is not writable.
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
  const recordedJudge = (model: string, asked: Judge | null): Judge => {
    const judge = new RecordedJudge({ model, recorded, leaveOut: reward.leave_out, asked }, counts);
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
      // Recorded answers may be enough: the server is contacted only when it is first needed.
      let found: Promise<void> | null = null;
      const asked: Judge | null = server && {
        ask: async (...question) => {
          await (found ??= server.untilReady?.({ maxWaitS: 0 }) ?? Promise.resolve());
          return server.ask(...question);
        },
      };
      const judge = recordedJudge(options.model, asked);
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
    const told = summariseRescored(episodes, {
      run_name: paths.runName,
      name,
      reward: rewardName(reward),
      recorded_reward: rewardName(recordedReward),
      judgements: counts,
      file: place.outcomes,
    });
    const summary = { ...told, ...request.more?.(episodes) };
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

/** The run's task, or the reason that it cannot be opened. Episodes recorded with images do not need it. */
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
  /** A question that is about several answers bears the name of one. */
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
    const told = { key, iteration: file.iteration, set: setOf(episode), recorded: episode.outcome };
    return missing === null && outcome !== undefined
      ? { ...told, rescored: outcome, missing: null }
      : {
          ...told,
          rescored: null,
          missing: missing ?? 'it is recorded twice',
          ...(fault === undefined ? {} : { detail: fault }),
        };
  });
}

/**
 * The reward, made not to fail at a prompt that it cannot be asked about. A run that trains on such data has to stop. Its episodes, rescored by
 * another reward, just lack a score. `faults`: what is wrong with a prompt, by its episode's key.
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

/** The reason, in a sentence, that the reward cannot score answers to the prompt. Null if it can. */
function lacking(item: JudgeItem, reward: RewardSettings): string | null {
  const kinds = decidingKinds(reward);
  if (item.truth === null && kinds.some(({ needs }) => needs.truth)) return 'its prompt has no labeled result';
  if (item.expected === undefined && kinds.some(({ needs }) => needs.words === true)) {
    return 'its prompt has no labeled words';
  }
  const blind = item.beside === undefined ? undefined : chosenTerms(reward).find((term) => showsOne(term, reward));
  return blind === undefined ? null : `its prompt has several images, but '${blind.name}' shows the judge one`;
}

/** Answers from the records, and the items that they lack one of. */
type Lacking = Pick<RecordedJudge, 'missing'>;

/** Whether a question in the name of this episode was never put to the judge. */
function isMissing(key: string, answers: readonly Lacking[]): boolean {
  return answers.some(({ missing }) => missing.has(key));
}

/** Training, or the set and the manner of a held-out evaluation. */
function setOf({ key }: RecordedEpisode): string {
  const place = parseHeldOutKey(key);
  return place === null ? 'training' : `${place.set}/${place.sampling}`;
}

/** The judges that are really asked, connected when the first question comes. */
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
   * Answers that this rescoring got from other machines. A missing answer is not an answer: if an earlier call got none, the question is asked again.
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
