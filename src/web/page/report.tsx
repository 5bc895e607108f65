/** The report page of a run, an experiment or a comparison, with its data inlined. */
import { render, type JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import type { WireCurves, WireReport } from '../wire.js';
import { Content, Notice, Sections, Text } from './blocks.js';
import { ChangesView } from './changes_view.js';
import { Chart } from './chart.js';
import { CurvesView, Legend, linesOf, rangeOf, withRange, withScale } from './curves_view.js';
import { isStoppedEarly } from './format.js';
import { inlinedSource } from './source.js';
import { Breakable, Facts, Progress, State } from './parts.js';
import { usePlace, type Place } from './router.js';
import { SourceContext, useData } from './hooks.js';

const LEADING_HEIGHT = 300;

function Report({ report }: { readonly report: WireReport }): JSX.Element {
  const place = usePlace();
  const { heading, about, run, facts, notice, sections, changes } = report;
  return (
    <main class="report">
      <div class="row">
        <h1>
          <Breakable text={heading} />
        </h1>
        {run !== null && <State state={run.state} />}
        {run !== null && <Progress done={run.iteration} of={run.num_iterations} state={run.state} />}
        {run !== null && isStoppedEarly(run) && <span class="quiet">stopped early</span>}
      </div>
      <p class="quiet">
        <Content content={about} />
      </p>
      <Facts facts={facts.map(({ name, value, more }) => ({ name, value: <Text text={value} />, more }))} />
      <Notice notice={notice} />
      {changes !== null && <ChangesView changes={changes} scale={report.scale} address={(at) => at} />}
      <Leading report={report} place={place} />
      <Sections
        sections={sections}
        curves={() => (
          <CurvesView
            place={place}
            without={report.curves.groups === undefined ? null : report.leading}
            scale={report.leading === 'validation/loss' ? null : report.scale}
          />
        )}
      />
    </main>
  );
}

interface Shown {
  readonly report: WireReport;
  readonly place: Place;
}

/** The held-out chart, at full page width. */
function Leading({ report: { curves, leading, scale }, place }: Shown): JSX.Element | null {
  const range = rangeOf(place.query);
  const query = { metric: leading ?? '', ...(range === null ? {} : { from: range[0], to: range[1] }) };
  const { data } = useData<WireCurves>(leading === null ? null : '/api/curves', query);
  const lines = useMemo(() => linesOf(data?.curves ?? [], curves.groups), [data]);
  if (leading === null || lines.every(({ curve }) => curve.mean.length === 0)) return null;
  const title = leading === 'validation/loss' ? 'Held-out loss' : 'Held-out reward';
  return (
    <>
      <Legend curves={curves} />
      <Chart
        title={title}
        unit={withScale(curves.groups === undefined ? '' : leading, lines, scale)}
        lines={lines}
        range={range}
        onRange={withRange(place)}
        named={curves.groups === undefined}
        height={LEADING_HEIGHT}
      />
    </>
  );
}

const data = document.getElementById('report')?.textContent;
const holder = document.getElementById('page');
if (holder !== null && data !== null && data !== undefined) {
  const report = JSON.parse(data) as WireReport;
  render(
    <SourceContext.Provider value={inlinedSource(report)}>
      <Report report={report} />
    </SourceContext.Provider>,
    holder,
  );
}
