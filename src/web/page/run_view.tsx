/** One run: its state and actions, and tabs for its curves, episodes, log and settings. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { WireAlarm, WireChanges, WireRunPage } from '../wire.js';
import { Actions, ReportButton, type ActionTexts } from './actions_row.js';
import { ChangesView } from './changes_view.js';
import { CurvesView } from './curves_view.js';
import { parseMetric } from '../../run/metric_names.js';
import { useData, useNow } from './hooks.js';
import { EpisodesView } from './episodes_view.js';
import {
  isStoppedEarly,
  nameOfId,
  rewardScale,
  showAgo,
  showDuration,
  showMean,
  showNumber,
  showValue,
  visible,
} from './format.js';
import { LogView } from './log_view.js';
import { Breakable, Facts, ImageFigure, Progress, State, Status, Table, Tabs } from './parts.js';
import { hashOf, type Place } from './router.js';
import { address } from './source.js';

const ACTION_TEXTS: ActionTexts = {
  stop: { title: 'stop', why: 'The run saves a checkpoint after this iteration and stops.' },
  stop_now: {
    title: 'kill',
    why: 'The run stops immediately and loses everything since its last checkpoint.',
    danger: true,
  },
  resume: { title: 'resume', primary: true, why: 'The run continues from its last complete checkpoint.' },
  start_again: {
    title: 'restart',
    why: 'The run starts from the beginning with its recorded settings. The existing run is kept under another name.',
    danger: true,
  },
};

interface TabProps {
  readonly place: Place;
  readonly page: WireRunPage;
}

const TABS: Readonly<Record<string, (props: TabProps) => JSX.Element>> = {
  curves: ({ place, page }) => (
    <>
      <Answers page={page} />
      <CurvesView place={place} of={{ run: page.run.id }} scale={rewardScale([page.run])} />
    </>
  ),
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
        <h1>
          <Breakable text={nameOfId(id)} />
        </h1>
        {data !== null && <State state={data.run.state} />}
        {data !== null && <Progress done={data.run.iteration} of={data.run.num_iterations} state={data.run.state} />}
        {data !== null && <ReportButton key={id} run={[id]} file={`${nameOfId(id)}.report.html`} />}
        {data !== null && (
          <Actions actions={data.actions} words={ACTION_TEXTS} name={data.run.name} target={{ run: data.run.id }} />
        )}
      </div>
      <Status error={error} loading={loading && data === null} what="Reading the run" />
      {data !== null && (
        <>
          <Alarms page={data} />
          <RunFacts page={data} />
          <Tabs
            label="Run views"
            chosen={tab}
            tabs={Object.keys(TABS).map((name) => ({ name, title: name, href: hashOf('run', id, { tab: name }) }))}
          />
          {Tab !== undefined && <Tab place={place} page={data} key={tab} />}
        </>
      )}
    </main>
  );
}

/** The active alarms, and a line about past ones. */
function Alarms({ page: { alarms, run } }: { readonly page: WireRunPage }): JSX.Element | null {
  const active = alarms.filter((alarm) => alarm.active);
  const over = alarms.filter((alarm) => !alarm.active);
  const metrics = [...new Set(alarms.map(({ metric }) => metric))];
  if (alarms.length === 0) return null;
  return (
    <section class={active.length > 0 ? 'alarms' : 'alarms alarms-over'} aria-label="Hack alarms">
      {active.length > 0 && (
        <>
          <strong>Possible reward hacking. Check the answers.</strong>
          <ul>
            {active.map((alarm) => (
              <li key={alarm.name}>{visible(inWords(alarm))}</li>
            ))}
          </ul>
        </>
      )}
      {over.length > 0 && (
        <p class="small">
          No longer active: {visible(over.map(({ name, span }) => `${name} (${spanInWords(span)})`).join(', '))}
        </p>
      )}
      <p class="small">
        <a href={hashOf('run', run.id, { tab: 'episodes' })}>answers</a>
        {metrics.length === 1 && (
          <>
            {' · '}
            <a href={hashOf('run', run.id, { tab: 'curves', metric: metrics[0] ?? '' })}>its curve</a>
          </>
        )}
      </p>
    </section>
  );
}

function inWords({ name, metric, value, span, limits }: WireAlarm): string {
  const since = ` since iteration ${span[0]}`;
  const first = value === null ? '' : `; ${metric} was ${showNumber(value)}`;
  return `${name}${since}${first}${limits === null ? '' : `; track.alarms.limits.${name}: ${limits}`}`;
}

