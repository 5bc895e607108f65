/** The blocks that reports and comparisons are made of. */
import type { JSX } from 'preact';
import type { WireBlock, WireContent, WireReport, WireText } from '../wire.js';
import { colorOf } from './chart.js';
import { visible } from './format.js';
import { Breakable, ImageFigure, Table } from './parts.js';

/** Draws the curves, which depend on the page that contains the block. */
type Curves = () => JSX.Element;

type Kind = WireBlock['kind'];
type Blocks = { readonly [K in Kind]: (block: Extract<WireBlock, { kind: K }>, curves: Curves) => JSX.Element };

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
  curves: (_, curves) => curves(),
  times: ({ shares, rows }) => <Times shares={shares} rows={rows} />,
  images: ({ title, images }) => (
    <div class="sheets">
      {images.map(({ label, at }) =>
        at === null ? (
          <p key={label} class="error">
            {visible(label)}
          </p>
        ) : (
          <ImageFigure key={label} path={String(at)} label={label} alt={`${title}, ${label}`} />
        ),
      )}
    </div>
  ),
};

/** Problems or warnings, shown at the top. */
export function Notice({ notice }: Pick<WireReport, 'notice'>): JSX.Element | null {
  if (notice === null) return null;
  return (
    <div class="mind">
      <strong>{visible(notice.title)}</strong>
      <ul>
        {notice.texts.map((text) => (
          <li key={text}>
            <Breakable text={text} />
          </li>
        ))}
      </ul>
    </div>
  );
}

export function Sections({
  sections,
  curves = () => <></>,
}: Pick<WireReport, 'sections'> & { readonly curves?: Curves }): JSX.Element {
  return (
    <>
      {sections.map(({ title, blocks }) => (
        <section key={title}>
          <h2>{visible(title)}</h2>
          {blocks.map((block, at) => (
            <Block key={at} block={block} curves={curves} />
          ))}
        </section>
      ))}
    </>
  );
}

function Block({ block, curves }: { readonly block: WireBlock; readonly curves: Curves }): JSX.Element {
  const draw = BLOCKS[block.kind] as (block: WireBlock, curves: Curves) => JSX.Element;
  return draw(block, curves);
}

/** Bars with lengths proportional to the iterations' times. */
function Times({ shares, rows }: Omit<Extract<WireBlock, { kind: 'times' }>, 'kind'>): JSX.Element {
  const longest = Math.max(...rows.map(({ total }) => total));
  return (
    <>
      <p class="legend">
        {shares.map((share, at) => (
          <span key={share}>
            <i style={{ background: colorOf(at) }} aria-hidden="true" /> {visible(share)}
          </span>
        ))}
      </p>
      <Table
        label="Time"
        titles={['', 'part of an iteration', '', 'seconds']}
        rows={rows.map(({ label, total, seconds }) => [
          <Breakable text={label} />,
          `${total.toFixed(2)} s`,
          <div class="bar" aria-hidden="true">
            {seconds.map((value, at) => (
              <i
                key={at}
                title={`${shares[at]} ${value.toFixed(2)} s`}
                style={{ background: colorOf(at), width: `${((100 * value) / longest).toFixed(2)}%` }}
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

/** Texts on one line, or on separate lines if `apart`. */
export function Content({
  content,
  apart = false,
}: {
  readonly content: WireContent;
  readonly apart?: boolean;
}): JSX.Element {
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

/** Texts up to this length stay on one line of their cell. */
const BRIEF = 28;

export function Text({ text }: { readonly text: WireText }): JSX.Element {
  const [words, kind] = typeof text === 'string' ? [text, ''] : [text.text, CLASSES[text.as]];
  return (
    <span class={`said ${kind} ${words.length <= BRIEF ? 'brief' : ''}`}>
      <Breakable text={words} />
    </span>
  );
}
