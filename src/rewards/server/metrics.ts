/** What a reward server counts. */
import type { CombinedOutcome } from '../score/combined.js';
import { Counts, family, head, Histogram, type Sample } from '../../http/prometheus.js';

/** Upper bounds in seconds: a local term takes milliseconds, a judge up to minutes. */
const bounds = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300] as const;

/** What is so at the moment at which it is asked. */
export interface CurrentLoad {
  /** Replies so far by path and status. */
  readonly replies: readonly Sample[];
  readonly requestsUnderWay: number;
  readonly heldBytes: number;
}

export class ServerMetrics {
  readonly #items = new Counts();
  readonly #terms = new Counts();
  readonly #seconds = new Histogram(bounds);

  countItem({ outcome, terms }: CombinedOutcome, seconds: number): void {
    this.#items.add({ kind: outcome.kind });
    for (const { name, outcome: of } of terms) {
      this.#terms.add({ term: name, kind: of.kind, reason: of.kind === 'scored' ? '' : of.reason });
    }
    this.#seconds.observe(seconds);
  }

  /** In Prometheus' text format. */
  toText({ replies, requestsUnderWay, heldBytes }: CurrentLoad): string {
    const { user, system } = process.cpuUsage();
    const gauge = (name: string, help: string, value: number) => family(name, 'gauge', help, [{ value }]);
    const lines = [
      family('editrl_reward_requests_total', 'counter', 'Requests by path and HTTP status.', replies),
      family('editrl_reward_items_total', 'counter', 'Items by outcome.', this.#items.samples()),
      family('editrl_reward_term_outcomes_total', 'counter', 'Outcomes of each term.', this.#terms.samples()),
      head('editrl_reward_item_seconds', 'histogram', 'Seconds that one item took.'),
      this.#seconds.lines('editrl_reward_item_seconds', {}),
      gauge('editrl_reward_requests_under_way', 'Requests to /score under way.', requestsUnderWay),
      gauge('editrl_reward_held_bytes', 'Bytes of the bodies that are held.', heldBytes),
      gauge('process_resident_memory_bytes', 'Resident memory.', process.memoryUsage.rss()),
      family('process_cpu_seconds_total', 'counter', 'Processor time, user and system.', [
        { value: (user + system) / 1e6 },
      ]),
    ];
    return `${lines.flat().join('\n')}\n`;
  }
}
