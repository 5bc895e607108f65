/** Detects whether a file has changed since it was last read. */
import { statSync } from 'node:fs';

/** Size, time and identity of a file; '' if there is none, and the error code if it may not be accessed. */
export function stampOf(path: string): string {
  try {
    const found = statSync(path, { throwIfNoEntry: false });
    return found === undefined ? '' : `${found.ino} ${found.size} ${found.mtimeMs}`;
  } catch (cause) {
    // A folder that may not be entered; the run's status says so.
    return String((cause as NodeJS.ErrnoException).code);
  }
}
