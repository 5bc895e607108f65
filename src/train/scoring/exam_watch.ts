/**
 * Repeats exam questions to a run's judge and warns if its answers have changed, because its address may serve other
 * weights.
 */
import { sleep, systemClock } from '../../core/clock.js';
import { EditrlError } from '../../core/errors.js';
import { judgeItem } from '../../rewards/exam/cases.js';
import { examDrift, type ExamDrift } from '../../rewards/exam/drift.js';
import { slightlyChanged } from '../../rewards/exam/tricks.js';
import { scoreChunk } from '../../rewards/score/iteration.js';
import type { Reward } from '../../rewards/score/types.js';
import { readExamSample, type FoundExam, type SampledAnswer } from '../../run/exams.js';

export interface ExamWatchOptions {
  readonly exam: FoundExam;
  readonly reward: Reward;
  readonly everyMs: number;
  /** Identifies this process in the requests, so that neither a record nor a cache can answer for the judge. */
  readonly asker: string;
  /** Whether the request limit allows this many more questions. */
  readonly hasRoom: (answers: number) => boolean;
  readonly warn: (message: string) => void;
  readonly info: (message: string) => void;
}

/** Number of repeats before a change counts, because large noise rarely occurs twice. */
const REPEATS = 2;

/** Watches until it is closed. It changes nothing of the run except its log. */
export class ExamWatch {
  readonly #stop = new AbortController();
  readonly #ended: Promise<void>;

  constructor(private readonly options: ExamWatchOptions) {
    // A failing watch must not end the run.
    this.#ended = this.#watch().catch((error: unknown) => {
      if (!(error instanceof EditrlError)) throw error;
      options.warn(`comparing the judge with its exam has stopped: ${error.toText()}`);
    });
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#ended;
  }

  async #watch(): Promise<void> {
    const { exam, everyMs, hasRoom, warn, info } = this.options;
    const { made_at, marks, reward } = exam.record;
    const answers = await readExamSample(exam.folder);
    if (answers.length === 0) {
      info(`the judge cannot be compared with its exam, which stored no single answers (${exam.folder})`);
      return;
    }
    let [sentCount, drifted] = [0, false];
    for (; !this.#stop.signal.aborted; await sleep(systemClock, everyMs, this.#stop.signal)) {
      let found: ExamDrift | null = null;
      for (let repeat = 0; repeat < REPEATS && (found === null || found.drifted); repeat++) {
        found = hasRoom(answers.length)
          ? examDrift(answers, await this.#ask(answers, ++sentCount), marks.noise ?? 0)
          : null;
        // An unreachable judge cannot be compared.
        if (found === null) break;
      }
      if (found === null || this.#stop.signal.aborted || found.drifted === drifted) continue;
      drifted = found.drifted;
      const how = `the scores of ${found.scored} answers differ by ${found.moved.toFixed(2)} of 1, of which noise explains ${found.explained.toFixed(2)}. ${found.most}`;
      if (!drifted) info(`the judge '${reward.model}' answers as in its exam again`);
      const otherwise = `the judge '${reward.model}' answers differently than in its exam of ${made_at}`;
      if (drifted) warn(`${otherwise}: ${how} (${exam.folder})`);
    }
  }

  async #ask(answers: readonly SampledAnswer[], count: number): Promise<(number | null)[]> {
    const id = `${this.options.asker}-${count}`;
    // These keys belong to no iteration. See `iterationOfKey`. The process and the count make every question different.
    const items = answers.map((answer, i) =>
      judgeItem(`exam/again-${id}-${i + 1}`, answer, slightlyChanged(answer.made, ['again', answer.name, id])),
    );
    const outcomes = await scoreChunk(this.options.reward, items, this.#stop.signal);
    return outcomes.map((one) => (one.kind === 'unscored' ? null : one.kind === 'scored' ? one.normalised : 0));
  }
}
