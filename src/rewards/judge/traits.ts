/**
 * What a server takes of a request. Servers that claim one protocol refuse different fields of it, and say so in words of their own: these
 * are read, and the field is left out or called otherwise from then on.
 */

/**
 * Fields that a question can be asked without, the most dispensable first. Replies are checked whether or not a server follows the format;
 * without the temperature it answers at its own.
 */
export const optionalFields = [
  'top_k',
  'repetition_penalty',
  'seed',
  'n',
  'top_p',
  'response_format',
  'temperature',
] as const;
export type OptionalField = (typeof optionalFields)[number];

/** What the limit of a reply's tokens is called: by OpenAI since 2024, and before that and by older servers. */
export const tokenLimits = ['max_completion_tokens', 'max_tokens'] as const;
export type TokenLimit = (typeof tokenLimits)[number];

const refusableFields = [...optionalFields, ...tokenLimits] as const;
export type RefusableField = (typeof refusableFields)[number];

/** Plain data, so that another thread or process can take it. */
export interface Traits {
  /** Fields that the server is not sent. */
  readonly leftOut: readonly OptionalField[];
  readonly tokenLimit: TokenLimit;
  /** Tokens of the model's context, prompt and reply together; absent where the server does not say. */
  readonly context?: number;
}

/**
 * What is known of a server before it is asked, by its address. `vllm`: it takes all fields, as most servers that run open models do. `openai`:
 * those of OpenAI's own schema only, without the seed, which its newer models refuse; that API has no checkpoint defaults that would fill
 * the gaps.
 */
export type Dialect = 'vllm' | 'openai';

export const startingTraits: Readonly<Record<Dialect, Traits>> = {
  vllm: { leftOut: [], tokenLimit: 'max_completion_tokens' },
  openai: { leftOut: ['top_k', 'repetition_penalty', 'seed'], tokenLimit: 'max_completion_tokens' },
};

/** Hosts of OpenAI's own service and of its resale by Azure. */
const openAiHost = /(?:^|\.)(?:api\.openai\.com|openai\.azure\.com)$/;

/** The dialect of the servers at these base URLs: `openai` where any of them is OpenAI's own. */
export function dialectOf(endpoints: readonly string[]): Dialect {
  return endpoints.some((url) => URL.canParse(url) && openAiHost.test(new URL(url).hostname)) ? 'openai' : 'vllm';
}

/** The fields of a request that a server with these traits is sent. */
export function keptFields(fields: object, { leftOut }: Traits): Record<string, unknown> {
  const left: ReadonlySet<string> = new Set(leftOut);
  return Object.fromEntries(Object.entries(fields).filter(([name]) => !left.has(name)));
}

