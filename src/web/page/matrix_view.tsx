/** An experiment as a grid of its cells, colored by their results. */
import type { JSX } from 'preact';
import type { WireCell, WireExperiment, WireMatrix, WireState } from '../wire.js';
import { Actions, Picked, type ActionTexts } from './actions_row.js';
import { CurvesView } from './curves_view.js';
import { showMean, showNumber, visible } from './format.js';
import { useData } from './hooks.js';
import { gridOf, legendOf, nameOf, runsOf, standingsOf, valueOf, type Shown, type Standing } from './matrix.js';
import { Breakable, State, Status, Table } from './parts.js';
import { changed, go, hashOf, type Place } from './router.js';

const SHOWN: Readonly<Record<Shown, string>> = {
  result: 'results of finished runs',
  so_far: 'latest held-out reward',
};

/** Values up to this length stay on one line. */
const BRIEF = 12;

const ACTION_TEXTS: ActionTexts = {
  stop: {
    title: 'stop',
    why: 'The runs save a checkpoint after their current iteration and stop. No other run starts. Repeat the sweep command to continue.',
  },
  stop_now: {
    title: 'kill',
    why: 'The runs stop immediately and lose everything since their last checkpoints.',
    danger: true,
  },
};

export function MatrixView({ place }: { readonly place: Place }): JSX.Element {
  const { id, query } = place;
  const { data, error, loading } = useData<WireMatrix>('/api/experiment', { id }, null);
  const finished = data?.cells.some(({ mean }) => mean !== null) === true;
  const asked = query.get('show');
  const shown: Shown = asked === 'so_far' || asked === 'result' ? asked : finished ? 'result' : 'so_far';
  return (
    <main>
      <p>
        <a href={hashOf('experiments')}>‹ experiments</a>
      </p>
      <Status error={error} loading={loading && data === null} what="Reading the experiment" />
      {data !== null && (
        <>
          <h1>
            {visible(data.name)} {data.swept && <span class="quiet">sweep in progress</span>}
          </h1>
          <p class="quiet">{visible(data.caption)}</p>
          <Actions actions={data.actions} words={ACTION_TEXTS} name={data.name} target={{ experiment: data.id }} />
          <div class="filter">
            {data.axes.length > 1 && (
              <label class="short">
                <span class="label">columns</span>
                <select
                  value={gridOf(data, query.get('columns')).column ?? ''}
                  onChange={(event) => go(changed(place, { columns: event.currentTarget.value }), 'replace')}
                >
                  {data.axes.map(({ name }) => (
                    <option key={name} value={name}>
                      {name}
                    </option>
                  ))}
                </select>
              </label>
            )}
            <label class="wide">
              <span class="label">numbers</span>
              <select
                value={shown}
                onChange={(event) => go(changed(place, { show: event.currentTarget.value }), 'replace')}
              >
                {(Object.entries(SHOWN) as [Shown, string][]).map(([name, title]) => (
                  <option key={name} value={name}>
                    {title}
                  </option>
                ))}
              </select>
            </label>
            <a href={hashOf('runs', '', { filter: `${data.name}__` })}>show as a list of runs</a>
          </div>
          {shown === 'result' && <Standings data={data} />}
          <Ticked place={place} data={data} />
          <Matrix data={data} shown={shown} place={place} />
          <h2>Curves</h2>
          <CurvesView place={place} of={{ experiment: id }} />
        </>
      )}
    </main>
  );
}

/** The selected cells, whose names are in the address. The comparison covers all their runs, including newly started ones. */
function Ticked({ place, data }: { readonly place: Place; readonly data: WireMatrix }): JSX.Element {
  const names = place.query.getAll('pick');
  const cells = data.cells.filter((cell) => names.includes(nameOf(cell)));
  return <Picked place={place} runs={cells.flatMap(runsOf)} cells={cells.length} />;
}

/** The legend of the grid's colors. */
function Standings({ data }: { readonly data: WireMatrix }): JSX.Element | null {
  const present = new Set(standingsOf(data).values());
  if (present.size === 0) return null;
  return (
    <p class="legend">
      {legendOf(
        present,
        data.cells.some(({ is_baseline }) => is_baseline),
      ).map(([standing, meaning]) => (
        <span key={standing}>
          <i class={`standing-${standing}`} aria-hidden="true" /> {meaning}
        </span>
      ))}
    </p>
  );
}

