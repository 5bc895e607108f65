/** The episodes of an iteration, filtered. */
import type { JSX } from 'preact';
import { useRef, useState } from 'preact/hooks';
import type { WireEpisode, WireEpisodeFile, WireEpisodes, WireJudgement } from '../wire.js';
import { showNumber, visible } from './format.js';
import { useData, useKeys, useTyped } from './hooks.js';
import { ImageFigure, Status } from './parts.js';
import { changed, go, type Place } from './router.js';
import { address } from './source.js';

const PAGE = 24;

/** Query parameters in addition to the iteration. */
const FIELDS = ['outcome', 'words', 'order'] as const;
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
  ['disadvantage', 'smallest advantage first'],
] as const;

interface EpisodesProps {
  readonly place: Place;
  readonly id: string;
}

export function EpisodesView({ place, id }: EpisodesProps): JSX.Element {
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
          Skipped {data.wrong_lines} unreadable {data.wrong_lines === 1 ? 'line' : 'lines'} of the episodes file.
        </p>
      )}
      {data?.files.length === 0 && <p>No episodes recorded yet. Supervised training and other trainers record none.</p>}
      {data !== null && data.files.length > 0 && (
        <p>
          {filtered ? `${data.matching} of ${data.total}` : data.total} episodes
          {data.matching > 0 &&
            data.episodes.every(({ source, edited, text }) => source === null && edited === null && text === null) && (
              <span class="quiet">
                {' '}
                (no images for this iteration: track.log_episodes_every_n_iterations sets which iterations keep them)
              </span>
            )}
        </p>
      )}
      <div class="episodes" ref={list}>
        {data?.episodes.map((episode) => (
          <Episode key={episode.key} id={id} episode={episode} judged={data.judged} />
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
  const [words, setWords] = useTyped(value('words'), (text) => set('words', text));
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
  return (
    <div class="filter">
      <label class="grow">
        <span class="label">text in the instruction or the answer</span>
        <input
          id="filter"
          type="search"
          value={words}
          autocomplete="off"
          onInput={(event) => setWords(event.currentTarget.value)}
        />
      </label>
      {choice('outcome', 'outcome', OUTCOMES)}
      {choice('order', 'order', ORDERS)}
    </div>
  );
}

/** Longer answers are collapsed. */
const LONG = 600;

function Episode({
  id,
  episode,
  judged,
}: {
  readonly id: string;
  readonly episode: WireEpisode;
  /** Whether a judge scored episodes of this run. */
  readonly judged: boolean;
}): JSX.Element {
  const [asked, setRequested] = useState(false);
  const { key, instruction, outcome, score, advantage, reason, finished } = episode;
  const images = (['source', 'edited', 'truth'] as const).flatMap((kind) => {
    const name = episode[kind];
    return name === null ? [] : [{ kind, path: address(`/api/image/${name}`, { run: id }) }];
  });
  return (
    <article class="card episode" tabIndex={-1} aria-label={`episode ${key}`}>
      <p class="row">
        <strong class="score">{showNumber(score)}</strong>
        <span class={`outcome outcome-${outcome}`}>{OUTCOMES.find(([kind]) => kind === outcome)?.[1]}</span>
        {advantage !== null && <span title="within its group">advantage {showNumber(advantage)}</span>}
        {!finished && <span class="outcome outcome-zero_by_rule">did not stop</span>}
        <span class="quiet mono key">{visible(key)}</span>
      </p>
      {images.length > 0 && (
        <div class="images">
          {images.map(({ kind, path }) => (
            <ImageFigure key={kind} path={path} label={kind === 'edited' ? 'edit' : kind} />
          ))}
        </div>
      )}
      <p class="instruction">{visible(instruction)}</p>
      {episode.thought !== null && <AnswerText title="thought" text={episode.thought} />}
      {episode.text !== null && <AnswerText title="answer" text={episode.text} />}
      {episode.expected !== null && <AnswerText title="expected" text={episode.expected} />}
      {reason !== null && <p class="quiet">{visible(reason)}</p>}
      <ScoreParts parts={episode.parts} />
      <p class="row">
        {judged && (
          <button type="button" aria-expanded={asked} onClick={() => setRequested(!asked)}>
            judge replies
          </button>
        )}
      </p>
      {asked && <Judgements id={id} episodeKey={key} />}
    </article>
  );
}

function AnswerText({ title, text }: { readonly title: string; readonly text: string }): JSX.Element {
  const shown = <pre class="words">{visible(text)}</pre>;
  if (text.length <= LONG) {
    return (
      <div>
        <span class="label">{title}</span>
        {shown}
      </div>
    );
  }
  return (
    <details>
      <summary>
        {title} ({text.length} characters)
      </summary>
      {shown}
    </details>
  );
}

/** The parts of the score, grouped by term. */
function ScoreParts({ parts }: Pick<WireEpisode, 'parts'>): JSX.Element | null {
  const terms = new Map<string, [part: string, value: number | null][]>();
  for (const [name, value] of Object.entries(parts)) {
    const cut = name.indexOf('/');
    const term = cut < 0 ? '' : name.slice(0, cut);
    terms.set(term, [...(terms.get(term) ?? []), [name.slice(cut + 1), value]]);
  }
  if (terms.size === 0) return null;
  return (
    <dl class="parts">
      {[...terms].map(([term, own]) => (
        <div key={term}>
          <dt>{visible(term)}</dt>
          <dd>
            {own.map(([part, value]) => (
              <span key={part}>
                {visible(part.replaceAll('_', ' '))} <b>{showNumber(value)}</b>
              </span>
            ))}
          </dd>
        </div>
      ))}
    </dl>
  );
}

function Judgements({ id, episodeKey }: { readonly id: string; readonly episodeKey: string }): JSX.Element {
  const { data, error, loading } = useData<readonly WireJudgement[]>('/api/judgements', { run: id, key: episodeKey });
  return (
    <div class="judgements">
      <Status error={error} loading={loading} what="Reading judgements" />
      {data?.length === 0 && <p class="quiet">No judge scored this episode.</p>}
      {data?.map(({ question, model, text, problem, scores, attempts, latency_ms }) => (
        <section key={question}>
          <h3>
            {visible(question)}{' '}
            {scores.length > 0 && (
              <span class="quiet">
                scores {scores.map((score) => (score === null ? 'N/A' : showNumber(score))).join(', ')}
              </span>
            )}
          </h3>
          {problem !== null && <p class="error">{visible(problem)}</p>}
          <pre class="words">{visible(text)}</pre>
          <p class="quiet small">
            {visible(model)}, {latency_ms} ms{attempts > 1 && `, ${attempts} attempts`}
          </p>
        </section>
      ))}
    </div>
  );
}
