/** The metrics of the gateway, as Prometheus reads them. */
import type { Dispatcher } from './dispatcher.js';
import { Counts, family, head, Histogram, type Sample } from '../../core/http/prometheus.js';
import type { Upstream, UpstreamState } from './upstream.js';

const latencyBounds = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160];
const states: readonly UpstreamState[] = ['starting', 'ready', 'open'];

export class GatewayMetrics {
  /** By upstream and kind of error. */
  readonly errors = new Counts();
  /** Requests that were repeated at another upstream, by the upstream that failed. */
  readonly failOvers = new Counts();
  /** By direction, as the upstreams count them. */
  readonly tokens = new Counts();
  readonly #latency = new Map<string, Histogram>();
  readonly waited = new Histogram(latencyBounds);

  observeLatency(upstream: string, seconds: number): void {
    const known = this.#latency.get(upstream) ?? new Histogram(latencyBounds);
    this.#latency.set(upstream, known);
    known.observe(seconds);
  }

  /** The whole page. `replies` are those of the server. */
  render(upstreams: readonly Upstream[], dispatcher: Dispatcher, replies: readonly Sample[]): string {
    const each = (value: (upstream: Upstream) => number) =>
      upstreams.map((upstream) => ({ labels: { upstream: upstream.url }, value: value(upstream) }));
    const runs = [...dispatcher.runs()];
    const gauge = 'gauge';
    const counter = 'counter';
    return [
      ...family('editrl_gateway_requests_total', counter, 'Requests by path and HTTP status.', replies),
      ...family('editrl_gateway_errors_total', counter, 'Failed requests to upstreams by kind.', this.errors.samples()),
      ...family(
        'editrl_gateway_failovers_total',
        counter,
        'Requests repeated at another upstream.',
        this.failOvers.samples(),
      ),
      ...family('editrl_gateway_tokens_total', counter, 'Tokens by direction.', this.tokens.samples()),
      ...family(
        'editrl_gateway_upstream_state',
        gauge,
        '1 for the current state of the upstream.',
        upstreams.flatMap(({ url, state }) =>
          states.map((name) => ({ labels: { upstream: url, state: name }, value: state === name ? 1 : 0 })),
        ),
      ),
      ...family(
        'editrl_gateway_in_flight',
        gauge,
        'Requests in flight.',
        each(({ limit }) => limit.inFlight),
      ),
      ...family(
        'editrl_gateway_limit',
        gauge,
        'Current limit of requests in flight.',
        each(({ limit }) => limit.limit),
      ),
      ...family(
        'editrl_gateway_cap',
        gauge,
        'Highest limit of requests in flight.',
        each(({ limit }) => limit.cap),
      ),
      ...family('editrl_gateway_queue', gauge, 'Waiting requests.', [{ value: dispatcher.waiting }]),
      ...family(
        'editrl_gateway_run_in_flight',
        gauge,
        'Requests in flight by run.',
        runs.map(([run, { inFlight }]) => ({ labels: { run }, value: inFlight })),
      ),
      ...head('editrl_gateway_upstream_seconds', 'histogram', 'Duration of requests to upstreams.'),
      ...[...this.#latency].flatMap(([upstream, histogram]) =>
        histogram.lines('editrl_gateway_upstream_seconds', { upstream }),
      ),
      ...head('editrl_gateway_wait_seconds', 'histogram', 'Time that requests waited for their turn.'),
      ...this.waited.lines('editrl_gateway_wait_seconds', {}),
      '',
    ].join('\n');
  }
}
