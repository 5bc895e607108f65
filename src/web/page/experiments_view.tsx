/** The experiments of all folders. */
import type { JSX } from 'preact';
import type { WireExperiment, WireState } from '../wire.js';
import { useData } from './data.js';
import { visible } from './format.js';
import { State, Status, Table } from './parts.js';
import { hashOf } from './router.js';

export function ExperimentsView(): JSX.Element {
  const { data, error, loading } = useData<readonly WireExperiment[]>('/api/experiments', {}, null);
  return (
    <main>
      <h1>Experiments</h1>
      <Status error={error} loading={loading && data === null} what="Reading experiments" />
      {data?.length === 0 && (
        <p>There are none here: editrl sweep EXPERIMENT makes one, of runs that are named NAME__axis-value.</p>
      )}
      {data !== null && data.length > 0 && (
        <Table
          label="Experiments"
          titles={['experiment', 'runs', 'states', 'axes']}
          rows={data.map(({ id, name, runs, states, axes, swept }) => [
            <>
              <a href={hashOf('experiment', id)}>{visible(name)}</a>
              {swept && <span class="quiet"> being swept</span>}
            </>,
            runs,
            <span class="chips">
              {(Object.entries(states) as [WireState, number][]).map(([state, count]) => (
                <span key={state}>
                  {count} <State state={state} />
                </span>
              ))}
            </span>,
            visible(axes.join(', ')),
          ])}
        />
      )}
    </main>
  );
}
