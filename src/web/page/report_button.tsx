/** Downloads the report of a run, or of runs side by side, as one file that needs no server. */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { visible } from './format.js';
import { getFileUrl } from './session.js';
import { address } from './source.js';

type DownloadState =
  { readonly kind: 'idle' } | { readonly kind: 'making' } | { readonly kind: 'failed'; readonly why: string };

export function ReportButton({
  run,
  file,
}: {
  /** Ids of runs: of one for its own report, of more for their comparison. */
  readonly run: readonly string[];
  /** The name of the file. */
  readonly file: string;
}): JSX.Element {
  const [doing, setDoing] = useState<DownloadState>({ kind: 'idle' });
  const asked = useRef<AbortController | null>(null);
  // A file for a page that was left would come as a surprise.
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
        {doing.kind === 'making' ? 'making the report…' : 'download the report'}
      </button>
      {doing.kind === 'failed' && (
        <p class="error" role="alert">
          {visible(doing.why)}
        </p>
      )}
    </>
  );
}

/** How long a browser may take to begin with a download, in milliseconds. */
const REVOKE_AFTER_MS = 60_000;

function saveAs(url: string, file: string): void {
  const link = document.createElement('a');
  link.href = url;
  link.download = file;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), REVOKE_AFTER_MS);
}
