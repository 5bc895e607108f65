/** The stand-in of a training server as a program of its own, for `policy.trainer.serve.command`. */
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { build } from 'rolldown';

const ENTRY = resolve(import.meta.dirname, 'serve_stub.ts');
const MANNERS = ['broken', 'slow', 'open', 'stalled', 'reached'] as const;

export interface Started {
  readonly pid: number;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

export class TinkerProgram {
  private constructor(
    private readonly dir: string,
    readonly command: readonly string[],
  ) {}

  /** Bundled into a folder, with all that it imports. */
  static async make(dir: string, vocabulary: number): Promise<TinkerProgram> {
    const file = join(dir, 'serve.mjs');
    await build({ input: ENTRY, platform: 'node', logLevel: 'silent', output: { file, format: 'esm' } });
    return new TinkerProgram(dir, [process.execPath, file, '--vocabulary', String(vocabulary)]);
  }

  /** From now on it is like that, until it is mended: `broken` ends before it listens, `slow` does not listen yet, `open` asks for no key. */
  spoil(how: 'broken' | 'slow' | 'open'): void {
    writeFileSync(join(this.dir, how), '');
  }

  /** It takes so many optimizer steps, and lets the next one wait. */
  stall(after: number): void {
    writeFileSync(join(this.dir, 'stalled'), String(after));
  }

  /** Whether a step waits. */
  get isStalled(): boolean {
    return existsSync(join(this.dir, 'reached'));
  }

  mend(): void {
    for (const how of MANNERS) rmSync(join(this.dir, how), { force: true });
  }

  /** Its starts so far, oldest first. */
  get starts(): readonly Started[] {
    const file = join(this.dir, 'starts');
    if (!existsSync(file)) return [];
    // The last one may be half written.
    return readFileSync(file, 'utf8')
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line) as Started);
  }
}
