/** Asks a run's judge again what it was asked at its exam, and warns when it answers otherwise: other weights may stand behind its address. */
import { EditrlError } from '../core/errors.js';
import { sleep, systemClock } from '../core/clock.js';
import { examDrift, type ExamDrift } from '../rewards/exam/drift.js';
import { judgeItem } from '../rewards/exam/cases.js';
import { slightlyChanged } from '../rewards/exam/tricks.js';
import { scoreChunk } from '../rewards/score/iteration.js';
import type { Reward } from '../rewards/score/types.js';
import { readExamSample, type FoundExam, type SampledAnswer } from '../run/exams.js';

export interface ExamWatchOptions {
  readonly exam: FoundExam;
  readonly reward: Reward;
  readonly everyMs: number;
  /** Names this process among all that ask about this exam: neither a record nor a cache may answer for the judge. */
  readonly asker: string;
  /** Whether the judge may be asked so many questions more. */
  readonly hasRoom: (answers: number) => boolean;
  readonly warn: (message: string) => void;
  readonly info: (message: string) => void;
}

/** Times that the sample is asked about before a change counts: of noise that happens to be large the second time says nothing. */
const LOOKS = 2;

/** Watches until it is closed. What it finds changes nothing of the run but its log. */
export class ExamWatch {
  readonly #stop = new AbortController();
  readonly #ended: Promise<void>;
  /** With the asker's name this makes every question a different one. */
  #asked = 0;
  #drifted = false;

  constructor(private readonly options: ExamWatchOptions) {
    this.#ended = this.#watch();
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#ended;
  }

  async #watch(): Promise<void> {
    const { exam, everyMs, warn, info } = this.options;
    const { signal } = this.#stop;
    try {
      const answers = await readExamSample(exam.folder);
      if (answers.length === 0) {
        info(
          `the judge is not compared with its exam while this runs: the exam kept no answers that are scored by themselves, as one does of a reward that compares answers (${exam.folder})`,
        );
        return;
      }
      while (!signal.aborted) {
        await this.#look(answers);
        await sleep(systemClock, everyMs, signal);
      }
    } catch (error) {
      // A run is worth more than its watch.
      if (!(error instanceof EditrlError)) throw error;
      warn(`the judge is not compared with its exam any more: ${error.toText()}`);
    }
  }

  async #look(answers: readonly SampledAnswer[]): Promise<void> {
    const noise = this.options.exam.record.marks.noise ?? 0;
    let found: ExamDrift | null = null;
    for (let look = 0; look < LOOKS; look++) {
      if (!this.options.hasRoom(answers.length)) return;
      found = examDrift(answers, await this.#ask(answers), noise);
      // A judge that is away says nothing about itself.
      if (found === null || this.#stop.signal.aborted) return;
      if (!found.drifted) break;
    }
    if (found !== null) this.#tell(found);
  }

  async #ask(answers: readonly SampledAnswer[]): Promise<(number | null)[]> {
    this.#asked++;
    const look = `${this.options.asker}-${this.#asked}`;
    const items = answers.map((answer, i) =>
      // Of no iteration: see iterationOfKey.
      judgeItem(`exam/again-${look}-${i + 1}`, answer, slightlyChanged(answer.made, ['again', answer.name, look])),
    );
    const outcomes = await scoreChunk(this.options.reward, items, this.#stop.signal);
    return outcomes.map((outcome) =>
      outcome.kind === 'scored' ? outcome.normalised : outcome.kind === 'zero_by_rule' ? 0 : null,
    );
  }

  #tell({ drifted, scored, moved, explained, most }: ExamDrift): void {
    const { exam, warn, info } = this.options;
    const { made_at, reward } = exam.record;
    if (drifted && !this.#drifted) {
      warn(
        `the judge '${reward.model}' answers otherwise than at its exam of ${made_at}: the scores of ${scored} answers differ by ${moved.toFixed(2)} of 1, of which its noise explains ${explained.toFixed(2)}; ${most}. Other weights may stand behind its address: what it scores from here on may not compare with what it scored before (${exam.folder})`,
      );
    }
    if (!drifted && this.#drifted) info(`the judge '${reward.model}' answers as at its exam again`);
    this.#drifted = drifted;
  }
}
