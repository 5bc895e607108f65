/** What was found of a training server, as a table. */
import { printable } from '../../core/errors.js';
import { formatTable } from '../../core/table.js';
import { showFigure } from '../../policies/tokens/tinker/certificate/findings.js';
import type { Certificate } from '../certificate.js';

export const CERTIFICATE_TITLES = ['finding', 'state', 'figure', 'of'] as const;

export function certificateRows({ findings }: Certificate): string[][] {
  return findings.map((one) => [one.name, one.state, showFigure(one), one.found]);
}

/** Which server it is of, and when it was found. */
export function certificateCaption({ server, made_at, seconds, reduction }: Certificate): string {
  const losses = reduction === null ? '' : `; it is sent what '${reduction}' needs`;
  const where = server.started_by === undefined ? server.url : 'a server that is started with the run';
  return `${server.base_model} at ${where}, looked at for ${seconds} s on ${made_at}${losses}`;
}

/** Lines without a final newline. */
export function certificateTable(certificate: Certificate, width = Infinity): string[] {
  const [name, state, figure, of] = CERTIFICATE_TITLES.map((title) => ({ title }));
  const rows = certificateRows(certificate).map((row) => row.map(printable));
  const table = formatTable([name, state, figure, { ...of, wraps: true }], rows, { width });
  return [`training server: ${printable(certificateCaption(certificate))}`, ...table.split('\n')];
}
