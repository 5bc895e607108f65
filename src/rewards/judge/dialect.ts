/** The fields of a request: two fixed forms, by the server's address, without the fields that a config leaves out. */

/**
 * Fields that a question can do without, the most dispensable first. Without `max_completion_tokens` the limit of a reply is sent under its
 * older name `max_tokens`.
 */
export const leavableFields = [
  'top_k',
  'repetition_penalty',
  'seed',
  'n',
  'top_p',
  'response_format',
  'temperature',
  'max_completion_tokens',
] as const;
export type LeavableField = (typeof leavableFields)[number];

/** The fields that each dialect leaves out. vLLM fills gaps from the checkpoint's own defaults. OpenAI's schema lacks some fields. */
const LEFT_OUT = {
  vllm: [],
  openai: ['top_k', 'repetition_penalty'],
} as const satisfies Readonly<Record<string, readonly LeavableField[]>>;

export type Dialect = keyof typeof LEFT_OUT;

export const dialects = Object.keys(LEFT_OUT) as readonly Dialect[];

/** The form of a request. */
export interface RequestForm {
  readonly dialect: Dialect;
  /** Fields that the config leaves out. */
  readonly leaveOut: readonly LeavableField[];
}

/** All fields that servers of open models take. */
export const vllmForm: RequestForm = { dialect: 'vllm', leaveOut: [] };

/** Hosts of OpenAI's own service and of its resale by Azure. */
const openAiHost = /(?:^|\.)(?:api\.openai\.com|openai\.azure\.com)$/;

/** The dialect of the servers at these base URLs: `openai` if any of them is OpenAI's own. */
export function dialectOf(endpoints: readonly string[]): Dialect {
  return endpoints.some((url) => URL.canParse(url) && openAiHost.test(new URL(url).hostname)) ? 'openai' : 'vllm';
}

/** The fields to send. */
export function keptFields(fields: object, { dialect, leaveOut }: RequestForm): Record<string, unknown> {
  const left: ReadonlySet<string> = new Set([...LEFT_OUT[dialect], ...leaveOut]);
  return Object.fromEntries(Object.entries(fields).filter(([name]) => !left.has(name)));
}

/** Names that servers use for rejected fields, if not the name itself. */
const otherNames: Partial<Readonly<Record<LeavableField, RegExp>>> = {
  // A single letter is a field's name only in quotes, or after an announcement of a name.
  n: /(['"`])n\1|(?:param(?:eter)?|argument|field)s?(?: supplied)?:? n(?![\w-])/i,
  response_format:
    /(?<![\w-])(?:response_?format|json[_ ]schema|structured[_ ]outputs?|guided[_ ](?:decoding|json)|grammar)(?![\w-])/i,
};

/** A field's name in an error. Parts of other words, such as a model's name, do not count. */
function namePattern(field: LeavableField): RegExp {
  return otherNames[field] ?? new RegExp(`(?<![\\w-])${field.replaceAll('_', '_?')}(?![\\w-])`, 'i');
}

/** An error of a server, if it may concern a field. */
export interface FieldError {
  readonly status: number;
  /** The field in the error's body. Null if it names none there. */
  readonly param: string | null;
  /** Its code and message. */
  readonly words: string;
}

/** Servers on FastAPI reply 422 to unknown fields. llama.cpp replies 501 to unsupported ones. */
const refusals: ReadonlySet<number> = new Set([400, 422, 501]);
/** LiteLLM's own class of error, with which some of its versions send a 500. */
const refusedByProxy = /UnsupportedParams/i;

/** The field that a server's error most likely rejects. Null if it names none that can be left out. */
export function refusedField({ status, param, words }: FieldError): LeavableField | null {
  if (!refusals.has(status) && !refusedByProxy.test(words)) return null;
  // A server that names the field itself (`response_format.json_schema`) means no other.
  const meant = leavableFields.find((field) => field === param?.split(/[.[]/)[0]);
  if (meant !== undefined) return meant;
  const mentioned = leavableFields.flatMap((field) => {
    const at = words.search(namePattern(field));
    return at < 0 ? [] : [{ field, at }];
  });
  // "temperature and top_p cannot both be specified": the more dispensable one goes.
  if (!/\bboth\b/i.test(words)) mentioned.sort((a, b) => a.at - b.at);
  return mentioned.at(0)?.field ?? null;
}
