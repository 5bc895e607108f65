/** Helpers of the benches that compare with a Python program. */
import { execFileSync } from 'node:child_process';

/** The options of every part. */
export interface BesidePython {
  /** A folder that `scripts/fetch_smollm2` made. */
  readonly model: string;
  readonly python: string;
  readonly rounds: number;
  /** Threads of each program. */
  readonly threads: number;
  /** Tokens of an answer. */
  readonly tokens: number;
}

/** Why Python cannot import these packages. Null if it can. */
export function missingInPython(python: string, packages: readonly string[]): string | null {
  try {
    execFileSync(python, ['-c', `import ${packages.join(', ')}`], { stdio: ['ignore', 'ignore', 'pipe'] });
    return null;
  } catch (error) {
    return (error instanceof Error ? error.message : String(error)).trim().split('\n').at(-1) ?? python;
  }
}
