/** Counts a chat server's current and past requests. */
import type { ServerResponse } from 'node:http';

/** The content of `GET /stats`: counts of chats since the start. */
export interface JudgeStats {
  readonly requests: number;
  readonly in_flight: number;
  /** The most that were under way at once, including refused ones. */
  readonly max_in_flight: number;
  /** Refused because too many were under way. */
  readonly refused: number;
  /** Injected faults by kind. */
  readonly faults: Readonly<Record<string, number>>;
}

export class Load {
  #requests = 0;
  #inFlight = 0;
  #most = 0;
  #refused = 0;
  #looks = 0;
  readonly #faults = new Map<string, number>();

  /** @param limit more chats at once than this are refused; null for no limit. */
  constructor(private readonly limit: number | null) {}

  /** Counts a chat until its response is over, sent or not. Returns its number, from 0, and whether it has to be refused. */
  begin(response: ServerResponse): { readonly number: number; readonly refused: boolean } {
    const number = this.#requests++;
    this.#most = Math.max(this.#most, ++this.#inFlight);
    response.once('close', () => this.#inFlight--);
    const refused = this.limit !== null && this.#inFlight > this.limit;
    if (refused) this.#refused++;
    return { number, refused };
  }

  /** Counts a look at the list of models; returns its number, from 0. */
  countListing(): number {
    return this.#looks++;
  }

  countFault(name: string): void {
    this.#faults.set(name, (this.#faults.get(name) ?? 0) + 1);
  }

  stats(): JudgeStats {
    return {
      requests: this.#requests,
      in_flight: this.#inFlight,
      max_in_flight: this.#most,
      refused: this.#refused,
      faults: Object.fromEntries([...this.#faults].sort(([a], [b]) => (a < b ? -1 : 1))),
    };
  }
}
