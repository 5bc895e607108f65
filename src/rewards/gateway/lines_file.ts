/** A file that grows by whole lines, written in the order in which they came, as many at a time as have gathered. */
import { mkdirSync } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { open } from 'node:fs/promises';
import { dirname } from 'node:path';
import { diskError } from '../../core/files.js';

export class LinesFile {
  #gathered: string[] = [];
  #writing: Promise<void> | null = null;

  private constructor(
    readonly path: string,
    readonly file: FileHandle,
    readonly onError: (error: Error, lostLines: number) => void,
  ) {}

  /** Raises RunError where the file cannot be opened. */
  static async open(path: string, onError: (error: Error, lostLines: number) => void): Promise<LinesFile> {
    try {
      mkdirSync(dirname(path), { recursive: true });
      const lines = new LinesFile(path, await open(path, 'a+', 0o600), onError);
      await lines.#endTornLine();
      return lines;
    } catch (cause) {
      throw diskError(path, cause);
    }
  }

  /** Takes a line without its end. A disk that refuses is told to `onError`, once per attempt. */
  append(line: string): void {
    this.#gathered.push(line);
    this.#writing ??= this.#write();
  }

  /** When everything taken so far is written or told as lost. */
  async flush(): Promise<void> {
    while (this.#writing !== null) await this.#writing;
  }

  async close(): Promise<void> {
    await this.flush();
    await this.file.close();
  }

  async #write(): Promise<void> {
    // What is appended in the same turn goes with it.
    await Promise.resolve();
    while (this.#gathered.length > 0) {
      const lines = this.#gathered;
      this.#gathered = [];
      try {
        await this.file.appendFile(`${lines.join('\n')}\n`);
      } catch (cause) {
        this.onError(diskError(this.path, cause), lines.length);
      }
    }
    this.#writing = null;
  }

  /** A process that was killed may have left half a line, which the next one must not continue. */
  async #endTornLine(): Promise<void> {
    const { size } = await this.file.stat();
    if (size === 0) return;
    const { buffer } = await this.file.read(Buffer.alloc(1), 0, 1, size - 1);
    if (buffer[0] !== 0x0a) await this.file.appendFile('\n');
  }
}
