/** Buttons for the actions of a run or a sweep. Each button asks for confirmation and shows the equivalent command. */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { SERIES_COLORS } from '../panels.js';
import type { ActionName, WireAction } from '../wire.js';
import { visible } from './format.js';
import { Dialog } from './parts.js';
import { changed, go, hashOf, type Place } from './router.js';
import { getFileUrl, postJson } from './server_source.js';
import { address } from './source.js';

interface ActionText {
  readonly title: string;
  readonly why: string;
  /** Whether it destroys something. The confirmation shows this. */
  readonly danger?: true;
  /** Whether it is the recommended action. */
  readonly primary?: true;
}

/** Names of actions and descriptions of what they do. */
export type ActionTexts = Readonly<Partial<Record<ActionName, ActionText>>>;

export function Actions({
  actions,
  words,
  name,
  target,
}: {
  readonly actions: readonly WireAction[];
  readonly words: ActionTexts;
  /** The name of the run or experiment. */
  readonly name: string;
  readonly target: { readonly run: string } | { readonly experiment: string };
}): JSX.Element | null {
  const [asked, setRequested] = useState<WireAction | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [sent, setSent] = useState<string | null>(null);
  if (actions.length === 0) return null;
  const wordsOf = ({ action }: WireAction): ActionText => words[action] ?? { title: action, why: '' };
  const send = (action: WireAction): void => {
    setRequested(null);
    setError(null);
    postJson('/api/act', { ...target, action: action.action }).then(
      () => setSent(wordsOf(action).title),
      (failed: unknown) => setError(failed instanceof Error ? failed.message : String(failed)),
    );
  };
  return (
    <div class="row actions">
      {actions.map((action) => {
        const { title, primary } = wordsOf(action);
        return (
          <button
            key={action.action}
            type="button"
            class={primary === true ? 'primary' : undefined}
            onClick={() => setRequested(action)}
          >
            {title}
          </button>
        );
      })}
      <span role="status" class="quiet">
        {sent === null ? '' : `Request sent: ${sent}. The state will update shortly.`}
      </span>
      {error !== null && (
        <p class="error" role="alert">
          {visible(error)}
        </p>
      )}
      {asked !== null && (
        <Dialog title={`${wordsOf(asked).title} ${name}?`} onClose={() => setRequested(null)}>
          <p>{wordsOf(asked).why}</p>
          <p class="quiet">Equivalent command:</p>
          <pre class="command">{visible(asked.command)}</pre>
          <form method="dialog">
            <button>cancel</button>
            <button
              type="button"
              class={wordsOf(asked).danger === true ? 'danger' : 'primary'}
              onClick={() => send(asked)}
            >
              {wordsOf(asked).title}
            </button>
          </form>
        </Dialog>
      )}
    </div>
  );
}

type DownloadState =
  { readonly kind: 'idle' } | { readonly kind: 'making' } | { readonly kind: 'failed'; readonly why: string };

export function ReportButton({
  run,
  file,
}: {
  /** Ids of runs. One id gives the run's report, several give a comparison. */
  readonly run: readonly string[];
  /** The name of the file. */
  readonly file: string;
}): JSX.Element {
  const [doing, setDoing] = useState<DownloadState>({ kind: 'idle' });
  const asked = useRef<AbortController | null>(null);
  // Cancels the download when the user leaves the page.
  useEffect(() => () => asked.current?.abort(), []);
  const save = (): void => {
    const request = new AbortController();
    asked.current = request;
    setDoing({ kind: 'making' });
    getFileUrl(address('/api/report', { run }), request.signal).then(
      (url) => {
        saveAs(url, file);
        setDoing({ kind: 'idle' });
      },
      (failed: unknown) => {
        if (request.signal.aborted) return;
        setDoing({ kind: 'failed', why: failed instanceof Error ? failed.message : String(failed) });
      },
    );
  };
  return (
    <>
      <button type="button" disabled={doing.kind === 'making'} onClick={save}>
        {doing.kind === 'making' ? 'creating the report…' : 'download the report'}
      </button>
      {doing.kind === 'failed' && (
        <p class="error" role="alert">
          {visible(doing.why)}
        </p>
      )}
    </>
  );
}

/** Time for the browser to start a download, in milliseconds. */
const REVOKE_AFTER_MS = 60_000;

function saveAs(url: string, file: string): void {
  const link = document.createElement('a');
  link.href = url;
  link.download = file;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), REVOKE_AFTER_MS);
}

/** A bar about the selected runs. The address holds the selection as `pick`. */
export function Picked({
  place,
  runs,
  cells,
}: {
  readonly place: Place;
  /** The ids of the selected runs, including those that the current filter hides. */
  readonly runs: readonly string[];
  /** Number of cells that these runs belong to, if cells were selected. */
  readonly cells?: number;
}): JSX.Element | null {
  if (runs.length === 0) return null;
  return (
    <p class="picked" role="status">
      {cells === undefined
        ? `${countInWords(runs.length, 'run')} selected`
        : `${countInWords(cells, 'cell')} selected, with `}
      {cells !== undefined && (runs.length === 1 ? '1 run' : `${runs.length} runs`)}{' '}
      {runs.length === 1 ? (
        <span class="quiet">select another to compare</span>
      ) : runs.length > SERIES_COLORS ? (
        <span class="quiet">at most {SERIES_COLORS} runs can be compared</span>
      ) : (
        <a class="button" href={hashOf('compare', '', { run: runs })}>
          compare
        </a>
      )}{' '}
      <button type="button" onClick={() => go(changed(place, { pick: [] }), 'replace')}>
        clear
      </button>
    </p>
  );
}

function countInWords(count: number, what: string): string {
  return count === 1 ? `1 ${what} is` : `${count} ${what}s are`;
}
