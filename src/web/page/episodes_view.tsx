/** The episodes of an iteration, filtered; and the episodes of one prompt, iteration by iteration. */
import type { JSX } from 'preact';
import { useRef } from 'preact/hooks';
import type { WireEpisodeFile, WireEpisodes } from '../wire.js';
import { useData } from './data.js';
import { Episode } from './episode.js';
import { useKeys } from './keys.js';
import { Status } from './parts.js';
import { PromptView } from './prompt_view.js';
import { changed, go, type Place } from './router.js';
import { useTyped } from './typed.js';

const PAGE = 24;

/** Query parameters besides the iteration. */
const FIELDS = ['outcome', 'score_from', 'score_to', 'advantage_from', 'advantage_to', 'words', 'order'] as const;
type Field = (typeof FIELDS)[number];

const OUTCOMES = [
  ['', 'any'],
  ['scored', 'scored'],
  ['zero_by_rule', 'zero by rule'],
  ['unscored', 'unscored'],
] as const;
const ORDERS = [
  ['', 'as recorded'],
  ['best', 'best score first'],
  ['worst', 'worst score first'],
  ['advantage', 'largest advantage first'],
  ['disadvantage', 'least advantage first'],
] as const;

interface EpisodesProps {
  readonly place: Place;
  readonly id: string;
}

export function EpisodesView({ place, id }: EpisodesProps): JSX.Element {
  return place.query.get('sample') === null ? (
    <IterationPicker place={place} id={id} />
  ) : (
    <PromptView place={place} id={id} />
  );
}

function IterationPicker({ place, id }: EpisodesProps): JSX.Element {
  const { query } = place;
  const offset = Number(query.get('offset') ?? 0);
  const fields = Object.fromEntries(FIELDS.map((name) => [name, query.get(name) ?? undefined]));
  const request = {
    run: id,
    iteration: query.get('iteration') ?? undefined,
    held_out: query.get('held_out') ?? undefined,
    offset,
    limit: PAGE,
    ...fields,
  };
  const asked = Object.fromEntries(Object.entries(request).filter(([, value]) => value !== undefined)) as Record<
    string,
    string | number
  >;
  const { data, error, loading } = useData<WireEpisodes>('/api/episodes', asked, [id]);
  const list = useRef<HTMLDivElement>(null);
  const at = data === null || data.shown === null ? -1 : data.files.findIndex((file) => isSameFile(file, data.shown));
  const step = (by: number): void => {
    const next = data?.files[at + by];
    if (next !== undefined) go(changed(place, fileQuery(next)));
  };
  const move = (by: number): void => {
    const cards = [...(list.current?.querySelectorAll('article') ?? [])];
    const now = cards.findIndex((card) => card.contains(document.activeElement));
    cards[Math.min(Math.max(0, now + by), cards.length - 1)]?.focus();
  };
  useKeys({
    '[': () => step(-1),
    ']': () => step(1),
    j: () => move(1),
    k: () => move(-1),
    '/': () => document.getElementById('filter')?.focus(),
  });
  const filtered = FIELDS.some((name) => name !== 'order' && query.get(name) !== null);

  return (
    <>
      {data !== null && data.files.length > 0 && (
        <div class="filter">
          <Stepper files={data.files} at={at} onStep={step} onGo={(file) => go(changed(place, fileQuery(file)))} />
        </div>
      )}
      <EpisodeFilter place={place} />
      <Status error={error} loading={loading && data === null} what="Reading episodes" />
      {data !== null && data.wrong_lines > 0 && (
        <p class="error" role="alert">
          {data.wrong_lines} {data.wrong_lines === 1 ? 'line is no episode' : 'lines are no episodes'} and left out.
        </p>
      )}
      {data?.files.length === 0 && <p>No episodes are recorded yet, or this training has none.</p>}
      {data !== null && data.files.length > 0 && (
        <p>
          {filtered ? `${data.matching} of ${data.total}` : data.total} episodes
          {data.matching > 0 &&
            data.episodes.every(({ source, edited, text }) => source === null && edited === null && text === null) && (
              <span class="quiet">
                ; of this iteration no pictures were kept (track.log_episodes_every_n_iterations says of which they are)
              </span>
            )}
        </p>
      )}
      <div class="episodes" ref={list}>
        {data?.episodes.map((episode) => (
          <Episode
            key={episode.key}
            id={id}
            episode={episode}
            judged={data.judged}
            promptHref={changed(place, { sample: episode.sample, instruction: episode.instruction, offset: null })}
          />
        ))}
      </div>
      {data !== null && data.matching > PAGE && (
        <nav class="pages" aria-label="Pages">
          <button
            type="button"
            disabled={offset === 0}
            onClick={() => go(changed(place, { offset: Math.max(0, offset - PAGE) }))}
          >
            previous
          </button>
          <span>
            {offset + 1} to {offset + data.episodes.length} of {data.matching}
          </span>
          <button
            type="button"
            disabled={offset + data.episodes.length >= data.matching}
            onClick={() => go(changed(place, { offset: offset + PAGE }))}
          >
            next
          </button>
        </nav>
      )}
    </>
  );
}

