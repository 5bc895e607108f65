/** Whether a file is what it was when it was last read. */
import { statSync } from 'node:fs';

/** Size, time and identity of a file; '' where there is none, and why where it may not be looked at. */
export function stampOf(path: string): string {
  try {
    const found = statSync(path, { throwIfNoEntry: false });
    return found === undefined ? '' : `${found.ino} ${found.size} ${found.mtimeMs}`;
  } catch (cause) {
    // A folder that may not be entered; its status says so.
    return String((cause as NodeJS.ErrnoException).code);
  }
}
