/** The experiments of the folders. */
import type { JSX } from 'preact';
import type { WireExperiment, WireState } from '../wire.js';
import { useData } from './data.js';
import { visible } from './format.js';
import { State, Status } from './parts.js';
import { hashOf, type Place } from './router.js';

export function ExperimentsView(_: { readonly place: Place }): JSX.Element {
  const { data, error, loading } = useData<readonly WireExperiment[]>('/api/experiments', {}, null);
  return (
    <main>
      <h1>Experiments</h1>
      <Status error={error} loading={loading && data === null} what="Reading experiments" />
      {data?.length === 0 && (
        <p>There are none here: editrl sweep EXPERIMENT makes one, of runs that are named NAME__axis-value.</p>
      )}
      {data !== null && data.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Experiments">
          <table>
            <thead>
              <tr>
                <th scope="col">experiment</th>
                <th scope="col" class="number">
                  runs
                </th>
                <th scope="col">states</th>
                <th scope="col">axes</th>
              </tr>
            </thead>
            <tbody>
              {data.map(({ id, name, runs, states, axes, swept }) => (
                <tr key={id}>
                  <td>
                    <a href={hashOf('experiment', id)}>{visible(name)}</a>
                    {swept && <span class="quiet"> being swept</span>}
                  </td>
                  <td class="number">{runs}</td>
                  <td>
                    <span class="chips">
                      {(Object.entries(states) as [WireState, number][]).map(([state, count]) => (
                        <span key={state}>
                          {count} <State state={state} />
                        </span>
                      ))}
                    </span>
                  </td>
                  <td>{visible(axes.join(', '))}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </main>
  );
}
