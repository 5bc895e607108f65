/** Compares runs: their curves in shared charts, different settings, and paired differences. */
import type { JSX } from 'preact';
import type { WireComparison } from '../wire.js';
import { Content, Notice, Sections, Text } from './blocks.js';
import { CurvesView } from './curves_view.js';
import { useData } from './hooks.js';
import { isStoppedEarly, nameOfId, rewardScale } from './format.js';
import { AlarmBadge, Breakable, Facts, ImageFigure, Progress, State, Status } from './parts.js';
import { ReportButton } from './actions_row.js';
import { changed, go, hashOf, type Place } from './router.js';
import { address } from './source.js';

export function CompareView({ place }: { readonly place: Place }): JSX.Element {
  const run = place.query.getAll('run');
  const { data, error, loading } = useData<WireComparison>('/api/compare', { run }, run);
  const without = (id: string): void => go(changed(place, { run: run.filter((one) => one !== id) }), 'replace');
  if (run.length === 0) {
    return (
      <main class="narrow">
        <h1>No runs selected</h1>
        <p>
          Select runs in the <a href={hashOf('runs')}>list</a> to compare them.
        </p>
      </main>
    );
  }
  return (
    <main class="report">
      <div class="row">
        <h1>{run.length === 1 ? 'One run' : `Comparison of ${run.length} runs`}</h1>
        {data !== null && data.runs.length > 1 && (
          <ReportButton run={data.runs.map(({ id }) => id)} file="comparison.html" />
        )}
      </div>
      <Status error={error} loading={loading && data === null} what="Comparing" />
      {data !== null && (
        <>
          <ul class="compared">
            {data.runs.map((one) => {
              const { id, name, state } = one;
              return (
                <li key={id}>
                  <button type="button" aria-label={`remove ${nameOfId(id)}`} onClick={() => without(id)}>
                    ×
                  </button>
                  <span class="row">
                    <a href={hashOf('run', id)}>
                      <Breakable text={name} />
                    </a>
                    <State state={state} />
                    <Progress done={one.iteration} of={one.num_iterations} state={state} />
                    {isStoppedEarly(one) && <span class="quiet small">stopped early</span>}
                    <AlarmBadge alarms={one.alarms} />
                  </span>
                </li>
              );
            })}
          </ul>
          <Facts facts={data.facts.map(({ name, value, more }) => ({ name, value: <Text text={value} />, more }))} />
          <p class="quiet small">
            <Content content={data.about} />
          </p>
          <Notice notice={data.notice} />
        </>
      )}
      {data !== null && <Sections sections={data.above_curves} />}
      <section key="curves">
        <h2>Curves</h2>
        <CurvesView place={place} of={{ run }} scale={rewardScale(data?.runs ?? [])} />
      </section>
      {data !== null && <Sections sections={data.sections} />}
      {data !== null && data.with_contact_sheet.length > 0 && (
        <section>
          <h2>Contact sheets from the latest evaluations</h2>
          <div class="sheets">
            {data.with_contact_sheet.map((id) => (
              <ImageFigure key={id} path={address('/api/image/contact_sheet', { run: id })} label={nameOfId(id)} />
            ))}
          </div>
        </section>
      )}
    </main>
  );
}
