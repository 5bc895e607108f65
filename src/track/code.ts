/** The revision of this program's code that a run was made with. */
import { withoutPassword } from './shown_settings.js';
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

export interface CodeRevision {
  readonly commit: string;
  /** The repository's server, without names and passwords; null if there is none. */
  readonly repository: string | null;
}

/** Revision of the folder that this program is in; null if it is not under version control, or git is not installed. */
export async function codeRevision(folder = import.meta.dirname): Promise<CodeRevision | null> {
  const commit = await git(folder, 'rev-parse', 'HEAD');
  if (commit === null) return null;
  const remote = await git(folder, 'remote', 'get-url', 'origin');
  const onServer = remote !== null && /^(https?|ssh|git):\/\/|^[\w.-]+@[\w.-]+:/.test(remote);
  return { commit, repository: onServer ? withoutPassword(remote) : null };
}

async function git(folder: string, ...args: readonly string[]): Promise<string | null> {
  try {
    const { stdout } = await promisify(execFile)('git', ['-C', folder, ...args], { timeout: 5000 });
    return stdout.trim() || null;
  } catch {
    return null;
  }
}
