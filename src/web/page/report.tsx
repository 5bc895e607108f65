/** A report page of a run, of an experiment or of runs side by side, with its data inlined. */
import { render, type JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import type { WireBlock, WireContent, WireCurves, WireReport, WireText } from '../wire.js';
import { Chart, colourOf } from './chart.js';
import { CurvesView, Legend, linesOf, rangeOf, withRange } from './curves_view.js';
import { visible } from './format.js';
import { inlinedSource } from './inlined_source.js';
import { Facts, Picture, Progress, State, Table } from './parts.js';
import { usePlace, type Place } from './router.js';
import { SourceContext, useData } from './data.js';

const LEADING_HEIGHT = 300;

function Report({ report }: { readonly report: WireReport }): JSX.Element {
  const place = usePlace();
  const { heading, about, run, facts, notice, sections } = report;
  return (
    <main class="report">
      <div class="row">
        <h1>{visible(heading)}</h1>
        {run !== null && <State state={run.state} />}
        {run !== null && <Progress done={run.iteration} of={run.num_iterations} state={run.state} />}
      </div>
      <p class="quiet">
        <Content content={about} />
      </p>
      <Facts facts={facts.map(({ name, value, more }) => ({ name, value: <Text text={value} />, more }))} />
      {notice !== null && (
        <div class="mind">
          <strong>{visible(notice.title)}</strong>
          <ul>
            {notice.texts.map((text) => (
              <li key={text}>{visible(text)}</li>
            ))}
          </ul>
        </div>
      )}
      <Leading report={report} place={place} />
      {sections.map(({ title, blocks }) => (
        <section key={title}>
          <h2>{visible(title)}</h2>
          {blocks.map((block, at) => (
            <Block key={at} block={block} report={report} place={place} />
          ))}
        </section>
      ))}
    </main>
  );
}

interface Shown {
  readonly report: WireReport;
  readonly place: Place;
}

/** The chart of held-out numbers, as wide as the page. */
function Leading({ report: { curves, leading }, place }: Shown): JSX.Element | null {
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
        unit={curves.groups === undefined ? '' : leading}
        lines={lines}
        range={range}
        onRange={withRange(place)}
        named={curves.groups === undefined}
        height={LEADING_HEIGHT}
      />
    </>
  );
}

type Kind = WireBlock['kind'];
type Blocks = { readonly [K in Kind]: (block: Extract<WireBlock, { kind: K }>, shown: Shown) => JSX.Element };

const BLOCKS: Blocks = {
  heading: ({ text }) => <h3>{visible(text)}</h3>,
  text: ({ text }) => (
    <p>
      <Content content={text} />
    </p>
  ),
  table: ({ label, folded, titles, rows, numbers_from: numbersFrom, long }) => {
    const cells = rows.map((row) => row.map((cell, at) => <Content key={at} content={cell} apart />));
    const table = (
      <Table
        label={label}
        titles={titles}
        rows={cells}
        {...(numbersFrom === undefined ? {} : { numbersFrom })}
        long={long === true}
      />
    );
    if (!folded) return table;
    return (
      <details>
        <summary>{visible(label)}</summary>
        {table}
      </details>
    );
  },
  curves: (_, { report, place }) => (
    <CurvesView place={place} id="" without={report.curves.groups === undefined ? null : report.leading} />
  ),
  times: ({ shares, rows }) => <Times shares={shares} rows={rows} />,
  pictures: ({ title, pictures }) => (
    <div class="sheets">
      {pictures.map(({ label, at }) =>
        at === null ? (
          <p key={label} class="error">
            {visible(label)}
          </p>
        ) : (
          <Picture key={label} path={String(at)} label={label} alt={`${title}, ${label}`} />
        ),
      )}
    </div>
  ),
};

function Block({ block, ...shown }: { readonly block: WireBlock } & Shown): JSX.Element {
  const draw = BLOCKS[block.kind] as (block: WireBlock, shown: Shown) => JSX.Element;
  return draw(block, shown);
}

/** Bars with lengths proportional to the iterations' times. */
function Times({ shares, rows }: Omit<Extract<WireBlock, { kind: 'times' }>, 'kind'>): JSX.Element {
  const longest = Math.max(...rows.map(({ total }) => total));
  return (
    <>
      <p class="legend">
        {shares.map((share, at) => (
          <span key={share}>
            <i style={{ background: colourOf(at) }} aria-hidden="true" /> {visible(share)}
          </span>
        ))}
      </p>
      <Table
        label="Time"
        titles={['', 'an iteration', '', 'seconds']}
        rows={rows.map(({ label, total, seconds }) => [
          visible(label),
          `${total.toFixed(2)} s`,
          <div class="bar" aria-hidden="true">
            {seconds.map((value, at) => (
              <i
                key={at}
                title={`${shares[at]} ${value.toFixed(2)} s`}
                style={{ background: colourOf(at), width: `${((100 * value) / longest).toFixed(2)}%` }}
              />
            ))}
          </div>,
          seconds.map((value, at) => `${shares[at]} ${value.toFixed(2)}`).join(', '),
        ])}
        long
      />
    </>
  );
}

/** Texts on one line, or below each other if `apart`. */
function Content({ content, apart = false }: { readonly content: WireContent; readonly apart?: boolean }): JSX.Element {
  const texts: readonly WireText[] = Array.isArray(content) ? (content as readonly WireText[]) : [content as WireText];
  return (
    <>
      {texts.map((text, at) =>
        apart && texts.length > 1 ? (
          <div key={at}>
            <Text text={text} />
          </div>
        ) : (
          <span key={at}>
            {at > 0 && ' '}
            <Text text={text} />
          </span>
        ),
      )}
    </>
  );
}

const CLASSES = { code: 'mono', bad: 'bad', quiet: 'quiet' } as const;

/** A text up to this length stays on one line of its cell. */
const BRIEF = 28;

function Text({ text }: { readonly text: WireText }): JSX.Element {
  const [words, kind] = typeof text === 'string' ? [text, ''] : [text.text, CLASSES[text.as]];
  return <span class={`said ${kind} ${words.length <= BRIEF ? 'brief' : ''}`}>{visible(words)}</span>;
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
