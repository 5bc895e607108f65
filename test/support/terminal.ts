/** A terminal of text alone: it knows the sequences by which a live screen is redrawn. */
export class TestTerminal {
  readonly isTTY = true;
  /** All that was written. */
  written = '';
  #lines: string[] = [''];
  #row = 0;
  #column = 0;

  constructor(
    readonly columns = 80,
    readonly rows = 24,
  ) {}

  /** For what wants a terminal of node's. */
  get stream(): NodeJS.WriteStream {
    return this as unknown as NodeJS.WriteStream;
  }

  /** What a person sees, without colours and without empty lines at the end. */
  get screen(): string[] {
    const end = this.#lines.findLastIndex((line) => line.trim() !== '');
    return this.#lines.slice(0, end + 1).map((line) => line.trimEnd());
  }

  write(text: string): boolean {
    this.written += text;
    for (const [piece, , count, letter] of text.matchAll(sequences)) {
      if (letter !== undefined) this.#obey(letter, count);
      else if (piece === '\n') this.#down(1, true);
      else if (piece === '\r') this.#column = 0;
      else this.#put(piece);
    }
    return true;
  }

  #put(text: string): void {
    const line = this.#lines[this.#row].padEnd(this.#column);
    this.#lines[this.#row] = line.slice(0, this.#column) + text + line.slice(this.#column + text.length);
    this.#column += text.length;
  }

  #down(count: number, toLeft: boolean): void {
    this.#row += count;
    if (toLeft) this.#column = 0;
    while (this.#lines.length <= this.#row) this.#lines.push('');
  }

  #obey(letter: string, count: string): void {
    const by = Number(count || '1');
    if (letter === 'A') this.#row = Math.max(0, this.#row - by);
    else if (letter === 'B') this.#down(by, false);
    else if (letter === 'G') this.#column = by - 1;
    else if (letter === 'K' && count === '2') this.#lines[this.#row] = '';
    else if (letter === 'K') this.#lines[this.#row] = this.#lines[this.#row].slice(0, this.#column);
    else if (letter === 'J') this.#lines.splice(this.#row + 1);
    else if (!'mhl'.includes(letter)) throw new Error(`a sequence that this terminal does not know: ${letter}`);
  }
}

/** A sequence, a line end, or what lies between. */
const sequences = new RegExp('(\\u001b\\[\\??([\\d;]*)([A-Za-z]))|\\n|\\r|[^\\n\\r\\u001b]+', 'g');