function Matrix({
  data,
  shown,
  place,
}: {
  readonly data: WireMatrix;
  readonly shown: Shown;
  readonly place: Place;
}): JSX.Element {
  const grid = gridOf(data, place.query.get('columns'));
  const picked = place.query.getAll('pick');
  const pick = (name: string, on: boolean): void =>
    go(changed(place, { pick: [...picked.filter((one) => one !== name), ...(on ? [name] : [])] }), 'replace');
  const standings = standingsOf(data);
  const others = grid.rows[0]?.axes.map(([axis]) => axis) ?? [];
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Cells">
      <table class="matrix">
        <thead>
          <tr>
            {others.map((axis) => (
              <th key={axis} scope="col">
                <Breakable text={axis} />
              </th>
            ))}
            {grid.values.map((value) => (
              <th key={value} scope="col">
                {grid.column !== null && <span class="quiet">{visible(grid.column)} </span>}
                <Breakable text={value} />
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {grid.rows.map(({ axes, cells }) => (
            <tr key={JSON.stringify(axes)}>
              {axes.map(([axis, value]) => (
                <th key={axis} scope="row" class={value.length <= BRIEF ? 'brief' : undefined}>
                  <Breakable text={value} />
                </th>
              ))}
              {cells.map((cell, at) =>
                cell === null ? (
                  <td key={grid.values[at]} class="quiet">
                    not in the experiment
                  </td>
                ) : (
                  <MatrixCell
                    key={grid.values[at]}
                    cell={cell}
                    shown={shown}
                    standing={shown === 'result' ? (standings.get(cell) ?? null) : null}
                    than={data.cells.some(({ is_baseline }) => is_baseline) ? 'the baseline' : 'the best'}
                    picked={picked.includes(nameOf(cell))}
                    onPick={(on) => pick(nameOf(cell), on)}
                  />
                ),
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function MatrixCell({
  cell,
  shown,
  standing,
  than,
  picked,
  onPick,
}: {
  readonly cell: WireCell;
  readonly shown: Shown;
  /** Null unless the cell shows a result. */
  readonly standing: Standing | null;
  /** The reference of the difference, in words. */
  readonly than: string;
  readonly picked: boolean;
  readonly onPick: (on: boolean) => void;
}): JSX.Element {
  const { axes, is_baseline, std, difference, runs } = cell;
  const inWords = Object.entries(axes)
    .map(([axis, value]) => `${axis} ${value}`)
    .join(', ');
  return (
    <td class="cell">
      <div class={standing === null ? 'value' : `value standing-${standing}`}>
        <span class="pickable">
          {' '}
          {runsOf(cell).length > 0 && (
            <input
              type="checkbox"
              class="pick"
              aria-label={`compare ${visible(inWords)}`}
              checked={picked}
              onChange={(event) => onPick(event.currentTarget.checked)}
            />
          )}
          <strong>{showMean(valueOf(cell, shown), shown === 'result' ? std : null)}</strong>
        </span>
        {is_baseline && <span class="note">baseline</span>}
        {shown === 'result' && difference !== null && (
          <span class="note">
            {difference.mean >= 0 && '+'}
            {showMean(difference.mean, difference.stderr)} against {than}
          </span>
        )}
      </div>
      <ul class="cell-runs">
        {runs.map(({ id, name, seed, state, iteration, num_iterations, held_out }) => (
          <li key={name}>
            {id === null ? (
              <span class="quiet">{seed === null ? '' : `${visible(seed)}: `}not started</span>
            ) : (
              <a href={hashOf('run', id)} title={`${name}: ${state}, ${iteration} of ${num_iterations} iterations`}>
                {seed === null ? 'run' : `seed ${visible(seed)}`}
                {state === 'finished' ? '' : ` ${state} ${iteration}/${num_iterations}`}
                {held_out === null ? '' : ` ${showNumber(held_out)}`}
              </a>
            )}
          </li>
        ))}
      </ul>
    </td>
  );
}

export function ExperimentsView(): JSX.Element {
  const { data, error, loading } = useData<readonly WireExperiment[]>('/api/experiments', {}, null);
  return (
    <main>
      <h1>Experiments</h1>
      <Status error={error} loading={loading && data === null} what="Reading experiments" />
      {data?.length === 0 && <p>No experiments yet. Start one with: editrl sweep EXPERIMENT</p>}
      {data !== null && data.length > 0 && (
        <Table
          label="Experiments"
          titles={['experiment', 'runs', 'states', 'axes']}
          rows={data.map(({ id, name, runs, states, axes, swept }) => [
            <>
              <a href={hashOf('experiment', id)}>{visible(name)}</a>
              {swept && <span class="quiet"> sweep in progress</span>}
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