function isSameFile(a: WireEpisodeFile, b: WireEpisodeFile | null): boolean {
  return a.iteration === b?.iteration && a.held_out === b.held_out;
}

function fileQuery({ iteration, held_out }: WireEpisodeFile): Record<string, string | number | null> {
  return { iteration, held_out: held_out ? 'true' : null, offset: null };
}

function titleOf({ iteration, held_out }: WireEpisodeFile): string {
  return `${held_out ? 'held-out, ' : ''}iteration ${iteration}`;
}

function Stepper({
  files,
  at,
  onStep,
  onGo,
}: {
  readonly files: readonly WireEpisodeFile[];
  readonly at: number;
  readonly onStep: (by: number) => void;
  readonly onGo: (file: WireEpisodeFile) => void;
}): JSX.Element {
  return (
    <>
      <button type="button" disabled={at <= 0} onClick={() => onStep(-1)}>
        ‹ previous
      </button>
      <label class="short">
        <span class="label">iteration</span>
        <select
          value={at}
          onChange={(event) => {
            const file = files[Number(event.currentTarget.value)];
            if (file !== undefined) onGo(file);
          }}
        >
          {files.map((file, index) => (
            <option key={titleOf(file)} value={index}>
              {titleOf(file)}
            </option>
          ))}
        </select>
      </label>
      <button type="button" disabled={at >= files.length - 1} onClick={() => onStep(1)}>
        next ›
      </button>
    </>
  );
}

function EpisodeFilter({ place }: Pick<EpisodesProps, 'place'>): JSX.Element {
  const set = (name: Field, value: string): void =>
    go(changed(place, { [name]: value === '' ? null : value, offset: null }), 'replace');
  const value = (name: Field): string => place.query.get(name) ?? '';
  const choice = (name: Field, title: string, choices: readonly (readonly [string, string])[]): JSX.Element => (
    <label class="short">
      <span class="label">{title}</span>
      <select value={value(name)} onChange={(event) => set(name, event.currentTarget.value)}>
        {choices.map(([word, text]) => (
          <option key={word} value={word}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
  const number = (name: Field, title: string): JSX.Element => (
    <label class="tiny">
      <span class="label">{title}</span>
      <DebouncedInput type="number" value={value(name)} onValue={(text) => set(name, text)} />
    </label>
  );
  return (
    <div class="filter">
      <label class="grow">
        <span class="label">words of the instruction or the answer</span>
        <DebouncedInput id="filter" type="search" value={value('words')} onValue={(text) => set('words', text)} />
      </label>
      {choice('outcome', 'outcome', OUTCOMES)}
      {number('score_from', 'score from')}
      {number('score_to', 'score to')}
      {number('advantage_from', 'advantage from')}
      {number('advantage_to', 'advantage to')}
      {choice('order', 'order', ORDERS)}
    </div>
  );
}

/** A text field that reports its text after a short pause in typing. */
function DebouncedInput({
  id,
  type,
  value,
  onValue,
}: {
  readonly id?: string;
  readonly type: 'search' | 'number';
  readonly value: string;
  readonly onValue: (value: string) => void;
}): JSX.Element {
  const [text, setText] = useTyped(value, onValue);
  const shared = {
    value: text,
    autocomplete: 'off',
    onInput: (event: { readonly currentTarget: HTMLInputElement }): void => setText(event.currentTarget.value),
    ...(id === undefined ? {} : { id }),
  };
  return type === 'number' ? <input type="number" step="any" {...shared} /> : <input type="search" {...shared} />;
}
