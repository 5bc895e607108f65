/** `certificate.json`: what was found of the server that trains a run, before its first iteration or where the server is another one since. */
import { z } from 'zod';
import { RunError } from '../core/errors.js';
import { writeFileAtomic } from '../core/files.js';
import { FINDING_NAMES, FINDING_STATES } from '../policies/tokens/tinker/certificate/findings.js';
import { readJson } from './state.js';
import type { RunPaths } from './paths.js';

const server = z.object({
  url: z.string(),
  /** The command line but for the port, of a server that was started with the run; absent for one that was not. */
  started_by: z.array(z.string()).optional(),
  base_model: z.string(),
  /** What it says that it can do; null where it does not say. */
  capabilities: z.json(),
});
const certificate = z.object({
  format: z.literal(1),
  /** ISO 8601 in UTC. */
  made_at: z.string(),
  seconds: z.number(),
  server,
  /** What the server makes of the losses of tokens; null where it could not be told. */
  reduction: z.enum(['sum', 'mean_per_datum']).nullable(),
  findings: z.array(
    z.object({
      name: z.enum(FINDING_NAMES as [(typeof FINDING_NAMES)[number], ...typeof FINDING_NAMES]),
      state: z.enum(FINDING_STATES),
      figure: z.number().nullable(),
      limit: z.number().nullable(),
      found: z.string(),
      next: z.string().nullable(),
    }),
  ),
});

export type CertifiedServer = z.output<typeof server>;
export type Certificate = z.output<typeof certificate>;

/** Null where there is none. Raises RunError where it cannot be read. */
export function readCertificate(paths: Pick<RunPaths, 'certificate'>): Certificate | null {
  const value = readJson(paths.certificate);
  if (value === null) return null;
  const found = certificate.safeParse(value);
  if (found.success) return found.data;
  throw new RunError('is not what this program writes', {
    where: paths.certificate,
    next: 'Remove the file: the run looks at the server again.',
    cause: found.error,
  });
}

/** Replaces the one before. Raises RunError where the disk refuses. */
export function writeCertificate(paths: Pick<RunPaths, 'certificate'>, value: Certificate): void {
  writeFileAtomic(paths.certificate, `${JSON.stringify(value, null, 2)}\n`);
}
