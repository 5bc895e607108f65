/** What is looked at before a training server is trusted: each finding has a name, a figure, a limit, and what to do where it fails. */
import { EditrlError } from '../../../../core/errors.js';
import { PICTURE_SIZES } from '../../../../engines/tinker/errors.js';

interface Kind {
  /** What the figure is of, for a table; log-probabilities are in nats. */
  readonly figure: string;
  /** The largest figure that passes, or the smallest where `atLeast`. Null where another setting decides. */
  readonly limit: number | null;
  readonly atLeast?: boolean;
  readonly next: string;
}

const LOG_PROBS_MATCH = 0.1;

export const KINDS = {
  lengths: {
    figure: 'sequences without one log-probability for each token',
    limit: 0,
    next: 'Check the version of the server: what it tells cannot be given to tokens.',
  },
  positions: {
    figure: 'positions that log-probabilities are off by',
    limit: 0,
    next: 'Check the version of the server: it tells the log-probability of the token before or after the one that is asked for.',
  },
  sampler: {
    figure: 'mean difference, sampler to trainer',
    limit: LOG_PROBS_MATCH,
    next: 'Start trainer and sampler of the server with the same base model, in the same precision.',
  },
  prompts: {
    figure: 'mean difference, base model to untrained adapter',
    limit: LOG_PROBS_MATCH,
    next: 'Let the server sample from the base model that it trains over, or set algorithm.kl_coeff to 0.',
  },
  own_engine: {
    figure: 'mean difference, this program to trainer',
    limit: LOG_PROBS_MATCH,
    next: 'Start the server with the model that is in the folder policy.trainer.base_model.',
  },
  end: {
    figure: 'answers that end otherwise than they have to',
    limit: 0,
    next: 'Let policy.tokenizer be that of policy.trainer.base_model, and check that the server stops at the tokens in `stop` and gives the last one.',
  },
  picture_tokens: {
    figure: 'tokens that a picture has more or fewer than here',
    limit: 0,
    next: PICTURE_SIZES,
  },
  pictures: {
    figure: 'mean difference that a picture makes, to none and to another',
    limit: 0.01,
    atLeast: true,
    next: 'Train at a server that carries pictures to its trainer (SkyRL in mode fsdp), with a model that sees, or set policy.trainer to {type: onnx}.',
  },
  pictures_sampled: {
    figure: 'share of what a picture changes that whoever samples lacks',
    limit: 0.5,
    next: 'Start the server with trainer and sampler in one place (SkyRL: trainer.placement.colocate_all true, no external inference): elsewhere it drops pictures of prompts.',
  },
  direction: {
    figure: 'rise of a token with a positive advantage',
    limit: 0.05,
    atLeast: true,
    next: 'Check the version of the server, and that its optimizer uses the learning rate that it is sent.',
  },
  fresh: {
    figure: 'share of a step that the sampler lacks after it',
    limit: 0.5,
    next: 'Check that the server brings the weights to its sampler at every save_weights_for_sampler.',
  },
  apart: {
    figure: 'what sampling with older weights changes: mean difference to them, and shift of the trained weights',
    limit: LOG_PROBS_MATCH,
    next: 'Set rollout.ahead to 0: this server samples and trains in one place.',
  },
  reduction: {
    figure: 'weight of a token in an answer of two, to that in an answer of one',
    limit: null,
    next: 'Leave out policy.trainer.reduction, or set it to what was found.',
  },
} as const satisfies Readonly<Record<string, Kind>>;

export type FindingName = keyof typeof KINDS;
export const FINDING_NAMES = Object.keys(KINDS) as readonly FindingName[];
export const FINDING_STATES = ['passed', 'failed', 'unmeasured'] as const;

export interface Finding {
  readonly name: FindingName;
  readonly state: (typeof FINDING_STATES)[number];
  /** Null where nothing was measured, or no number says it. */
  readonly figure: number | null;
  /** What it is compared with; null where another setting decides. */
  readonly limit: number | null;
  /** In words: what the figure is of, or why there is none. */
  readonly found: string;
  /** What to do; null unless it failed. */
  readonly next: string | null;
}

/** A training server does not compute what a run would take it to compute. */
export class CertificateError extends EditrlError {
  readonly code = 'certificate';
}

/** A finding with a figure. `more`: what else there is to say of it. */
export function measuredFinding(name: FindingName, figure: number, more = ''): Finding {
  const { figure: of, limit, atLeast = false }: Kind = KINDS[name];
  const passed = limit === null || (atLeast ? figure >= limit : figure <= limit);
  return finding(name, passed, figure, more === '' ? of : `${of}: ${more}`);
}

/** A finding that no limit decides. */
export function finding(name: FindingName, passed: boolean, figure: number | null, found: string): Finding {
  const { limit, next } = KINDS[name];
  return { name, state: passed ? 'passed' : 'failed', figure, limit, found, next: passed ? null : next };
}

export function unmeasuredFinding(name: FindingName, why: string): Finding {
  return { name, state: 'unmeasured', figure: null, limit: KINDS[name].limit, found: why, next: null };
}

/** What was not measured and has to be, for what a run does with it. */
export function missingFinding(name: FindingName, why: string, next: string): Finding {
  return { ...unmeasuredFinding(name, why), state: 'failed', next };
}

/** As `0.031; limit 0.1`. */
export function showFigure({ name, figure, limit }: Finding): string {
  const { atLeast = false }: Kind = KINDS[name];
  if (figure === null) return '-';
  const shown = String(Number(figure.toPrecision(3)));
  return limit === null ? shown : `${shown} (${atLeast ? 'at least' : 'at most'} ${limit})`;
}

/** Raises CertificateError, naming all that failed, where one did. */
export function requirePassed(findings: readonly Finding[], where: string): void {
  const failed = findings.filter(({ state }) => state === 'failed');
  if (failed.length === 0) return;
  const told = failed.map((one) => {
    const figure = one.figure === null ? '' : ` ${showFigure(one)}`;
    return `${one.name}:${figure} ${one.found}`;
  });
  throw new CertificateError(`the training server does not compute what it has to: ${told.join('; ')}`, {
    where,
    next: failed[0].next ?? '',
  });
}

/** As `8 of 9 findings; not measured: own_engine (…)`. */
export function countFindings(findings: readonly Finding[]): string {
  const of = (wanted: Finding['state']): Finding[] => findings.filter(({ state }) => state === wanted);
  const open = of('unmeasured').map(({ name, found }) => `${name} (${found})`);
  const rest = open.length === 0 ? '' : `; not measured: ${open.join(', ')}`;
  return `${of('passed').length} of ${findings.length} findings${rest}`;
}