/** How servers name a field where they refuse it; parts of other words, a model's name among them, are none. */
const names: Readonly<Record<RefusableField, RegExp>> = {
  top_k: /(?<![\w-])top_?k(?![\w-])/i,
  repetition_penalty: /(?<![\w-])repetition_?penalty(?![\w-])/i,
  seed: /(?<![\w-])seed(?![\w-])/i,
  // A letter is a field's name only in quotes, or where a name is announced.
  n: /(['"`])n\1|(?:param(?:eter)?|argument|field)s?(?: supplied)?:? n(?![\w-])/i,
  top_p: /(?<![\w-])top_?p(?![\w-])/i,
  response_format:
    /(?<![\w-])(?:response_?format|json[_ ]schema|structured[_ ]outputs?|guided[_ ](?:decoding|json)|grammar)(?![\w-])/i,
  temperature: /(?<![\w-])temperature(?![\w-])/i,
  max_completion_tokens: /(?<![\w-])max_?completion_?tokens(?![\w-])/i,
  max_tokens: /(?<![\w-])max_?tokens(?![\w-])/i,
};

/** An error of a server, as far as it may be about a field. */
export interface FieldError {
  readonly status: number;
  /** The field in the error's body, where it names one there; OpenAI and those who follow it closely do. */
  readonly param: string | null;
  /** Its code and message. */
  readonly words: string;
}

/** 422 is what servers on FastAPI say to fields that they do not know (Mistral's among them); llama.cpp says 501 to what it cannot do. */
const refusals: ReadonlySet<number> = new Set([400, 422, 501]);
/** LiteLLM's own class of error, with which some of its versions send a 500. */
const refusedByProxy = /UnsupportedParams/i;

/**
 * The fields that a server's error names, the one that it most likely refuses first; none where it refuses something else. Forms:
 * - OpenAI: `param: "temperature"`, code `unsupported_value` or `unsupported_parameter` (`'max_tokens' is not supported with this model. Use
 *   'max_completion_tokens' instead.`); without `param`: `Unrecognized request argument supplied: top_k`.
 * - vLLM up to 0.6.4 (vllm-project/vllm#10078) and Mistral: pydantic's `extra_forbidden` with `loc: ("body", "max_completion_tokens")`.
 * - DeepSeek: `This response_format type is unavailable now`; SGLang and llama.cpp name the schema or its grammar.
 * - LiteLLM: `openai does not support parameters: ['top_k', 'seed']`, one or several at once.
 * - Anthropic: `temperature and top_p cannot both be specified for this model`: the more dispensable one goes.
 */
export function refusedFields({ status, param, words }: FieldError): readonly RefusableField[] {
  if (!refusals.has(status) && !refusedByProxy.test(words)) return [];
  // A server that says which field it means (`response_format.json_schema`) means no other.
  const meant = refusableFields.find((field) => field === param?.split(/[.[]/)[0]);
  if (meant !== undefined) return [meant];
  const said = refusableFields.flatMap((field) => {
    const at = words.search(names[field]);
    return at < 0 ? [] : [{ field, at }];
  });
  return (/\bboth\b/i.test(words) ? said : said.sort((a, b) => a.at - b.at)).map(({ field }) => field);
}

/** The traits without what a server refused of a request that was sent with them; null where nothing of it can be changed. */
export function withoutRefusedFields(traits: Traits, refused: readonly RefusableField[]): Traits | null {
  for (const field of refused) {
    if (field === 'max_completion_tokens' || field === 'max_tokens') {
      if (field !== traits.tokenLimit) continue;
      return { ...traits, tokenLimit: field === 'max_tokens' ? 'max_completion_tokens' : 'max_tokens' };
    }
    if (!traits.leftOut.includes(field)) return { ...traits, leftOut: [...traits.leftOut, field] };
  }
  return null;
}

/** How often a request may be sent with other traits before its server counts as one that cannot be pleased: once for each field, and both limits. */
export const mostTraitChanges = optionalFields.length + tokenLimits.length;

/** What all of several equal judges take. */
export function commonTraits(traits: readonly Traits[]): Traits {
  const leftOut = optionalFields.filter((field) => traits.some((one) => one.leftOut.includes(field)));
  const older = traits.some(({ tokenLimit }) => tokenLimit === 'max_tokens');
  const contexts = traits.flatMap(({ context }) => context ?? []);
  return {
    leftOut,
    tokenLimit: older ? 'max_tokens' : 'max_completion_tokens',
    ...(contexts.length === 0 ? {} : { context: Math.min(...contexts) }),
  };
}

/** What was found besides what was known, for people; null where nothing was. */
export function describeTraits(found: Traits, start: Traits): string | null {
  const leftOut = optionalFields.filter((field) => found.leftOut.includes(field) && !start.leftOut.includes(field));
  const said = [
    ...(leftOut.length === 0
      ? []
      : [`does not take ${leftOut.map((field) => labels[field] ?? field).join(', ')}: left out`]),
    ...(found.tokenLimit === start.tokenLimit ? [] : [`takes ${found.tokenLimit} in place of ${start.tokenLimit}`]),
  ];
  return said.length === 0 ? null : said.join('; ');
}

const labels: Partial<Readonly<Record<OptionalField, string>>> = { response_format: 'response_format (json_schema)' };
