/** The list of runs, with a filter, sorting, and columns for chosen settings. */
import type { JSX } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { WireKey, WireRun, WireRuns, WireState } from '../wire.js';
import { useData, useKeys, useNow, useTyped } from './hooks.js';
import { isStoppedEarly, showAgo, showChange, showMean, showNumber, showValue, visible } from './format.js';
import { AlarmBadge, Breakable, Progress, State, Status } from './parts.js';
import { Picked } from './actions_row.js';
import { changed, go, hashOf, type Place } from './router.js';

const PAGE = 100;

interface Column {
  readonly key: string;
  readonly title: string;
  readonly numeric?: true;
  readonly cell: (run: WireRun, now: number) => JSX.Element | string;
}

const COLUMNS: readonly Column[] = [
  {
    key: 'name',
    title: 'run',
    cell: ({ id, name }) => (
      <a href={hashOf('run', id)}>
        <Breakable text={name} />
      </a>
    ),
  },
  {
    key: 'state',
    title: 'state',
    cell: ({ state, reason, alarms }) => (
      <span class="states">
        <span title={reason === null ? undefined : visible(reason)}>
          <State state={state} />
        </span>
        <AlarmBadge alarms={alarms} />
      </span>
    ),
  },
  {
    key: 'progress',
    title: 'iterations',
    cell: (run) => (
      <>
        <Progress done={run.iteration} of={run.num_iterations} state={run.state} />
        {isStoppedEarly(run) && (
          <span class="number-name" title={run.reason === null ? undefined : visible(run.reason)}>
            stopped early
          </span>
        )}
      </>
    ),
  },
  { key: 'reward', title: 'reward', numeric: true, cell: ({ reward }) => showNumber(reward) },
  {
    key: 'held_out',
    title: 'held-out',
    numeric: true,
    cell: ({ held_out }) => (
      <span
        title={
          held_out === null ? undefined : `${held_out.scale ?? held_out.metric}, at iteration ${held_out.iteration}`
        }
      >
        {showMean(held_out?.after, held_out?.stderr)}
        {held_out === null || held_out.label === null ? null : (
          <span class="number-name">
            {held_out.before !== null &&
              held_out.after !== null &&
              `${showChange(Number((held_out.after - held_out.before).toPrecision(3)))} `}
            {visible(held_out.label)}
            {held_out.scale?.includes('lower is better') === true && ', lower is better'}
          </span>
        )}
      </span>
    ),
  },
  { key: 'heartbeat', title: 'last heartbeat', numeric: true, cell: ({ heartbeat }, now) => showAgo(heartbeat, now) },
];

