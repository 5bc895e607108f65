/** Processes that do one piece of work per request, so that several programs can be timed in turns on one machine. */
import { spawn, type ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';
import { InternalError } from '../../src/core/errors.js';
import { median } from './short_run.js';

/** A process's report about one turn, a line of JSON. */
export interface Turn {
  readonly seconds: number;
  readonly cpu_seconds: number;
  /** The peak memory of the process so far, in MiB. */
  readonly peak_mib: number;
}

/** A program that answers each line of its standard input with a `Turn`. Other output is ignored. */
export class TurnTaker {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  #errors = '';

  constructor(
    readonly name: string,
    command: string,
    args: readonly string[],
  ) {
    this.#child = spawn(command, args, { stdio: ['pipe', 'pipe', 'pipe'] });
    this.#child.stderr!.on(
      'data',
      (chunk: Buffer) => (this.#errors = `${this.#errors}${chunk.toString()}`.slice(-4000)),
    );
    // A program that cannot be started or has ended is noticed by its missing answer.
    this.#child.on('error', (error) => (this.#errors += error.message));
    this.#child.stdin!.on('error', () => {});
    this.#lines = createInterface({ input: this.#child.stdout! })[Symbol.asyncIterator]();
  }

  /** Takes one turn. Raises InternalError with the program's last output if it ends without an answer. */
  async take(): Promise<Turn> {
    this.#child.stdin!.write('go\n');
    for (;;) {
      const line = await this.#lines.next();
      if (line.done === true) throw new InternalError(`${this.name} ended without an answer:\n${this.#errors}`);
      if (line.value.startsWith('{')) return JSON.parse(line.value) as Turn;
    }
  }

  close(): void {
    this.#child.stdin?.end();
  }
}

/** The other side of a `TurnTaker`: does `work` for each line of the standard input. */
export async function answerTurns(work: () => Promise<void>): Promise<void> {
  const asked = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  while ((await asked.next()).done !== true) {
    const [start, before] = [performance.now(), process.cpuUsage()];
    await work();
    const { user, system } = process.cpuUsage(before);
    const turn: Turn = {
      seconds: (performance.now() - start) / 1000,
      cpu_seconds: (user + system) / 1e6,
      peak_mib: process.resourceUsage().maxRSS / 1024,
    };
    console.log(JSON.stringify(turn));
  }
}

/** Lets each take turns, once to warm up and then `rounds` times. Prints medians, and the ratio of each to the first. */
export async function race(takers: readonly [TurnTaker, ...TurnTaker[]], rounds: number): Promise<void> {
  const turns = new Map(takers.map((taker) => [taker, [] as Turn[]]));
  for (const taker of takers) await taker.take();
  for (let round = 0; round < rounds; round++) {
    for (const taker of takers) turns.get(taker)!.push(await taker.take());
  }
  const [first] = takers;
  for (const taker of takers) {
    const own = turns.get(taker)!;
    const [seconds, cpu] = [median(own.map((turn) => turn.seconds)), median(own.map((turn) => turn.cpu_seconds))];
    const peak = Math.max(...own.map((turn) => turn.peak_mib));
    const ratio = (of: keyof Turn): string =>
      median(own.map((turn, i) => turn[of] / turns.get(first)![i][of])).toFixed(2);
    const times = taker === first ? '' : `; ${ratio('seconds')} times ours, CPU ${ratio('cpu_seconds')} times`;
    console.log(
      `  ${taker.name.padEnd(28)} ${seconds.toFixed(2)} s, CPU ${cpu.toFixed(2)} s, peak ${Math.round(peak)} MiB${times}`,
    );
  }
}