function spanInWords(span: WireAlarm['span']): string {
  return span[0] === span[1] ? `iteration ${span[0]}` : `iterations ${span[0]} to ${span[1]}`;
}

/** The only part of the page that changes with time alone. */
function RunFacts({ page }: { readonly page: WireRunPage }): JSX.Element {
  const now = useNow();
  const { run, dir, task, parents, seconds_left: secondsLeft } = page;
  const { held_out: heldOut } = run;
  const facts: readonly (readonly [string, JSX.Element | string | null])[] = [
    ['task', task],
    ['reward', run.reward === null ? null : showNumber(run.reward)],
    [
      heldOut?.scale === undefined || heldOut.scale === null ? 'held-out' : `held-out ${heldOut.scale}`,
      heldOut === null ? null : showMean(heldOut.after, heldOut.stderr),
    ],
    ['time left', secondsLeft === null ? null : `about ${showDuration(secondsLeft)}`],
    ['last heartbeat', run.heartbeat === null ? null : showAgo(run.heartbeat, now)],
    ['running on', run.where],
    ['initialized from', parents.length === 0 ? null : <Parents parents={parents} />],
    ['folder', monospace(dir)],
  ];
  return (
    <>
      {run.reason !== null && (
        <p class={`reason state-${run.state}`}>
          {isStoppedEarly(run) && 'stopped early: '}
          {visible(run.reason)}
        </p>
      )}
      <Facts
        facts={facts.flatMap(([name, value]) =>
          value === null ? [] : [{ name, value: typeof value === 'string' ? visible(value) : value }],
        )}
      />
    </>
  );
}

function Parents({ parents }: Pick<WireRunPage, 'parents'>): JSX.Element {
  return (
    <>
      {parents.map(({ name, id }, at) => (
        <span key={name}>
          {at > 0 && ', '}
          {id === null ? `${visible(name)} (not in this folder)` : <a href={hashOf('run', id)}>{name}</a>}
        </span>
      ))}
    </>
  );
}

/** Example outputs of the policy: changed held-out answers, or the contact sheet of the latest evaluation. */
function Answers({ page }: { readonly page: WireRunPage }): JSX.Element {
  const { id } = page.run;
  const { data, loading } = useData<WireChanges | null>('/api/changes', { run: id }, [id]);
  const hasExamples = data !== null && data.examples.length > 0;
  return (
    <>
      {data !== null && (
        <ChangesView
          changes={data}
          scale={rewardScale([page.run])}
          address={(at) => address(`/api/image/${at}`, { run: id })}
        />
      )}
      {!hasExamples && !loading && page.has_contact_sheet && <Sheet page={page} />}
    </>
  );
}

function Sheet({ page }: { readonly page: WireRunPage }): JSX.Element {
  const { id, name, held_out: heldOut } = page.run;
  const manner = parseMetric(heldOut?.metric ?? '')?.manner;
  const label = [
    name,
    ...(heldOut === null ? [] : [`iteration ${heldOut.iteration}`]),
    ...(manner === undefined ? [] : [manner]),
  ];
  return (
    <details class="card sheet" open>
      <summary>Held-out answers from the latest evaluation</summary>
      <ImageFigure path={address('/api/image/contact_sheet', { run: id })} label={label.join(', ')} />
    </details>
  );
}

function monospace(text: string): JSX.Element {
  return (
    <span class="mono">
      <Breakable text={text} />
    </span>
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
            placeholder="part of a key"
            autocomplete="off"
            onInput={(event) => setSearch(event.currentTarget.value)}
          />
        </label>
      </div>
      <Table
        label="Settings"
        titles={['key', 'value']}
        rows={shown.map(([key, value]) => [monospace(key), monospace(value === null ? 'null' : showValue(value))])}
      />
      <h2>Attempts</h2>
      <Table
        label="Attempts"
        titles={['attempt', 'started', 'from iteration', 'where', 'version', 'command']}
        rows={page.attempts.map((one) => [
          one.attempt,
          visible(one.started_at),
          one.from_iteration,
          visible([one.host, ...one.devices].join(', ')),
          visible(one.version ?? '–'),
          monospace(one.command),
        ])}
        long
      />
      <p>Checkpoints: {page.checkpoints.length === 0 ? 'none' : page.checkpoints.join(', ')}</p>
      {page.best_checkpoint === null ? null : <p>Best checkpoint: {visible(page.best_checkpoint)}</p>}
    </>
  );
}
