/** What the gateway counts, and how it shows it. */
import type { Dispatcher } from './dispatcher.js';
import { Counts, family, head, Histogram, type Sample } from '../../core/http/prometheus.js';
import type { Upstream, UpstreamState } from './upstream.js';

const latencyBounds = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160];
const states: readonly UpstreamState[] = ['starting', 'ready', 'open'];

export class GatewayMetrics {
  /** By upstream and kind of error. */
  readonly errors = new Counts();
  /** Requests that were made again at another upstream, by the one that failed. */
  readonly failOvers = new Counts();
  /** By direction, as the upstreams counted them. */
  readonly tokens = new Counts();
  readonly #latency = new Map<string, Histogram>();
  readonly waited = new Histogram(latencyBounds);

  observeLatency(upstream: string, seconds: number): void {
    const known = this.#latency.get(upstream) ?? new Histogram(latencyBounds);
    this.#latency.set(upstream, known);
    known.observe(seconds);
  }

  /** The whole page. `replies`: the server's. */
  render(upstreams: readonly Upstream[], dispatcher: Dispatcher, replies: readonly Sample[]): string {
    const each = (value: (upstream: Upstream) => number) =>
      upstreams.map((upstream) => ({ labels: { upstream: upstream.url }, value: value(upstream) }));
    const runs = [...dispatcher.runs()];
    const gauge = 'gauge';
    const counter = 'counter';
    return [
      ...family('editrl_gateway_requests_total', counter, 'Requests by path and HTTP status.', replies),
      ...family('editrl_gateway_errors_total', counter, 'Failed requests to upstreams by kind.', this.errors.samples()),
      ...family('editrl_gateway_failovers_total', counter, 'Requests made again elsewhere.', this.failOvers.samples()),
      ...family('editrl_gateway_tokens_total', counter, 'Tokens by direction.', this.tokens.samples()),
      ...family(
        'editrl_gateway_upstream_state',
        gauge,
        '1 for the state that an upstream is in.',
        upstreams.flatMap(({ url, state }) =>
          states.map((name) => ({ labels: { upstream: url, state: name }, value: state === name ? 1 : 0 })),
        ),
      ),
      ...family(
        'editrl_gateway_in_flight',
        gauge,
        'Requests under way.',
        each(({ limit }) => limit.inFlight),
      ),
      ...family(
        'editrl_gateway_limit',
        gauge,
        'Requests that may be under way now.',
        each(({ limit }) => limit.limit),
      ),
      ...family(
        'editrl_gateway_cap',
        gauge,
        'Requests that may ever be under way.',
        each(({ limit }) => limit.cap),
      ),
      ...family('editrl_gateway_queue', gauge, 'Requests that wait.', [{ value: dispatcher.waiting }]),
      ...family(
        'editrl_gateway_run_in_flight',
        gauge,
        'Requests under way by run.',
        runs.map(([run, { inFlight }]) => ({ labels: { run }, value: inFlight })),
      ),
      ...head('editrl_gateway_upstream_seconds', 'histogram', 'Time that requests to upstreams took.'),
      ...[...this.#latency].flatMap(([upstream, histogram]) =>
        histogram.lines('editrl_gateway_upstream_seconds', { upstream }),
      ),
      ...head('editrl_gateway_wait_seconds', 'histogram', 'Time that requests waited for their turn.'),
      ...this.waited.lines('editrl_gateway_wait_seconds', {}),
      '',
    ].join('\n');
  }
}
