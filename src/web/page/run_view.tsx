/** One run: what it is doing, what may be asked of it, and under tabs its curves, episodes, log and settings. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { WireRunPage } from '../wire.js';
import { Actions, type Words } from './actions_row.js';
import { CurvesView } from './curves_view.js';
import { useData, useNow } from './data.js';
import { EpisodesView } from './episodes_view.js';
import { nameOfId, showAgo, showChange, showNumber, showValue, visible } from './format.js';
import { LogView } from './log_view.js';
import { Picture, Progress, State, Status, Tabs } from './parts.js';
import { hashOf, type Place } from './router.js';
import { address } from './session.js';

const WORDS: Words = {
  stop: { title: 'stop', why: 'It saves a checkpoint after this iteration and ends.' },
  stop_now: {
    title: 'kill',
    why: 'It ends at once; what was learned since the last checkpoint is lost.',
    danger: true,
  },
  resume: { title: 'resume', why: 'It goes on from its last whole checkpoint.' },
  start_again: {
    title: 'start again',
    why: 'It begins anew with the settings that it recorded. What is there now is kept beside it, as another run.',
    danger: true,
  },
};

interface TabProps {
  readonly place: Place;
  readonly page: WireRunPage;
}

const TABS: Readonly<Record<string, (props: TabProps) => JSX.Element>> = {
  curves: ({ place, page }) => <CurvesView place={place} id={page.run.id} />,
  episodes: ({ place, page }) => <EpisodesView place={place} id={page.run.id} />,
  log: LogView,
  settings: SettingsTab,
};

export function RunView({ place }: { readonly place: Place }): JSX.Element {
  const { id, query } = place;
  const { data, error, loading } = useData<WireRunPage>('/api/run', { run: id }, [id]);
  const asked = query.get('tab') ?? 'curves';
  const tab = Object.hasOwn(TABS, asked) ? asked : 'curves';
  const Tab = TABS[tab];
  return (
    <main>
      <div class="row">
        <h1>{nameOfId(id)}</h1>
        {data !== null && <State state={data.run.state} />}
        {data !== null && <Progress done={data.run.iteration} of={data.run.num_iterations} state={data.run.state} />}
      </div>
      <Status error={error} loading={loading && data === null} what="Reading the run" />
      {data !== null && (
        <>
          <Facts page={data} />
          <Actions actions={data.actions} words={WORDS} name={data.run.name} target={{ run: data.run.id }} />
          <Tabs
            label="Parts of the run"
            chosen={tab}
            tabs={Object.keys(TABS).map((name) => ({ name, title: name, href: hashOf('run', id, { tab: name }) }))}
          />
          {Tab !== undefined && <Tab place={place} page={data} key={tab} />}
        </>
      )}
    </main>
  );
}

/** The clock ticks here alone: nothing else of the page ages by itself. */
function Facts({ page }: { readonly page: WireRunPage }): JSX.Element {
  const now = useNow();
  const { run, dir, task, parents } = page;
  const { held_out: heldOut } = run;
  const facts: readonly (readonly [string, JSX.Element | string | null])[] = [
    ['task', task],
    ['reward', run.reward === null ? null : showNumber(run.reward)],
    [
      'held-out',
      heldOut === null
        ? null
        : `${showNumber(heldOut.after)}${heldOut.before === null || heldOut.after === null ? '' : ` (${showChange(heldOut.after - heldOut.before)} since the start)`}`,
    ],
    ['heard of', run.heartbeat === null ? null : showAgo(run.heartbeat, now)],
    ['held by', run.where],
    [
      'starts from',
      parents.length === 0 ? null : (
        <>
          {parents.map(({ name, id }, at) => (
            <span key={name}>
              {at > 0 && ', '}
              {id === null ? `${visible(name)} (not here)` : <a href={hashOf('run', id)}>{name}</a>}
            </span>
          ))}
        </>
      ),
    ],
    ['folder', <span class="mono">{visible(dir)}</span>],
  ];
  return (
    <>
      {run.reason !== null && <p class={`reason state-${run.state}`}>{visible(run.reason)}</p>}
      <dl class="facts">
        {facts.map(([name, value]) =>
          value === null ? null : (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{typeof value === 'string' ? visible(value) : value}</dd>
            </div>
          ),
        )}
      </dl>
    </>
  );
}

function SettingsTab({ page }: TabProps): JSX.Element {
  const [search, setSearch] = useState('');
  const wanted = search.toLowerCase();
  const shown = page.settings.filter(([key]) => key.toLowerCase().includes(wanted));
  return (
    <>
      <div class="filter">
        <label class="grow">
          <span class="label">settings</span>
          <input
            id="filter"
            type="search"
            value={search}
            placeholder="a part of a key"
            autocomplete="off"
            onInput={(event) => setSearch(event.currentTarget.value)}
          />
        </label>
      </div>
      <div class="scroll" tabIndex={0} role="region" aria-label="Settings">
        <table>
          <thead>
            <tr>
              <th scope="col">key</th>
              <th scope="col">value</th>
            </tr>
          </thead>
          <tbody>
            {shown.map(([key, value]) => (
              <tr key={key}>
                <td class="mono">{visible(key)}</td>
                <td class="mono">{value === null ? 'null' : showValue(value)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <h2>Attempts</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="Attempts">
        <table>
          <thead>
            <tr>
              {['attempt', 'started', 'from iteration', 'where', 'version', 'command'].map((title) => (
                <th key={title} scope="col">
                  {title}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {page.attempts.map((one) => (
              <tr key={one.attempt}>
                <td>{one.attempt}</td>
                <td>{visible(one.started_at)}</td>
                <td>{one.from_iteration}</td>
                <td>{visible([one.host, ...one.devices].join(', '))}</td>
                <td>{visible(one.version ?? '–')}</td>
                <td class="mono">{visible(one.command)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p>Checkpoints: {page.checkpoints.length === 0 ? 'none' : page.checkpoints.join(', ')}</p>
      {page.has_contact_sheet && (
        <div class="card sheet">
          <h2>Held-out edits at the last evaluation</h2>
          <Picture
            path={address('/api/picture/contact_sheet', { run: page.run.id })}
            label="source, edit and truth of some prompts"
          />
        </div>
      )}
    </>
  );
}