export function RunsView({ place }: { readonly place: Place }): JSX.Element {
  const { query } = place;
  const filter = query.get('filter') ?? '';
  const sort = query.get('sort') ?? 'heartbeat';
  const descending = query.get('descending') !== 'false';
  const offset = Number(query.get('offset') ?? 0);
  const shown = query.getAll('column');
  const { data, error, loading } = useData<WireRuns>(
    '/api/runs',
    { filter, sort, descending: String(descending), offset, limit: PAGE, column: shown },
    null,
  );
  const picked = query.getAll('pick');
  const pick = (id: string, on: boolean): void =>
    go(changed(place, { pick: [...picked.filter((one) => one !== id), ...(on ? [id] : [])] }), 'replace');
  const [chosen, setChosen] = useState(-1);
  const now = useNow();
  const body = useRef<HTMLTableSectionElement>(null);
  const runs = data?.runs ?? [];
  const page = (to: number): void => go(changed(place, { offset: to === 0 ? null : to }));

  useLayoutEffect(() => setChosen(-1), [filter, sort, descending, offset]);
  const choose = (at: number): void => {
    const next = Math.min(Math.max(0, at), runs.length - 1);
    setChosen(next);
    body.current?.rows[next]?.querySelector('a')?.focus();
  };
  useKeys({
    j: () => choose(chosen + 1),
    k: () => choose(chosen - 1),
    '/': () => document.getElementById('filter')?.focus(),
    ']': () => {
      if (data !== null && offset + PAGE < data.matching) page(offset + PAGE);
    },
    '[': () => page(Math.max(0, offset - PAGE)),
  });

  return (
    <main>
      <h1 class="hidden">Runs</h1>
      <Filter place={place} filter={filter} shown={shown} />
      {data !== null && <Summary data={data} place={place} filter={filter} />}
      <Picked place={place} runs={picked} />
      <Status error={error} loading={loading && data === null} what="Reading runs" />
      {data !== null && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Runs">
          <table class="runs" aria-busy={loading}>
            <thead>
              <tr>
                {COLUMNS.map((column) => (
                  <Head key={column.key} place={place} column={column} sort={sort} descending={descending} />
                ))}
                {shown.map((key) => (
                  <Head
                    key={key}
                    place={place}
                    column={{ key, title: key }}
                    sort={sort}
                    descending={descending}
                    onRemove={() => go(changed(place, { column: shown.filter((one) => one !== key) }))}
                  />
                ))}
              </tr>
            </thead>
            <tbody ref={body}>
              {runs.map((run, at) => (
                <tr key={run.id} class={at === chosen ? 'chosen' : undefined}>
                  {COLUMNS.map(({ key, title, numeric, cell }) => (
                    <td key={key} data-title={title} class={numeric === true ? 'number' : undefined}>
                      {key === 'name' ? (
                        <span class="pickable">
                          <input
                            type="checkbox"
                            class="pick"
                            aria-label={`compare ${run.name}`}
                            checked={picked.includes(run.id)}
                            onChange={(event) => pick(run.id, event.currentTarget.checked)}
                          />
                          <span>{cell(run, now)}</span>
                        </span>
                      ) : (
                        cell(run, now)
                      )}
                    </td>
                  ))}
                  {run.values.map((value, column) => (
                    <td
                      key={shown[column]}
                      data-title={shown[column]}
                      class={typeof value === 'number' ? 'number' : undefined}
                    >
                      {showValue(value)}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {data !== null && <Pages data={data} onPage={page} />}
    </main>
  );
}

function Head({
  place,
  column: { key, title, numeric },
  sort,
  descending,
  onRemove,
}: {
  readonly place: Place;
  readonly column: Pick<Column, 'key' | 'title' | 'numeric'>;
  readonly sort: string;
  readonly descending: boolean;
  readonly onRemove?: () => void;
}): JSX.Element {
  const sorted = sort === key;
  // Sorts numbers in descending order and names in ascending order by default.
  const other = sorted ? !descending : key !== 'name' && key !== 'state';
  return (
    <th
      scope="col"
      class={numeric === true ? 'number' : undefined}
      aria-sort={sorted ? (descending ? 'descending' : 'ascending') : undefined}
    >
      <button
        type="button"
        class="sort"
        onClick={() => go(changed(place, { sort: key, descending: String(other), offset: null }))}
      >
        {title}
        <span aria-hidden="true" class="arrow">
          {sorted ? (descending ? '▼' : '▲') : ''}
        </span>
      </button>
      {onRemove !== undefined && (
        <button type="button" class="remove" aria-label={`remove the column ${title}`} onClick={onRemove}>
          ×
        </button>
      )}
    </th>
  );
}

/** The filter text, and the settings shown as columns. */
function Filter({
  place,
  filter,
  shown,
}: {
  readonly place: Place;
  readonly filter: string;
  readonly shown: readonly string[];
}): JSX.Element {
  const [text, setText] = useTyped(filter, (written) =>
    go(changed(place, { filter: written === '' ? null : written, offset: null }), 'replace'),
  );
  const [adding, setAdding] = useState('');
  const keys = useData<readonly WireKey[]>('/api/keys');
  const add = (key: string): void => {
    setAdding('');
    if (keys.data?.some((known) => known.key === key) === true && !shown.includes(key)) {
      go(changed(place, { column: [...shown, key] }));
    }
  };
  return (
    <form class="filter" role="search" onSubmit={(event) => event.preventDefault()}>
      <label class="grow">
        <span class="label">filter</span>
        <input
          id="filter"
          type="search"
          value={text}
          placeholder="part of a name, or state=running  alarm!=none  kl_coeff<=3e-4  model~emu"
          autocomplete="off"
          spellcheck={false}
          onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === 'Escape') event.currentTarget.blur();
          }}
        />
      </label>
      <label>
        <span class="label">add a column</span>
        <input
          type="text"
          list="keys"
          value={adding}
          placeholder="a setting"
          autocomplete="off"
          spellcheck={false}
          onInput={(event) => {
            const { value } = event.currentTarget;
            setAdding(value);
            // Typed text may be incomplete. An entry chosen from the list is complete.
            if (isReplacement(event)) add(value);
          }}
          onChange={(event) => add(event.currentTarget.value)}
        />
        <datalist id="keys">
          {(keys.data ?? []).map(({ key, values }) => (
            <option key={key} value={key}>
              {values > 1 ? `${values} values` : ''}
            </option>
          ))}
        </datalist>
      </label>
    </form>
  );
}

/** Some browsers report a choice without any input type. */
function isReplacement({ inputType }: Partial<InputEvent>): boolean {
  return inputType === undefined || inputType === 'insertReplacementText';
}

/** Number of runs in each state. Clicking a state filters by it. */
function Summary({
  data,
  place,
  filter,
}: {
  readonly data: WireRuns;
  readonly place: Place;
  readonly filter: string;
}): JSX.Element {
  const entries = Object.entries(data.states) as [WireState, number][];
  const all = data.matching === data.total ? `${data.total}` : `${data.matching} of ${data.total}`;
  return (
    <div class="summary">
      <p>
        {all} {data.total === 1 ? 'run' : 'runs'} in {data.folders.map(visible).join(' and ')}
        {data.unread > 0 && `, ${data.unread} not read yet`}
      </p>
      <p class="chips">
        {entries.map(([state, count]) => (
          <button
            key={state}
            type="button"
            class="chip"
            aria-label={`show only the ${count} ${state} runs`}
            onClick={() => go(changed(place, { filter: withState(filter, state), offset: null }))}
          >
            {count} <State state={state} />
          </button>
        ))}
      </p>
      {data.problems.map((problem) => (
        <p key={problem} class="error" role="alert">
          {visible(problem)}
        </p>
      ))}
      {data.total === 0 && data.unread === 0 && (
        <p>There are no runs there yet. editrl run CONFIG makes one; it shows here by itself.</p>
      )}
    </div>
  );
}

function withState(filter: string, state: WireState): string {
  const rest = filter.replace(/(^|\s)state=\S*/g, '').trim();
  return filter.includes(`state=${state}`) ? rest : `${rest} state=${state}`.trim();
}

function Pages({
  data,
  onPage,
}: {
  readonly data: WireRuns;
  readonly onPage: (offset: number) => void;
}): JSX.Element | null {
  const { offset, matching, runs } = data;
  if (matching <= PAGE && offset === 0) return null;
  return (
    <nav class="pages" aria-label="Pages">
      <button type="button" disabled={offset === 0} onClick={() => onPage(Math.max(0, offset - PAGE))}>
        previous
      </button>
      <span>
        {matching === 0 ? 0 : offset + 1} to {offset + runs.length} of {matching}
      </span>
      <button type="button" disabled={offset + runs.length >= matching} onClick={() => onPage(offset + PAGE)}>
        next
      </button>
    </nav>
  );
}
