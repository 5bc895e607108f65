/** What a training server is found to compute, before a run's first iteration or when the server or its base model is another since. */
import { isDeepStrictEqual } from 'node:util';
import { sessionOptions } from '../engines/onnx/session_options.js';
import type { TinkerConnection } from '../engines/tinker/connection.js';
import type { TinkerSession } from '../engines/tinker/session.js';
import type { TokenPrompt } from '../policies/tokens/batch.js';
import type { TokenFormat } from '../policies/tokens/format.js';
import { certify, clearPlace } from '../policies/tokens/tinker/certificate/certify.js';
import type { WithDeadline } from '../policies/tokens/tinker/certificate/scratch.js';
import { ownEngine } from '../policies/tokens/tinker/certificate/own_engine.js';
import type { Sight } from '../policies/tokens/tinker/prompts.js';
import { readCertificate, writeCertificate, type Certificate, type CertifiedServer } from '../run/certificate.js';
import type { RunPaths } from '../run/paths.js';
import type { TinkerSettings } from '../schema/trainer.js';

/** Nothing trains here: these say that the model is read with what sees. */
const SEEING = { mm_vision: false, mm_mlp: false, mm_llm: true } as const;

/** What a certificate depends on. */
export interface CertifiedRun {
  readonly policy: { readonly engine: Parameters<typeof sessionOptions>[0] };
  /** Whether the run reads log-probabilities of the base model. */
  readonly needsPrompts: boolean;
  /** Whether the run samples while it trains. */
  readonly samplesAhead: boolean;
}

export interface ServerToCertify<P extends TokenPrompt> {
  readonly connection: TinkerConnection;
  readonly asked: WithDeadline;
  /** Opens a session that nothing else uses. */
  readonly openSession: () => TinkerSession;
  readonly trainer: TinkerSettings;
  /** The command line but for the port, of a server that was started with the run; null for one that was not. */
  readonly startedBy: readonly string[] | null;
  readonly format: TokenFormat<P>;
  /** How the policy sees; null for one that does not. */
  readonly sight: Sight | null;
}

/** Raises EndpointError where the server stays away or refuses. Whether it passes is for the caller to say. */
export async function certifyServer<P extends TokenPrompt>(
  { policy, needsPrompts, samplesAhead }: CertifiedRun,
  to: ServerToCertify<P>,
): Promise<Certificate> {
  const { connection, asked, openSession, trainer, format, sight } = to;
  const { clock } = connection;
  const [server, start] = [await serverOf(to), clock.now()];
  const { findings, reduction } = await certify({
    connection,
    session: openSession(),
    concurrency: trainer.concurrency,
    asked,
    format,
    reduction: trainer.reduction,
    needsPrompts,
    samplesAhead,
    own: ownEngine(trainer.base_model, format, sessionOptions(policy.engine), sight === null ? null : SEEING),
    sight,
  });
  const seconds = Math.round((clock.now() - start) / 100) / 10;
  const made_at = new Date().toISOString();
  return { format: 1, made_at, seconds, server, reduction, findings: findings.map((one) => ({ ...one })) };
}

/** The certificate that a run's record has, if the server is still the one that it is of; else another, which is recorded. */
export async function findOrMakeCertificate<P extends TokenPrompt>(
  run: CertifiedRun,
  server: ServerToCertify<P>,
  paths: Pick<RunPaths, 'certificate'>,
): Promise<{ readonly certificate: Certificate; readonly isKept: boolean }> {
  const kept = readCertificate(paths);
  const stands = kept !== null && !kept.findings.some(({ state }) => state === 'failed');
  if (stands && isSame(kept.server, await serverOf(server))) {
    const { connection, asked, openSession, trainer, sight } = server;
    await clearPlace({ connection, asked, session: openSession(), concurrency: trainer.concurrency, sight });
    return { certificate: kept, isKept: true };
  }
  const certificate = await certifyServer(run, server);
  writeCertificate(paths, certificate);
  return { certificate, isKept: false };
}

/** A server that is started with the run has another address at each start. */
function isSame(kept: CertifiedServer, found: CertifiedServer): boolean {
  const address = found.started_by === undefined ? found.url : kept.url;
  return isDeepStrictEqual(kept, { ...found, url: address });
}

async function serverOf<P extends TokenPrompt>({
  connection,
  asked,
  trainer: { base_model },
  startedBy,
}: Pick<ServerToCertify<P>, 'connection' | 'asked' | 'trainer' | 'startedBy'>): Promise<CertifiedServer> {
  const path = '/get_server_capabilities';
  const reply = await asked((within) => connection.send(path, null, within));
  const capabilities = reply.status === 200 ? (connection.json(path, reply) as CertifiedServer['capabilities']) : null;
  return {
    url: connection.url,
    ...(startedBy === null ? {} : { started_by: [...startedBy] }),
    base_model,
    capabilities,
  };
}
